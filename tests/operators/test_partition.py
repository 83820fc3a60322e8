"""Partitions: what is durable is enough, merging changes nothing, files go when no replay can need them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators.expressions import Call
from braid.operators.partition import Partition
from braid.operators.state import bucket_store
from braid.operators.state.partition_state import Payload
from braid.operators.stream_operators import StreamOperators
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windows import EMIT_AFTER_WATERMARK, Emit, Window
from braid.sources.core.schema import BOOLEAN
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.operators.pipeline import (
    MEASURES,
    STREAM,
    K,
    MemoryState,
    Pipeline,
    S,
    V,
    aggregation,
    batch_of,
    changelog,
    compare,
    live_of,
)


@contextmanager
def setting(module: Any, name: str, value: int) -> Iterator[None]:
    """Change a constant for a while, also within one Hypothesis example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, value)
        yield


QUERIES = [
    aggregation(None, (K,), Window(200, 50)),
    aggregation(compare(V, ">", 2), (K,), Window(70, 70, 3)),
    aggregation(Call("and", (compare(V, ">", 1), compare(K, "<", 2)), BOOLEAN), (K,), Window(300, 300)),
    aggregation(Call("and", (compare(V, "<", 4), compare(S, "=", "a")), BOOLEAN), (S, K), Window(120, 40)),
]


def run(storage: Storage, seed: int, batches: int, workers: Callable[[int], list[Partition]] | None = None) -> Pipeline:
    """Run random batches; queries come one by one, so buckets are of several epochs.

    ``workers`` gives the partitions that run a batch, with whatever they still remember.
    """
    rng = random.Random(seed)
    pipeline = Pipeline(storage)
    for number in range(batches):
        rows = [
            {
                "k": rng.randint(0, 3),
                "v": rng.randint(0, 5),
                "s": rng.choice("ab"),
                "t": 10 * number + rng.randint(0, 9),
            }
            for _ in range(6)
        ]
        changes = []
        if number < len(QUERIES):
            changes = [changelog(number + 1, [(f"q{number}", number, QUERIES[number])], capacity=number + 1)]
        if workers is not None:
            pipeline.partitions = workers(number)
        pipeline.run(rows, changes)
    pipeline.run([{"k": 0, "v": 0, "s": "a", "t": 10 * batches + 1000}])
    return pipeline


def rows_of(pipeline: Pipeline) -> dict[str, list[str]]:
    assert set(pipeline.rows) == {f"q{i}" for i in range(len(QUERIES))}
    return {name: sorted(map(repr, rows)) for name, rows in pipeline.rows.items()}


