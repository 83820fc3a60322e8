"""Buckets: what is written is read back, and merging adds up what belongs together."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Call
from braid.operators.live_queries import LiveQueries
from braid.operators.predicates import cell_space
from braid.operators.predicates.cells import LineCells, SetCells
from braid.operators.queries import Aggregation
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.state import dense_totals, entries, merging
from braid.operators.state.batch_combiner import BatchCombiner
from braid.operators.state.bucket import Bucket
from braid.operators.state.bucket_store import INLINE_BYTES, get_payload, put_bucket
from braid.operators.state.merging import merge_buckets
from braid.operators.state.packed_sums import WithPacked
from braid.operators.stream_operators import StreamOperators
from braid.sources.core.errors import CorruptData
from braid.sources.core.schema import BOOLEAN
from braid.sources.core.storage import Storage
from tests.operators.pipeline import STREAM, K, S, V, aggregation, batch_of, compare, live_of, predicate_of

MEASURES = (COUNT_ALL, Measure("sum", V), Measure("min", S), Measure("count", S))


def random_rows(rng: random.Random, length: int, most: int = 30) -> list[dict[str, Any]]:
    return [
        {
            "k": rng.choice([None, 0, 1, 10**6]),
            "v": rng.choice([None, *range(-3, 4)]),
            "s": rng.choice([None, "a", "é", "b" * rng.randint(0, 3)]),
            "t": rng.randint(0, most),
        }
        for _ in range(length)
    ]


def queries(both: bool) -> LiveQueries:
    """Queries of one cell space: over one column, or over two."""
    wheres = [compare(V, ">", c) for c in (-2, 0, 1)]
    if both:
        wheres = [Call("and", (where, compare(K, "<", 1 + i)), BOOLEAN) for i, where in enumerate(wheres)]
    return live_of(*(aggregation(where, (K, S), measures=MEASURES) for where in wheres))


def buckets_of(live: LiveQueries, rows: list[dict[str, Any]]) -> list[Bucket]:
    return [bucket for _, bucket in StreamOperators(live, STREAM, 1).process(batch_of(rows), None).buckets]


def buckets_with(live: LiveQueries, rows: list[dict[str, Any]], **limits: float) -> list[Bucket]:
    """Return what `buckets_of` does where these are the limits by which forms are chosen."""
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            module = dense_totals if name == "FULL" else cell_space if "BOUNDARIES" in name else entries
            patch.setattr(module, name, limit)
        return buckets_of(live, rows)


def contents(bucket: Bucket) -> Counter[Any]:
    """Return the entries with what their numbers mean; how cells are numbered does not matter."""
    keys = bucket.keys.to_pylist()
    found: Counter[Any] = Counter()
    for i, (start, end) in enumerate(bucket.slices.tolist()):
        for entry in range(bucket.starts[i], bucket.starts[i + 1]):
            if not bucket.component("count(*)")[entry]:
                assert bucket.is_full
                continue
            cell = int(bucket.cell[entry])
            if isinstance(bucket.cells, LineCells):
                meaning: Any = (bucket.cells.boundaries, cell)
            else:
                meaning = tuple(bucket.cells.query_sets[cell].tolist())
            least = int(bucket.component("min(s)")[entry])
            text = bucket.dictionaries["min(s)"][least].as_py() if bucket.component("count(s)")[entry] else None
            numbers = [int(bucket.component(name)[entry]) for name in ("count(*)", "sum(v)", "count(s)")]
            found[start, end, meaning, str(keys[bucket.key[entry]]), text, *numbers] += 1
    return found


@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_round_trip(seed: int, length: int, both: bool) -> None:
    for bucket in buckets_of(queries(both), random_rows(random.Random(seed), length)):
        back = Bucket.deserialize(bucket.serialize())
        assert (back.operator, back.space, back.epoch) == (bucket.operator, bucket.space, bucket.epoch)
        assert contents(back) == contents(bucket)
        assert back.latest.tolist() == bucket.latest.tolist()
        assert set(contents(bucket).values()) <= {1}


@given(st.integers(0, 2**32), st.integers(2, 60), st.booleans())
def test_parts_merge_to_the_whole(seed: int, length: int, both: bool) -> None:
    live = queries(both)
    rows = random_rows(random.Random(seed), length)
    whole = buckets_of(live, rows)
    parts = [bucket for part in (rows[: length // 2], rows[length // 2 :]) for bucket in buckets_of(live, part)]
    if not whole:
        return
    (expected,) = whole
    cells = None
    if isinstance(expected.cells, LineCells):
        cells = expected.cells
        truths = [truth for query in live.by_slot.values() for truth in predicate_of(query).truths.values()]
        assert cells == LineCells(tuple(sorted({b for truth in truths for b in truth.boundaries})))
    merged = merge_buckets(parts, [np.ones(len(b.slices), dtype=np.bool_) for b in parts], cells)
    assert contents(merged) == contents(expected)
    for (start, end), latest in zip(merged.slices.tolist(), merged.latest.tolist(), strict=True):
        assert latest == max(
            int(newest)
            for part in parts
            for edges, newest in zip(part.slices.tolist(), part.latest, strict=True)
            if edges == [start, end]
        )


@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_far_apart_entries_are_those_that_lie_together(seed: int, length: int, both: bool) -> None:
    live = queries(both)
    rows = random_rows(random.Random(seed), length, 1000)
    dense = buckets_of(live, rows)
    sparse = buckets_with(live, rows, _ALWAYS_DENSE=0, _DENSE_PER_TUPLE=0, _MIN_GROUP=0, _MAX_ALONE=0)
    assert [contents(bucket) for bucket in sparse] == [contents(bucket) for bucket in dense]


FULL_ALWAYS, FULL_NEVER = -1.0, 2.0


# with these, counts and sums are packed into 32 bits
PACKED = {"_ALWAYS_DENSE": 0, "_DENSE_PER_TUPLE": 10**9, "_MIN_GROUP": 0.0, "_MAX_ALONE": 0}


def mixed_queries(rng: random.Random) -> LiveQueries:
    """Queries over one column of which some add up only and others ask for extremes, too."""
    sums = [COUNT_ALL, Measure("count", S), *(Measure(way, V) for way in ("sum", "stddev_samp", "count"))]
    extremes = [Measure("min", S), Measure("max", V)]

    def query(measures: list[Measure]) -> Aggregation:
        where = rng.choice(
            [compare(V, rng.choice(["<", ">", "="]), rng.randint(-3, 3)), Call("is_null", (V,), BOOLEAN)]
        )
        return aggregation(where, (K,), measures=tuple(measures))

    adding = [query(rng.sample(sums, rng.randint(1, 3))) for _ in range(rng.randint(1, 4))]
    asking = [
        query(rng.sample(sums, rng.randint(0, 3)) + rng.sample(extremes, rng.randint(1, 2)))
        for _ in range(rng.randint(1, 3))
    ]
    return live_of(*adding, *asking)


@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_sums_beside_extremes_are_the_same_from_finer_cells(seed: int, length: int, packed: bool) -> None:
    rng = random.Random(seed)
    live, rows = mixed_queries(rng), random_rows(rng, length)
    limits: dict[str, float] = PACKED if packed else {}
    apart = buckets_with(live, rows, **limits, _FEW_BOUNDARIES=-1, _MORE_BOUNDARIES=-1)
    found = buckets_with(live, rows, **limits)
    with_extremes = [[bucket for bucket in each if bucket.space.has_extremes] for each in (apart, found)]
    assert len(with_extremes[0]) == len(with_extremes[1])
    for expected, bucket in zip(*with_extremes, strict=True):
        assert bucket.components.keys() == expected.components.keys()
        assert bucket.cells == expected.cells  # a full bucket has slices without tuples, too
        assert bucket.keys.equals(expected.keys)
        assert by_entry(bucket) == by_entry(expected)


def by_entry(bucket: Bucket) -> dict[tuple[Any, ...], list[Any]]:
    """Return all numbers of each entry with tuples, by its slice, cell and key."""
    slices = np.repeat(bucket.slices, np.diff(bucket.starts), axis=0)
    places = np.column_stack([slices, bucket.cell, bucket.key]).tolist()
    numbers = {name: bucket.component(name).tolist() for name in sorted(bucket.components)}
    return {
        tuple(place): [each[i] for each in numbers.values()] for i, place in enumerate(places) if numbers["count(*)"][i]
    }


@given(st.integers(0, 2**32), st.integers(2, 60), st.booleans(), st.booleans())
def test_full_buckets_hold_what_listed_ones_do(seed: int, length: int, both: bool, packed: bool) -> None:
    rng = random.Random(seed)
    live, rows = queries(both), random_rows(rng, length)
    limits: dict[str, float] = PACKED if packed else {}
    listed = buckets_with(live, rows, **limits, FULL=FULL_NEVER)
    full = buckets_with(live, rows, **limits, FULL=FULL_ALWAYS)
    assert all(bucket.is_full for bucket in full)
    assert all(isinstance(bucket.components, WithPacked) == packed for bucket in full)
    assert not any(bucket.is_full for bucket in listed)
    assert [contents(Bucket.deserialize(bucket.serialize())) for bucket in full] == [contents(b) for b in listed]
    if not listed:
        return
    parts = [
        bucket
        for part in (rows[: length // 2], rows[length // 2 :])
        for bucket in buckets_with(live, part, **limits, FULL=rng.choice([FULL_ALWAYS, FULL_NEVER]))
    ]
    (expected,) = listed
    cells = expected.cells if isinstance(expected.cells, LineCells) else None
    for share, dense in itertools.product((FULL_ALWAYS, FULL_NEVER), (0, 8)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(merging, "FULL", share)
            patch.setattr(merging, "_DENSE_PER_ENTRY", dense)
            merged = merge_buckets(parts, [np.ones(len(b.slices), dtype=np.bool_) for b in parts], cells)
        assert contents(merged) == contents(expected)
        assert not (merged.is_full and share == FULL_NEVER)


@pytest.mark.parametrize(("values", "full"), [(10, True), (10_000, False)])
def test_buckets_are_full_where_most_cells_have_tuples_of_most_keys(values: int, full: bool) -> None:
    rng = random.Random(3)
    rows = [{"k": rng.randrange(20), "v": 1 + rng.randrange(values), "s": None, "t": 1} for _ in range(2_000)]
    live = live_of(
        *(aggregation(compare(V, ">", c), (K,), measures=(COUNT_ALL,)) for c in range(0, values, values // 10))
    )
    (bucket,) = buckets_of(
        live, [*rows, *({"k": k, "v": 1, "s": None, "t": 1} for k in range(20, 20 if full else 5000))]
    )
    assert bucket.is_full == full
    assert int(bucket.component("count(*)").sum()) == len(rows) + (0 if full else 4980)


def test_buckets_that_wait_travel_as_one() -> None:
    rng = random.Random(3)
    live, held = queries(False), BatchCombiner()
    rows = random_rows(rng, 90)
    travelling = [
        each
        for first in range(0, 90, 30)
        for bucket in buckets_with(live, rows[first : first + 30], FULL=FULL_ALWAYS)
        for each in held.take(0, bucket)
    ]
    assert not travelling
    ((group, one),) = held.release()
    (expected,) = buckets_of(live, rows)
    assert (group, contents(one)) == (0, contents(expected))
    assert not list(held.release())
    listed = buckets_with(live, rows, FULL=FULL_NEVER)
    assert [bucket for each in listed for _, bucket in held.take(0, each)] == listed


@pytest.mark.parametrize(
    ("last", "times", "packed"),
    [
        pytest.param({}, 1, True, id="alike"),
        pytest.param({"v": 2**40}, 1, False, id="numbers far apart"),
        pytest.param({"k": 5}, 1, False, id="another key"),
        pytest.param({}, 60, False, id="no room for all together"),
    ],
)
def test_packed_sums_that_wait_are_added_up_as_they_are(last: dict[str, Any], times: int, packed: bool) -> None:
    live, held = (
        live_of(aggregation(compare(V, ">", 0), (K,), measures=(COUNT_ALL, Measure("sum", V)))),
        BatchCombiner(),
    )
    # numbers below 2 ** 16 leave 8 bits for counts
    rows = [{"k": key, "v": value, "s": None, "t": 1} for key in (1, 2) for value in (0, 1, 60_000)] * times
    later, others = [row | {"t": 2} for row in rows], [row | last for row in rows]
    for part in (rows, rows, later, others):
        for bucket in buckets_with(live, part, **PACKED, FULL=FULL_ALWAYS):
            assert isinstance(bucket.components, WithPacked)
            assert not list(held.take(0, bucket))
    ((_, one),) = held.release()
    assert isinstance(one.components, WithPacked) == packed
    found = Counter[tuple[int, str]]()
    numbers = (one.component(name).tolist() for name in ("count(*)", "sum(v)"))
    keys = one.keys.column(0).to_pylist()
    for place, (count, total) in enumerate(zip(*numbers, strict=True)):
        if one.cell[place] == 1:
            found[keys[one.key[place]], "count"] += count
            found[keys[one.key[place]], "sum"] += total
    expected = Counter[tuple[int, str]]()
    for row in (*rows, *rows, *later, *others):
        if row["v"] > 0:
            expected[row["k"], "count"] += 1
            expected[row["k"], "sum"] += row["v"]
    assert +found == expected


@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_a_list_of_tuples_adds_up_to_their_groups(seed: int, length: int, both: bool) -> None:
    live = queries(both)
    rows = random_rows(random.Random(seed), length, 1000)
    grouped = buckets_of(live, rows)
    listed = buckets_with(live, rows, _ALWAYS_DENSE=0, _MIN_GROUP=np.inf, _MAX_ALONE=0)
    assert len(listed) == len(grouped)
    for one_by_one, group in zip(listed, grouped, strict=True):
        assert one_by_one.entries == int(group.component("count(*)").sum())
        assert (np.diff(one_by_one.starts) > 0).all()
        cells = group.cells if isinstance(group.cells, LineCells) else None
        everything = np.ones(len(one_by_one.slices), dtype=np.bool_)
        back = Bucket.deserialize(one_by_one.serialize())
        assert contents(merge_buckets([back], [everything], cells)) == contents(group)


@pytest.mark.parametrize(("alike", "listed"), [(0.0, True), (0.9, False)])
def test_tuples_are_listed_where_hardly_two_are_alike(alike: float, listed: bool) -> None:
    rng = random.Random(3)
    same = {"k": 7, "v": 7, "s": None, "t": 1}
    rows = [
        same if rng.random() < alike else same | {"k": rng.randrange(1000), "v": rng.randrange(1, 1000)}
        for _ in range(20_000)
    ]
    live = live_of(*(aggregation(compare(V, ">", c), (K,), measures=(COUNT_ALL,)) for c in range(999)))
    (bucket,) = buckets_of(live, rows)
    assert int(bucket.component("count(*)").sum()) == len(rows)
    assert (bucket.entries == len(rows)) == listed


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 50))
def test_queries_added_up_alone_have_the_same_tuples(seed: int, length: int, at_once: int) -> None:
    live = queries(True)
    rows = random_rows(random.Random(seed), length, 1000)
    together = buckets_of(live, rows)
    alone = buckets_with(live, rows, _ALWAYS_DENSE=0, _DENSE_PER_TUPLE=0, _PLACES_AT_ONCE=at_once)

    def by_query(buckets: list[Bucket]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for bucket in buckets:
            for (start, end, query_sets, key, _, *numbers), times in contents(bucket).items():
                for slot in range(len(live.by_slot)):
                    if query_sets[0] >> slot & 1:
                        for name, number in zip(("n", "sum", "texts"), numbers, strict=True):
                            found[start, end, slot, key, name] += number * times
        return found

    assert by_query(alone) == by_query(together)
    for bucket in alone:
        assert isinstance(bucket.cells, SetCells)
        assert all(int(words[0]).bit_count() == 1 for words in bucket.cells.query_sets)


@pytest.mark.parametrize("large", [False, True])
def test_through_the_store(tmp_path: object, large: bool) -> None:
    storage = Storage(str(tmp_path))
    rows = [{"k": 1, "v": 3, "s": "x" * (INLINE_BYTES if large else 1), "t": 5}]
    (bucket,) = buckets_of(queries(False), rows)
    path, data = put_bucket(storage, 12, bucket)
    assert bool(path) == large
    assert bool(data) != large
    assert contents(Bucket.deserialize(get_payload(storage, path, data))) == contents(bucket)
    assert storage.names("buckets") == ([path.removeprefix("buckets/")] if large else [])


@pytest.mark.parametrize("length", [0, 1, 4096])
def test_a_bucket_whose_file_is_cut_while_it_is_in_use_is_what_it_was(tmp_path: Path, length: int) -> None:
    """What is cut under a map would end the process."""
    storage = Storage(str(tmp_path))
    (bucket,) = buckets_of(queries(False), [{"k": 1, "v": 3, "s": "x" * INLINE_BYTES, "t": 5}])
    path, _ = put_bucket(storage, 12, bucket)
    in_use = Bucket.deserialize(get_payload(storage, path, b""))
    os.truncate(tmp_path / path, length)
    assert contents(in_use) == contents(bucket)
    with pytest.raises(CorruptData, match=f"The file {path} must hold what was written"):
        get_payload(storage, path, b"")
