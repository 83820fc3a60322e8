"""Query runs: queries that are added up each alone hold what they hold in cells, however their entries are found."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators.aggregation import alone_entries, alone_windows
from braid.operators.state.query_runs import QueryRuns, read_bucket
from braid.operators.stream_operators import StreamOperators
from braid.operators.windows import Window
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.operators import pipeline
from tests.operators.pipeline import STREAM, K, Pipeline, V, aggregation, batch_of, changelog, compare, live_of
from tests.operators.test_shared_aggregation import random_query, random_tuples


def rows_of(folder: Path, is_alone: bool, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    queries = [random_query(rng) for _ in range(6)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "is_alone", lambda _: is_alone)
        data = Pipeline(Storage(str(folder)))
        time = 0
        for number in range(6):
            created = [(f"q{i}", i, query) for i, query in enumerate(queries)] if number == 1 else []
            tuples, time = random_tuples(rng, time)
            data.run(tuples, [changelog(1, created)] if created else [])
    return {name: sorted(map(repr, rows)) for name, rows in data.rows.items()}


PATHS = [
    {},
    {"_SPARSE": 0},  # no entries are numbered first
    {"_SPARSE": 1 << 40},  # all are
    {"_ALWAYS_DENSE": 0, "_DENSE_PER_TUPLE": 0},  # only places that occur have an address
]


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(PATHS), st.booleans())
def test_queries_alone_have_the_rows_that_they_have_in_cells(
    tmp_path_factory: pytest.TempPathFactory, seed: int, path: dict[str, int], few_at_once: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in path.items():
            patch.setattr(alone_entries, name, value)
        if few_at_once:
            patch.setattr(alone_windows, "_MAX_ENTRIES", 1)
            patch.setattr(alone_windows, "_ALWAYS_DENSE", 0)
            patch.setattr(alone_windows, "_DENSE_PER_ENTRY", 0)
            patch.setattr(partition, "MAX_ENTRIES", 2)
        got = rows_of(tmp_path_factory.mktemp("alone"), True, seed)
    assert got == rows_of(tmp_path_factory.mktemp("cells"), False, seed)


def test_what_is_serialized_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "is_alone", lambda _: True)
    live = live_of(aggregation(compare(V, ">", 2)), aggregation(compare(V, ">", 100)), aggregation(measures=()))
    rows = [{"k": k % 3, "v": k, "s": "ab"[k % 2], "t": k} for k in range(25)]
    for _, runs in StreamOperators(live, STREAM, 2).process(batch_of(rows), None).buckets:
        assert isinstance(runs, QueryRuns)
        read = read_bucket(runs.serialize())
        assert isinstance(read, QueryRuns)
        assert (read.operator, read.epoch, read.entries) == (runs.operator, runs.epoch, runs.entries)
        for name in ("slots", "slices", "latest", "starts", "key"):
            assert getattr(read, name).tolist() == getattr(runs, name).tolist()
        assert {n: c.tolist() for n, c in read.components.items()} == {
            n: c.tolist() for n, c in runs.components.items()
        }
        assert {n: h.tolist() for n, h in read.holders.items()} == {n: h.tolist() for n, h in runs.holders.items()}
        assert read.keys.equals(runs.keys)
        assert {n: d.to_pylist() for n, d in read.dictionaries.items()} == {
            n: d.to_pylist() for n, d in runs.dictionaries.items()
        }


def test_merged_runs_do_not_grow_with_the_number_of_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "is_alone", lambda _: True)
    monkeypatch.setattr(partition, "MAX_ENTRIES", 4)
    data, sizes = Pipeline(Storage(str(tmp_path))), []
    created = [(f"q{i}", i, aggregation(compare(V, ">", i), (K,), Window(10**9, 10**9))) for i in range(12)]
    for number in range(400):
        rng = random.Random(number)
        rows = [{"k": rng.randint(0, 1), "v": rng.randint(0, 13), "s": "a", "t": number} for _ in range(3)]
        data.run(rows, [changelog(1, created, capacity=12)] if number == 0 else [])
        sizes.append(sum(part.bytes for part in data.partitions))
    merged_only = [min(sizes[first : first + 100]) for first in (100, 200, 300)]
    assert len(set(merged_only)) == 1, "all keys of all queries have come by then"