@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_restart_before_every_batch_changes_nothing(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    lasting = run(Storage(str(folder / "a")), seed, 12)
    storage = Storage(str(folder / "b"))
    with setting(bucket_store, "INLINE_BYTES", 0), setting(partition, "MAX_ENTRIES", 3):
        restarted = run(storage, seed, 12, lambda _: [Partition(storage), Partition(storage)])
    assert rows_of(restarted) == rows_of(lasting)


@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_workers_that_take_turns_forget_what_others_dropped(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("data")
    lasting = run(Storage(str(folder / "a")), seed, 20)
    storage, rng = Storage(str(folder / "b")), random.Random(seed)
    pairs = [[Partition(storage), Partition(storage)] for _ in range(2)]
    with setting(partition, "MAX_ENTRIES", 3):
        turns = run(storage, seed, 20, lambda _: rng.choice(pairs))
    assert rows_of(turns) == rows_of(lasting)


@settings(max_examples=examples(3), deadline=None)
@given(seed=st.integers(0, 2**32), most=st.integers(1, 4))
def test_merging_changes_nothing(seed: int, most: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    apart = run(Storage(str(folder / "a")), seed, 15)
    with setting(partition, "MAX_ENTRIES", most):
        merged = run(Storage(str(folder / "b")), seed, 15)
    assert rows_of(merged) == rows_of(apart)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_merged_entries_do_not_grow_with_the_number_of_batches(tmp_path: Path, dimensions: int) -> None:
    """A long window's state follows from its slices, keys and cells, however many batches brought them."""
    pipeline = Pipeline(Storage(str(tmp_path)))
    tests = [(compare(V, ">", i), compare(K, "<", 2))[:dimensions] for i in range(12)]
    wheres = [Call("and", parts, BOOLEAN) for parts in tests]
    created = [(f"q{i}", i, aggregation(w, (K,), Window(10**9, 10**9))) for i, w in enumerate(wheres)]
    sizes = []
    with setting(partition, "MAX_ENTRIES", 4):
        for number in range(300):
            rng = random.Random(number)
            rows = [{"k": rng.randint(0, 1), "v": rng.randint(0, 13), "s": "a", "t": number} for _ in range(3)]
            pipeline.run(rows, [changelog(1, created, capacity=12)] if number == 0 else [])
            sizes.append(sum(part.bytes for part in pipeline.partitions))
            assert all(len(state.data) <= 1 + 5 for state in pipeline.states)
    assert max(sizes[200:]) <= max(sizes[:60])


def test_the_constant_number_of_entries_is_kept(tmp_path: Path) -> None:
    pipeline = Pipeline(Storage(str(tmp_path)))
    created = [("q", 0, aggregation(None, (), Window(10**9, 10**9), MEASURES[:1]))]
    for number in range(partition.MAX_ENTRIES + 3):
        pipeline.run([{"t": number}], [changelog(1, created)] if number == 0 else [])
    (used,) = [state for state in pipeline.states if state.data]
    assert len(used.data) == 1 + 3, "one merged entry, two after it, and the head"


def test_state_is_bounded_over_500_batches(tmp_path: Path) -> None:
    pipeline = Pipeline(Storage(str(tmp_path)))
    largest = []
    with setting(bucket_store, "INLINE_BYTES", 0):
        for number in range(500):
            created = [("q", 0, aggregation(compare(V, ">", 1), (K,), Window(60, 20)))]
            rows = [{"k": number % 3, "v": 2, "t": 10 * number}]
            pipeline.run(rows, [changelog(1, created)] if number == 0 else [])
            held = sum(len(value) for state in pipeline.states for value in state.data.values())
            largest.append((held, len(pipeline.storage.names("buckets"))))
    assert max(size for size, _ in largest[100:]) <= 1.02 * max(size for size, _ in largest[:100]), "but for digits"
    assert max(files for _, files in largest[100:]) <= max(files for _, files in largest[:100])
    assert sum(row[3] for row in pipeline.rows["q"]) >= 3 * 490, "each tuple is in three windows"


def advance(
    part: Partition,
    seq: int,
    rows: list[dict[str, Any]],
    before: int | None,
    after: int | None,
    state: MemoryState,
    emit: Emit = EMIT_AFTER_WATERMARK,
) -> list[FiredBlock]:
    """Run one batch of one partition with one tumbling query."""
    live = live_of(aggregation(window=Window(10, 10), emit=emit, shown=MEASURES[:1]))
    buckets = StreamOperators(live, STREAM, 1).process(batch_of(rows), before).buckets
    payloads = [Payload(*bucket_store.put_bucket(part._storage, seq, bucket)) for _, bucket in buckets]
    blocks = part.advance(seq, payloads, live, {STREAM.id: before}, {STREAM.id: after}, state)
    return [block for block in blocks if isinstance(block, FiredBlock)]


@pytest.mark.parametrize("brought_in", [1, 2])
def test_files_are_deleted_two_batches_after_they_were_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brought_in: int
) -> None:
    """Also when the partition's very first batch brings and drops a file, so that no entry remains."""
    monkeypatch.setattr(bucket_store, "INLINE_BYTES", 0)
    storage, state = Storage(str(tmp_path)), MemoryState()
    part = Partition(storage)
    files = []
    for seq in range(1, 6):
        rows = [{"k": 1, "v": 1, "s": "a", "t": 5}] if seq == brought_in else []
        fired = advance(part, seq, rows, None if seq <= brought_in else 10, 10 if seq >= brought_in else None, state)
        assert bool(fired) == (seq == brought_in)
        files.append(len(storage.names("buckets")))
    kept = [1 if brought_in <= seq < brought_in + 2 else 0 for seq in range(1, 6)]
    assert files == kept
    assert set(state.data) == {"head"}


def test_a_failed_attempt_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state goes back, the cache of the worker does not."""
    monkeypatch.setattr(partition, "MAX_ENTRIES", 1)
    storage, state = Storage(str(tmp_path)), MemoryState()
    part = Partition(storage)
    row = {"k": 1, "v": 1, "s": "a", "t": 5}
    advance(part, 1, [row], None, 0, state)
    attempt = state.copy()
    advance(part, 2, [row, row], 0, 5, attempt)
    advance(part, 2, [row, row], 0, 5, state)
    assert set(state.data) == set(attempt.data)
    fired = advance(part, 3, [], 5, 10, state)
    (block,) = fired
    windows = block.fired
    assert windows.table["count(*)"].to_pylist() == [3]


def test_an_attempt_that_was_made_again_elsewhere_is_forgotten(tmp_path: Path) -> None:
    """Attempts may differ: a stream that could not be read in one could be in the other."""
    storage, state = Storage(str(tmp_path)), MemoryState()
    one, other = Partition(storage), Partition(storage)
    row = {"k": 1, "v": 1, "s": "a", "t": 5}
    advance(one, 1, [row], None, 0, state)
    advance(one, 2, [row], 0, 5, state.copy())
    advance(other, 2, [row, row], 0, 5, state)
    fired = advance(one, 3, [], 5, 10, state)
    (block,) = fired
    windows = block.fired
    assert windows.table["count(*)"].to_pylist() == [3]


def test_what_an_attempt_told_that_was_made_again_elsewhere_is_forgotten(tmp_path: Path) -> None:
    storage, state, changes = Storage(str(tmp_path)), MemoryState(), Emit(stream=True, after_watermark=False)
    one, other = Partition(storage), Partition(storage)
    row = {"k": 1, "v": 1, "s": "a", "t": 5}
    advance(one, 1, [row], None, 0, state.copy(), changes)
    advance(other, 1, [row, row], None, 0, state, changes)
    (block,) = advance(one, 2, [row], 0, 5, state, changes)
    told = block.fired
    assert told.table.select(["_op", "count(*)"]).to_pylist() == [
        {"_op": "retract", "count(*)": 2},
        {"_op": "insert", "count(*)": 3},
    ]


def test_an_idle_partition_writes_nothing(tmp_path: Path) -> None:
    part, state = Partition(Storage(str(tmp_path))), MemoryState()
    advance(part, 1, [], None, None, state)
    advance(part, 2, [], None, 10, state)
    assert state.data == {}


def test_entries_of_an_operator_without_queries_go_at_once(tmp_path: Path) -> None:
    pipeline = Pipeline(Storage(str(tmp_path)))
    query = ("q", 0, aggregation())
    pipeline.run([{"k": 1, "t": 5}], [changelog(1, [query])])
    assert any(len(state.data) == 2 for state in pipeline.states)
    pipeline.run([], [changelog(2, [], [("q", 0)], [("q", 0)])])
    assert all(len(state.data) <= 1 for state in pipeline.states)


def test_windows_wait_for_the_watermark_not_for_the_clock(tmp_path: Path) -> None:
    pipeline = Pipeline(Storage(str(tmp_path)))
    pipeline.run([{"k": 1, "t": 5}], [changelog(1, [("q", 0, aggregation())])])
    pipeline.run([{"k": 1, "t": 24}, {"k": 1, "t": 8}])  # lateness is 15: the watermark stands at 9
    assert pipeline.rows == {}
    pipeline.run([{"k": 1, "t": 25}, {"k": 1, "t": 9}])
    assert [row[:4] for row in pipeline.rows["q"]] == [(0, 10, (1,), 3)]
