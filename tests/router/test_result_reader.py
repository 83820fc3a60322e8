"""Pages of results: every row of a query once, in order, whatever the sizes of pages, blocks and restarts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.expressions import Call, Column
from braid.operators.queries import Aggregation, Query, Selection
from braid.operators.query_parts import COUNT_ALL, Measure, Output
from braid.operators.windows import Emit, Window
from braid.router import batch_index, result_reader
from braid.router.batch_index import BatchIndex
from braid.router.deployment import Deployment
from braid.router.result_reader import ResultReader
from braid.sources.core.errors import MalformedRequest
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.router.batches import SECOND, BatchWriter

STREAM = "s-1"
N = Column("n", BIGINT)
SELECTION = Selection(STREAM, None, (Output("n", N), Output("twice", Call("+", (N, N), BIGINT))))
SUM = Measure("sum", N)
AGGREGATION = Aggregation(
    stream=STREAM,
    window=Window(4 * SECOND, 2 * SECOND),
    where=None,
    keys=(Column("name", VARCHAR), N),
    measures=(COUNT_ALL, SUM),
    outputs=(
        Output("window_start", Column("window_start", TIMESTAMP)),
        Output("window_end", Column("window_end", TIMESTAMP)),
        Output("name", Column("key0", VARCHAR)),
        Output("total", Column(SUM.name, BIGINT)),
    ),
)


@dataclass
class Deployed:
    """A query as the reader sees it."""

    slot: int | None
    epoch: int | None
    freed_epoch: int | None = None
    query: Query = SELECTION
    id: str = "q-1"
    active_from: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """What the reader asks for."""
        if self.slot is None or self.epoch is None:
            return ()
        return (Deployment(self.slot, self.epoch, 1, self.active_from, freed_epoch=self.freed_epoch),)


def read_all(reader: ResultReader, deployed: Deployed, limit: int) -> list[dict[str, Any]]:
    """Read page by page until there is no more; checks the cursors of single rows on the way."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = reader.read(deployed, cursor, limit)
        assert page.table.num_rows <= limit
        cursors = list(page.cursors())
        assert len(cursors) == page.table.num_rows
        if cursors and page.has_more:
            following = reader.read(deployed, cursors[-1], 1).table
            assert following == reader.read(deployed, page.cursor, 1).table
        rows += page.table.to_pylist()
        cursor = page.cursor
        if not page.has_more:
            assert not reader.has_news(deployed, cursor)
            assert reader.read(deployed, cursor, limit).table.num_rows == 0
            return rows
        assert page.table.num_rows == limit
        assert reader.has_news(deployed, cursor)


BATCHES = st.lists(
    st.tuples(
        st.integers(0, 2),  # epochs forward
        st.lists(  # blocks: tuples with the slots each belongs to
            st.lists(st.tuples(st.integers(0, 99), st.sets(st.sampled_from([0, 1, 63, 64, 70]))), max_size=8),
            max_size=3,
        ),
    ),
    max_size=12,
)


@settings(max_examples=examples(25), deadline=None)
@given(
    BATCHES,
    st.integers(1, 7),
    st.sampled_from([1, 3, None]),
    st.integers(0, 6),
    st.integers(1, 9),
    st.booleans(),
)
def test_selection_pages_are_the_rows_of_the_slot_between_its_epochs(
    batches: list[Any], limit: int, chunk: int | None, epoch: int, lived: int, restarted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # small, so that summaries and records read again take part
        patch.setattr(batch_index, "RECENT_RECORDS", 3)
        patch.setattr(batch_index, "STRETCH", 2)
        storage = Storage(folder)
        writer, reader = BatchWriter(storage), ResultReader(storage)
        expected: dict[int, list[int]] = {slot: [] for slot in (0, 1, 63, 64, 70, 200)}
        for forward, blocks in batches:
            at = writer.epoch + forward
            entries = []
            for block in blocks:
                tuples = pa.table({"n": pa.array([n for n, _ in block], pa.int64())})
                entries.append(writer.selection(STREAM, tuples, [slots for _, slots in block], chunk))
                if epoch <= at < epoch + lived:
                    for slot, rows in expected.items():
                        rows += [n for n, slots in block if slot in slots]
            reader.absorb(writer.commit(at, results=entries))
        if restarted:
            reader = ResultReader(storage, BatchIndex(RecordLog(storage, "batches"), writer.seq))
        for slot, numbers in expected.items():
            deployed = Deployed(slot, epoch, epoch + lived)
            assert read_all(reader, deployed, limit) == [{"n": n, "twice": 2 * n} for n in numbers]
            last = reader.read(deployed, reader.before_last(deployed, limit), 1000).table
            assert last["n"].to_pylist() == numbers[-limit:]
            assert reader.read(deployed, reader.before_last(deployed, 0), 1000).table.num_rows == 0


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 300), max_size=8), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(1, 2000),
    st.integers(1, 4),
)
def test_pages_end_at_their_bytes_and_have_each_row_once(
    batches: list[list[int]], limit: int, page_bytes: int, first_rows: int
) -> None:
    text = Call("repeat", (Column("s", VARCHAR), N), VARCHAR)
    query = Selection(STREAM, None, (Output("text", text), Output("n", N)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_reader, "FIRST_ROWS", first_rows)
        storage = Storage(folder)
        writer, reader = BatchWriter(storage), ResultReader(storage, page_bytes=page_bytes)
        for numbers in batches:
            tuples = pa.table({"s": pa.array(["x"] * len(numbers)), "n": pa.array(numbers, pa.int64())})
            reader.absorb(writer.commit(1, results=[writer.selection(STREAM, tuples, [{0}] * len(numbers))]))
        deployed, cursor, rows = Deployed(0, 1, query=query), None, list[int]()
        while True:
            page = reader.read(deployed, cursor, limit)
            lengths = page.table["text"].to_pylist()
            assert list(map(len, lengths)) == page.table["n"].to_pylist()
            rows += page.table["n"].to_pylist()
            assert page.table.num_rows <= 1 or page.table.slice(0, page.table.num_rows - 1).nbytes <= 2 * page_bytes
            for count in range(1, page.table.num_rows):
                cut = page.first(count)
                assert cut.has_more
                assert cut.table.num_rows == sum(run for _, _, run in cut.runs) == count
                assert cut.cursor == list(page.cursors())[count - 1]
                assert cut.completed.keys() <= page.completed.keys()
            cursor = page.cursor
            if not page.has_more:
                break
            assert page.table.num_rows
        assert rows == [n for numbers in batches for n in numbers]


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 99), max_size=4)), max_size=20),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_pages_have_the_rows_of_all_deployments_whatever_slot_they_had(
    batches: list[Any], stretches: list[tuple[int, int, int]], limit: int
) -> None:
    """Other queries have the slots before, after and in between; cursors are read on as more comes."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_index, "RECENT_RECORDS", 3)
        patch.setattr(batch_index, "STRETCH", 2)
        storage = Storage(folder)
        writer, reader = BatchWriter(storage), ResultReader(storage)
        deployments, at = [], 0
        for length, pause, slot in stretches:
            at += pause
            deployments.append(Deployment(slot, at, 0, {}, freed_epoch=at + length))
            at += length
        expected: list[int] = []
        followed: list[int] = []
        cursor = None
        first_of: dict[int, int] = {}
        for forward, numbers in batches:
            epoch = writer.epoch + forward
            for deployment in deployments:
                if epoch >= deployment.epoch:
                    first_of.setdefault(deployment.epoch, writer.seq + 1)
            members = [{n % 2} for n in numbers]
            blocks = [writer.selection(STREAM, pa.table({"n": pa.array(numbers, pa.int64())}), members)]
            reader.absorb(writer.commit(epoch, results=blocks if numbers else []))
            slots = {deployment.slot for deployment in deployments if deployment.holds_slot_at(epoch)}
            expected += [n for n in numbers if n % 2 in slots]
            begun = tuple(replace(d, first_seq=first_of[d.epoch]) for d in deployments if d.epoch in first_of)
            page = reader.read(Stretches(begun), cursor, limit)
            followed += page.table["n"].to_pylist()
            cursor = page.cursor
            assert page.has_more == (len(followed) < len(expected)) == reader.has_news(Stretches(begun), cursor)
        assert followed == expected[: len(followed)]
        begun = tuple(replace(d, first_seq=first_of[d.epoch]) for d in deployments if d.epoch in first_of)
        again = ResultReader(storage, BatchIndex(RecordLog(storage, "batches"), writer.seq))
        assert again.read(Stretches(begun), None, 10_000).table["n"].to_pylist() == expected
        last = again.read(Stretches(begun), again.before_last(Stretches(begun), limit), 10_000).table
        assert last["n"].to_pylist() == expected[-limit:]


@dataclass
class Stretches:
    """A query with some deployments."""

    deployments: tuple[Deployment, ...]
    query: Query = SELECTION
    id: str = "q-1"


WINDOW_ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 2, 65]),  # slot
        st.integers(-2, 3),  # window
        st.one_of(st.none(), st.sampled_from(["a", "b", "é"])),  # key0
        st.one_of(st.none(), st.integers(-2, 2)),  # key1
        st.integers(-(2**40), 2**40),
    ),
    max_size=20,
    unique_by=lambda row: row[:4],
)


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(WINDOW_ROWS, max_size=5),
    st.integers(1, 6),
    st.sampled_from([2, None]),
    st.one_of(st.none(), st.integers(-4, 8)),
    st.data(),
)
def test_aggregation_pages_come_in_order_of_windows_and_keys(
    batches: list[Any], limit: int, chunk: int | None, active_from: int | None, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        writer, reader = BatchWriter(storage), ResultReader(storage)
        expected: dict[int, list[Any]] = {0: [], 2: [], 65: []}
        for rows in batches:
            parts = [data.draw(st.integers(0, 2)) for _ in rows]  # key groups: each row in one block
            blocks = [[row for row, part in zip(rows, parts, strict=True) if part == i] for i in range(3)]
            tables = [window_table(b) if data.draw(st.booleans()) else with_other_measure(b) for b in blocks]
            reader.absorb(writer.commit(1, results=[writer.aggregation(STREAM, table, chunk) for table in tables]))
            for slot, slot_rows in expected.items():
                new_rows = [row for row in rows if row[0] == slot]
                slot_rows += sorted(new_rows, key=lambda r: (r[1], r[2] is None, r[2] or "", r[3] is None, r[3] or 0))
        for slot, slot_rows in expected.items():
            since = None if active_from is None else active_from * SECOND
            rows_read = read_all(reader, Deployed(slot, 1, query=AGGREGATION, active_from={STREAM: since}), limit)
            assert [(r["window_start"], r["name"], r["total"], r["_partial"]) for r in rows_read] == [
                (
                    np.datetime64(k * 2, "s").item(),
                    name,
                    total,
                    active_from is not None and k * 2 <= active_from,
                )
                for _, k, name, _, total in slot_rows
            ]


def window_table(rows: list[Any]) -> pa.Table:
    """Return the columns of an aggregation block."""
    start = pa.array([2 * k * SECOND for _, k, *_ in rows], pa.timestamp("us"))
    return pa.table(
        {
            "_slot": pa.array([row[0] for row in rows], pa.int32()),
            "window_start": start,
            "window_end": pa.array([(2 * k + 4) * SECOND for _, k, *_ in rows], pa.timestamp("us")),
            "key0": pa.array([row[2] for row in rows], pa.string()),
            "key1": pa.array([row[3] for row in rows], pa.int64()),
            COUNT_ALL.name: pa.array([1] * len(rows), pa.int64()),
            SUM.name: pa.array([row[4] for row in rows], pa.int64()),
        }
    )


def test_changes_come_by_batch_then_window_and_keys_then_version(storage: Storage) -> None:
    """Rows of one group are in one block; blocks of key groups are in no order."""
    changelog = replace(AGGREGATION, emit=Emit(stream=True, after_watermark=False))
    writer, reader = BatchWriter(storage), ResultReader(storage)
    # slot, window, keys, total, operation, version
    batches = [
        [[(2, 1, "b", 1, 5, "insert", 0)], [(0, 1, "a", 1, 7, "insert", 0), (2, 0, "a", None, 1, "insert", 0)]],
        [[(2, 1, "b", 1, 6, "insert", 2), (2, 1, "b", 1, 5, "retract", 1)], [(2, 1, "a", 1, 8, "insert", 0)]],
    ]
    for seq, blocks in enumerate(batches):
        tables = []
        for rows in blocks:
            table = window_table([row[:5] for row in rows])
            table = table.append_column("_op", pa.array([row[5] for row in rows], pa.string()))
            table = table.append_column("_ptime", pa.array([seq] * len(rows), pa.int64()).cast(pa.timestamp("us")))
            tables.append(table.append_column("_ver", pa.array([row[6] for row in rows], pa.int64())))
        reader.absorb(writer.commit(1, results=[writer.aggregation(STREAM, table) for table in tables]))
    for limit in (1, 2, 9):
        rows = read_all(reader, Deployed(2, 1, query=changelog), limit)
        assert [(r["name"], r["total"], r["_op"], r["_ver"]) for r in rows] == [
            ("a", 1, "insert", 0),
            ("b", 5, "insert", 0),
            ("a", 8, "insert", 0),
            ("b", 5, "retract", 1),
            ("b", 6, "insert", 2),
        ]
        assert [r["_ptime"].microsecond for r in rows] == [0, 0, 1, 1, 1]
        assert list(rows[0])[-4:] == ["_partial", "_op", "_ptime", "_ver"]
    empty = reader.read(Deployed(None, None, query=changelog), None, 9).table
    assert empty.schema == reader.read(Deployed(2, 1, query=changelog), None, 9).table.schema


def with_other_measure(rows: list[Any]) -> pa.Table:
    """Return the same of a key group that also has tuples of another cell space, with a measure of its own."""
    table = window_table(rows)
    return table.append_column("max(other)", pa.nulls(len(rows), pa.int32()))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """An empty data directory."""
    return Storage(str(tmp_path))


def commit_numbers(writer: BatchWriter, numbers: list[int], slot: int = 0, epoch: int = 1) -> dict[str, Any]:
    """Commit a batch with one selection block in which all rows belong to ``slot``."""
    tuples = pa.table({"n": pa.array(numbers, pa.int64())})
    return writer.commit(epoch, results=[writer.selection(STREAM, tuples, [{slot} for _ in numbers])])


def test_a_query_without_a_slot_has_an_empty_page_and_a_cursor_that_goes_on(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    reader.absorb(commit_numbers(writer, [1]))
    page = reader.read(Deployed(None, None), None, 10)
    assert page.table.num_rows == 0
    assert page.table.column_names == ["n", "twice"]
    reader.absorb(commit_numbers(writer, [2, 3], epoch=2))
    assert reader.read(Deployed(0, 2), page.cursor, 10).table["n"].to_pylist() == [2, 3]


def test_a_cursor_past_the_end_or_of_another_query_is_refused(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    reader.absorb(commit_numbers(writer, [1, 2]))
    cursor = reader.read(Deployed(0, 1), None, 1).cursor
    assert reader.read(Deployed(0, 1), cursor, 9).table["n"].to_pylist() == [2]
    with pytest.raises(MalformedRequest):
        reader.read(Deployed(0, 1, id="q-2"), cursor, 1)
    with pytest.raises(MalformedRequest, match="newest batch"):
        ResultReader(storage).read(Deployed(0, 1), cursor, 1)


def test_only_absorbed_batches_are_visible(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    record = commit_numbers(writer, [1])
    assert reader.read(Deployed(0, 1), None, 9).table.num_rows == 0
    reader.absorb(record)
    reader.absorb(record)
    assert reader.read(Deployed(0, 1), None, 9).table.num_rows == 1


def test_a_page_out_of_a_million_rows_costs_a_slice(storage: Storage) -> None:
    count = 1_000_000
    writer, reader = BatchWriter(storage), ResultReader(storage)
    tuples = pa.table({"n": pa.array(np.arange(count)), "unused": pa.array(np.arange(count))})
    members = [{0}] * count
    reader.absorb(writer.commit(1, results=[writer.selection(STREAM, tuples, members)]))
    began = time.thread_time()  # of the processor: what else the machine does must not count
    cursor = reader.read(Deployed(0, 1), None, count // 2).cursor
    half_seconds = time.thread_time() - began
    allocated = pa.total_allocated_bytes()
    began = time.thread_time()
    for _ in range(100):
        page = reader.read(Deployed(0, 1), cursor, 100)
        assert page.table["n"][0].as_py() == count // 2
    assert pa.total_allocated_bytes() - allocated < 1 << 20
    assert time.thread_time() - began < 50 * half_seconds, "100 pages of 100 rows must not cost 100 blocks"
