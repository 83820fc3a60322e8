"""Early rows: the listings of the paper to the row, random runs against a plain model, replays, and what is kept."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators.aggregation import partition as aggregation_partition
from braid.operators.expressions import Column
from braid.operators.partition import Partition
from braid.operators.queries import Aggregation
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.state import bucket_store
from braid.operators.state.partition_state import Payload
from braid.operators.stream_operators import StreamOperators
from braid.operators.windows import EMIT_AFTER_WATERMARK, Emit, SessionWindow, Window
from braid.sources.core.schema import INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.operators import nexmark, test_shared_aggregation
from tests.operators.pipeline import (
    MEASURES,
    STREAM,
    K,
    MemoryState,
    Pipeline,
    Row,
    S,
    V,
    aggregation,
    batch_of,
    changelog,
    compare,
    live_of,
)
from tests.operators.test_shared_aggregation import Lifetime, aggregates, holds, random_tuples, random_where

pytestmark = pytest.mark.usefixtures("some_alone")

EVERY_CHANGE = Emit(stream=True, after_watermark=False)
MINUTE = 60_000_000
DELAYED = Emit(True, False, 6 * MINUTE)
PRICE, ITEM = Column("price", INT), Column("item", VARCHAR)
BIDS = StreamDefinition(
    "s-1",
    "bid",
    StreamSchema(
        (Field("price", INT), Field("item", VARCHAR), Field("bidtime", TIMESTAMP)),
        "bidtime",
        nexmark.LATENESS_MINUTES * MINUTE,
    ),
    "push",
    "json",
)


def listing(folder: Path, emit: Emit) -> list[tuple[Any, ...]]:
    """Run the paper's example; return (start, price, operation, processing time, version), minutes after eight.

    Whenever a delay may run out there is a batch, as the planner would plan it; a change that comes in the same minute
    comes before that.
    """
    top = Measure("max", PRICE)
    window = Window(10 * MINUTE, 10 * MINUTE)
    query = aggregation(compare(ITEM, "<>", nexmark.MARK), (), window, (top,), emit=emit, shown=(top,))
    pipeline = Pipeline(Storage(str(folder)), BIDS)
    pipeline.run([], [changelog(1, [("q", 0, query)])])
    entries = deque(nexmark.ENTRIES)
    for minute in range(nexmark.EIGHT, nexmark.EIGHT + 60):
        while entries and entries[0][0] == minute:
            _, bidtime, price, item = entries.popleft()
            pipeline.run([{"price": price, "item": item, "bidtime": bidtime * MINUTE}], now_us=minute * MINUTE)
        due = [part.due_us for part in pipeline.partitions if part.due_us is not None]
        if due and min(due) <= minute * MINUTE:
            pipeline.run([], now_us=minute * MINUTE)
    rows = []
    for start, end, _, price, *change in pipeline.rows["q"]:
        assert end - start == 10 * MINUTE
        if change:
            change[1] = change[1] // MINUTE - nexmark.EIGHT
        rows.append((start // MINUTE - nexmark.EIGHT, price, *change))
    return rows


@pytest.mark.parametrize(
    ("emit", "rows"),
    [
        (EVERY_CHANGE, nexmark.LISTING_9),
        (EMIT_AFTER_WATERMARK, nexmark.FINAL_ROWS[-1][1]),
        (Emit(stream=True), nexmark.LISTING_13),
        (DELAYED, nexmark.LISTING_14),
        # what the paper does not print: 8:00 is final at 8:16 with $5 of 8:15, 8:10 at 8:21 as it was emitted at 8:18
        (replace(DELAYED, after_watermark=True), ((0, 4, "insert", 14, 0), (0, 4, "retract", 16, 1),
                                                  (0, 5, "insert", 16, 2), (10, 6, "insert", 18, 0))),
        (replace(DELAYED, stream=False), ((0, 4), (10, 6), (0, 5))),
        (replace(DELAYED, stream=False, after_watermark=True), ((0, 4), (0, 5), (10, 6), (10, 6))),
    ],
    ids=["9", "12", "13", "14", "stream delay and watermark", "delay", "delay and watermark"],
)  # fmt: skip
def test_listings_of_the_paper(tmp_path: Path, emit: Emit, rows: tuple[Any, ...]) -> None:
    assert tuple(listing(tmp_path, emit)) == rows


FORMS = [
    EVERY_CHANGE,
    Emit(stream=True),
    Emit(False, False, 3),
    Emit(False, True, 3),
    Emit(True, False, 3),
    Emit(True, True, 3),
    Emit(True, False, 40),
]


def random_early_query(rng: random.Random) -> Aggregation:
    where, keys = random_where(rng), rng.choice([(), (K,), (S, K)])
    measures = (*MEASURES, *(Measure("count_distinct", column) for column in rng.sample([K, V], rng.choice([0, 1, 2]))))
    slide = rng.randint(3, 25)
    window: Window | SessionWindow = Window(rng.choice([slide, rng.randint(3, 40)]), slide, rng.randint(-5, 5))
    if rng.random() < 0.4:
        window = SessionWindow(rng.randint(1, 20))
    total = Column(COUNT_ALL.name, COUNT_ALL.type)
    having = rng.choice([None, None, compare(total, "<", 4), compare(total, "<>", 2)])
    shown = rng.sample(measures, rng.randint(0, 3)) or [measures[-1]]
    emit = rng.choice([EMIT_AFTER_WATERMARK, *FORMS])
    return replace(aggregation(where, keys, Window(9, 9), measures, having, emit, shown), window=window)


@dataclass
class Model:
    """What one query must tell, group by group, by plain loops over all tuples of its life."""

    life: Lifetime
    emitted: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    since: dict[tuple[Any, ...], int] = field(default_factory=dict)
    versions: dict[tuple[Any, ...], int] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def family(self, group: tuple[Any, ...], all_groups: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the groups that change together: a session and what it was before."""
        related = [group]
        if isinstance(self.life.query.window, SessionWindow):  # type: ignore[union-attr]
            for member in related:
                related += [
                    g
                    for g in all_groups
                    if g not in related and g[2] == member[2] and g[0] < member[1] and member[0] < g[1]
                ]
        return related

    def is_gone(self, end: int) -> bool:
        """Return whether a window that ends at ``end`` will not be final in the life of the query."""
        return self.life.deleted and (self.life.active_to is None or end > self.life.active_to)

    def current(self, tuples: list[tuple[Row, int]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return what each group holds, also of windows that are not due, and final ones."""
        query = self.life.query
        assert isinstance(query, Aggregation)
        rows_of_query = [r for r, batch in tuples if self.life.sees(r["t"], batch) and holds(query.where, r)]
        shown = {}
        for *group, values in groups(query, rows_of_query):
            measures = dict(zip((m.name for m in query.measures), values, strict=True))
            ends_in_time = not self.life.deleted or (
                self.life.active_to is not None and group[1] <= self.life.active_to
            )
            if ends_in_time and (query.having is None or holds(query.having, measures)):
                shown[tuple(group)] = tuple(measures[output.name] for output in query.outputs)
        return shown

    def step(self, tuples: list[tuple[Row, int]], before: int | None, after: int | None, now: int) -> None:
        """Take note of what a batch makes the query tell."""
        emit, now_rows = self.life.query.emit, self.current(tuples)  # type: ignore[union-attr]
        all_groups = [g for g in dict.fromkeys([*now_rows, *self.emitted, *self.since]) if not self.is_gone(g[1])]
        family = {group: self.family(group, all_groups) for group in all_groups}
        since = {group: min(self.since.get(member, now) for member in family[group]) for group in all_groups}
        for group in all_groups:
            row, was = now_rows.get(group), self.emitted.get(group)
            closes = after is not None and group[1] <= after and (before is None or group[1] > before)
            closed = after is not None and max(member[1] for member in family[group]) <= after
            if row == was:
                self.since.pop(group, None)
            else:
                self.since[group] = since[group]
            waited = row != was and now >= self.since[group] + (emit.delay_us or 0)
            if emit.after_watermark and emit.delay_us is None:
                due = closes
            else:
                due = waited or (row != was and closed and (emit.after_watermark or self.life.deleted))
            if due or (closes and emit.after_watermark and not emit.stream):
                self._tell(group, was, row, now, emit.stream)

    def _tell(self, group: Any, was: Any, row: Any, now: int, stream: bool) -> None:
        self.since.pop(group, None)
        for operation, values in (("retract", was), ("insert", row)):
            if values is None or (operation == "retract" and not stream):
                continue
            change = ()
            if stream:
                change = (operation, now, self.versions.get(group, 0))
                self.versions[group] = change[2] + 1
            self.rows.append((*group, *values, *change))
        self.emitted.pop(group, None)
        if row is not None:
            self.emitted[group] = row


def groups(query: Aggregation, rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """Yield start, end, keys and measures of every group."""
    if isinstance(query.window, SessionWindow):
        for start, end, keys, *values in test_shared_aggregation.sessions(query, query.window.gap_us, rows):
            yield start, end, keys, values
        return
    members_of: dict[tuple[Any, ...], list[Row]] = {}
    for r in rows:
        number = (r["t"] - query.window.offset_us) // query.window.slide_us
        while (start := number * query.window.slide_us + query.window.offset_us) + query.window.size_us > r["t"]:
            keys = tuple(r[str(key)] for key in query.keys)
            members_of.setdefault((start, start + query.window.size_us, keys), []).append(r)
            number -= 1
    for group, members in members_of.items():
        yield *group, aggregates(members, query.measures)


def folded(rows: list[tuple[Any, ...]], shown: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Apply a changelog; each change must follow from what there is."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    versions: dict[tuple[Any, ...], int] = {}
    for start, end, keys, *values, operation, _, version in sorted(rows, key=lambda row: row[-2:]):
        group, row = (start, end, keys), tuple(values)
        assert len(row) == shown
        assert version == versions.get(group, 0)
        versions[group] = version + 1
        if operation == "insert":
            assert group not in table
            table[group] = row
        else:
            assert table.pop(group) == row
    return table


@settings(max_examples=examples(8), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
@example(seed=2462)  # of two queries that are added up alone, one meets no NULL
def test_every_change_is_told_when_it_is_due(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_shared_aggregation, "random_query", random_early_query)
        patch.setattr(partition, "MAX_ENTRIES", rng.choice([0, 2, 64]))
        patch.setattr(bucket_store, "INLINE_BYTES", rng.choice([0, 1 << 16]))
        pipeline = Pipeline(Storage(str(tmp_path_factory.mktemp("data"))), rng=rng)
        session = test_shared_aggregation.Session(rng, pipeline)
        models: dict[str, Model] = {}
        all_tuples: list[tuple[Row, int]] = []
        time = now = 0
        for _ in range(rng.randint(3, 14)):
            changelogs = session.changelogs()
            tuples, time = random_tuples(rng, time)
            before, now = pipeline.watermark, now + rng.choice([1, 2, 20])
            all_tuples += [(r, pipeline.seq) for r in pipeline.run(tuples, changelogs, now)]
            for name, life in session.lifetimes.items():
                model = models.setdefault(name, Model(life))
                if not life.freed:
                    model.step(all_tuples, before, pipeline.watermark, now)
                rows = pipeline.rows.get(name, [])
                assert sorted(map(repr, rows)) == sorted(map(repr, model.rows)), (seed, name, life)
                assert isinstance(life.query, Aggregation)
                if life.query.emit.stream and not life.freed:
                    check_fold(life.query, model, rows, all_tuples)


def check_fold(query: Aggregation, model: Model, rows: list[tuple[Any, ...]], tuples: list[tuple[Row, int]]) -> None:
    """The changelog of every change, folded, is what the groups hold now; that of others, what was emitted of them."""
    table = folded(rows, len(query.outputs))
    assert table == model.emitted
    if query.emit == EVERY_CHANGE and not model.life.deleted:
        assert table == model.current(tuples)


def final_rows(query: Aggregation, rows: list[tuple[Any, ...]]) -> dict[Any, Any]:
    """Return what a query ended with, by window and keys: the changelog folded, or the last row of each group."""
    if query.emit.stream:
        return folded(rows, len(query.outputs))
    return {row[:3]: row[3:] for row in rows}


@settings(max_examples=examples(4), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
def test_all_forms_end_with_the_final_rows(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without HAVING: by plain rows nobody learns that a row is gone."""
    rng = random.Random(seed)
    query = replace(random_early_query(rng), having=None)
    pipeline = Pipeline(Storage(str(tmp_path_factory.mktemp("data"))), rng=rng)
    forms = [EMIT_AFTER_WATERMARK, *FORMS]
    if isinstance(query.window, SessionWindow):  # by plain rows nobody learns that a session has grown
        forms = [form for form in forms if form.stream or form.delay_us is None]
    created = [(f"q{i}", i, replace(query, emit=form)) for i, form in enumerate(forms)]
    time = 0
    for number in range(8):
        tuples, time = random_tuples(rng, time)
        pipeline.run(tuples, [changelog(1, created)] if number == 0 else [], now_us=10 * number)
    pipeline.run([{"k": 0, "v": 0, "s": "end", "t": time + 10_000}], now_us=100)
    pipeline.run([], now_us=1000)
    rows = [pipeline.rows.get(name, []) for name, _, _ in created]
    assert all(part.due_us is None for part in pipeline.partitions)
    end = time + 10_000 - STREAM.schema.lateness_us
    final = [final_rows(query, rows_of_form) for (_, _, query), rows_of_form in zip(created, rows, strict=True)]
    expected = final[0]
    assert len(expected) == len(rows[0])
    for rows_of_group in final[1:]:
        assert {group: row for group, row in rows_of_group.items() if group[1] <= end} == expected


def changes_of(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in block.fired.table.to_pylist()]


@pytest.mark.parametrize("inline", [0, 1 << 16])
def test_a_batch_that_runs_again_leaves_the_same_bytes(
    tmp_path: Path, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another worker, and on one that still remembers the attempt that failed."""
    monkeypatch.setattr(bucket_store, "INLINE_BYTES", inline)
    rng, storage = random.Random(7), Storage(str(tmp_path))
    live = live_of(aggregation(emit=EVERY_CHANGE, shown=MEASURES), aggregation(emit=FORMS[-1], shown=MEASURES))
    worker, state, watermark = Partition(storage), MemoryState(), None
    emitted = 0
    for seq in range(1, 12):
        rows = [{"k": i, "v": rng.randint(0, 9), "s": "a", "t": 3 * seq + rng.randint(0, 9)} for i in range(4)]
        buckets = StreamOperators(live, STREAM, 1).process(batch_of(rows), watermark).buckets
        payloads = [Payload(*bucket_store.put_bucket(storage, seq, bucket)) for _, bucket in buckets]
        around: Any = seq, payloads, live, {STREAM.id: watermark}, {STREAM.id: 3 * seq}
        watermark = 3 * seq
        attempts = []
        for part in (worker, Partition(storage), worker):
            attempt = state.copy()
            attempts.append((changes_of(part.advance(*around, attempt, 10 * seq)), attempt))
        assert attempts[0][0] == attempts[1][0] == attempts[2][0]
        emitted += len(attempts[0][0])
        if inline:  # else files have new names
            assert attempts[0][1].data == attempts[1][1].data == attempts[2][1].data
        state = attempts[rng.randint(0, 2)][1]
    assert emitted > 20


def run_delayed(folder: Path, *batches: list[int], emit: Emit, gap: int = 0) -> Pipeline:
    """Run batches of tuples of one key at some times, a microsecond apart."""
    query = aggregation(keys=(), window=Window(10, 10), measures=(COUNT_ALL,), emit=emit, shown=(COUNT_ALL,))
    pipeline = Pipeline(Storage(str(folder)))
    for number, times in enumerate(batches):
        changes = [changelog(1, [("q", 0, replace(query, window=SessionWindow(gap)) if gap else query)])]
        pipeline.run([{"k": 1, "v": 1, "s": "a", "t": t} for t in times], [] if number else changes, now_us=number)
    return pipeline


def due(pipeline: Pipeline) -> list[int]:
    return [part.due_us for part in pipeline.partitions if part.due_us is not None]


def test_a_partition_says_when_a_delay_runs_out(tmp_path: Path) -> None:
    pipeline = run_delayed(tmp_path, [5], [6], emit=Emit(True, False, 30))
    assert due(pipeline) == [30], "of the first change, in batch 0"
    pipeline.run([], now_us=29)
    assert (due(pipeline), pipeline.rows) == ([30], {})
    pipeline.run([], now_us=33)
    assert (due(pipeline), pipeline.rows["q"]) == ([], [(0, 10, (), 2, "insert", 33, 0)])
    pipeline.run([{"k": 1, "v": 1, "s": "a", "t": 7}], now_us=34)
    assert due(pipeline) == [64]


def test_a_session_that_grows_is_retracted(tmp_path: Path) -> None:
    pipeline = run_delayed(tmp_path, [5], [20], [12], emit=EVERY_CHANGE, gap=10)
    assert sorted(pipeline.rows["q"], key=lambda row: row[-2]) == [
        (5, 15, (), 1, "insert", 0, 0),
        (20, 30, (), 1, "insert", 1, 0),
        (5, 15, (), 1, "retract", 2, 1),
        (5, 30, (), 3, "insert", 2, 0),
        (20, 30, (), 1, "retract", 2, 1),
    ]


def test_a_session_that_goes_on_growing_is_told_once_a_delay(tmp_path: Path) -> None:
    times = [[20 + 2 * number] for number in range(12)]
    pipeline = run_delayed(tmp_path, *times, emit=Emit(True, True, 5), gap=10)
    assert pipeline.rows["q"] == [
        (20, 40, (), 6, "insert", 5, 0),
        (20, 40, (), 6, "retract", 11, 1),
        (20, 52, (), 12, "insert", 11, 0),
    ]


def test_a_deleted_query_does_not_wait_for_its_delay_when_a_window_is_final(tmp_path: Path) -> None:
    pipeline = run_delayed(tmp_path, [5], [11], [25], emit=Emit(True, False, 1000))
    assert pipeline.rows == {}, "the window that ends at 10 is final and waits"
    pipeline.run([], [changelog(2, [], [("q", 0)])], now_us=3)
    assert pipeline.rows["q"] == [(0, 10, (), 1, "insert", 3, 0)]
    pipeline.run([{"k": 1, "v": 1, "s": "a", "t": 1000}], now_us=2000)
    assert [row[:2] for row in pipeline.rows["q"]] == [(0, 10), (10, 20)], "20 to 30 ends after active_to"


def test_a_slot_that_is_used_again_begins_with_nothing(tmp_path: Path) -> None:
    pipeline = run_delayed(tmp_path, [5], emit=EVERY_CHANGE)
    again = aggregation(keys=(), window=Window(10, 10), measures=(COUNT_ALL,), emit=EVERY_CHANGE, shown=(COUNT_ALL,))
    pipeline.run([{"t": 6}], [changelog(2, [("new", 0, again)], [("q", 0)], [("q", 0)])], now_us=1)
    assert [row[3:] for row in pipeline.rows["new"]] == [(1, "insert", 1, 0)]
    pipeline.run([], [changelog(3, [], [("new", 0)], [("new", 0)])], now_us=2)
    assert all(set(state.data) <= {"head"} for state in pipeline.states)


@pytest.mark.long
def test_state_is_bounded_over_300_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_store, "INLINE_BYTES", 0)
    created = [(f"q{i}", i, aggregation(window=Window(60, 20), emit=e, shown=MEASURES)) for i, e in enumerate(FORMS)]
    pipeline, largest = Pipeline(Storage(str(tmp_path))), []
    for number in range(300):
        rows = [{"k": number % 3, "v": 2, "s": "a", "t": 10 * number}]
        pipeline.run(rows, [] if number else [changelog(1, created)], now_us=number)
        state_bytes = sum(len(value) for state in pipeline.states for value in state.data.values())
        files, size = len(pipeline.storage.names("buckets")), pipeline.storage.size("buckets")
        largest.append((state_bytes, files, size, sum(part.bytes for part in pipeline.partitions)))
    for kind in range(4):
        assert max(row[kind] for row in largest[100:]) <= 1.05 * max(row[kind] for row in largest[:100])


def test_a_batch_without_news_writes_nothing(tmp_path: Path) -> None:
    pipeline = run_delayed(tmp_path, [5], [30], emit=EVERY_CHANGE)
    before = [dict(state.data) for state in pipeline.states]
    pipeline.run([], now_us=10)
    assert [state.data for state in pipeline.states] == before
    assert any(number < 0 for data in before for number in data if isinstance(number, int)), "something was emitted"


def test_only_windows_that_tuples_came_to_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = []
    original = aggregation_partition.fire

    def fire(*arguments: Any) -> Any:
        ranges.append(arguments[2:4])
        return original(*arguments)

    monkeypatch.setattr(aggregation_partition, "fire", fire)
    pipeline = run_delayed(tmp_path, [5, 15], [], [12], [31], emit=EVERY_CHANGE)
    assert len(ranges) == 3, "not when nothing came"
    assert ranges[1] == (10, 20)
    assert len(pipeline.rows["q"]) == 5


def test_a_query_whose_having_raises_tells_nothing_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fire(*arguments: Any) -> None:
        arguments[4]["q"] = "raised"

    pipeline = run_delayed(tmp_path, [5], emit=EVERY_CHANGE)
    with monkeypatch.context() as patch:
        patch.setattr(aggregation_partition, "fire", fire)
        pipeline.run([{"t": 6}], now_us=1)
    assert len(pipeline.rows["q"]) == 1, "else it would look as if the row were gone"
    pipeline.run([{"t": 7}], now_us=2)
    assert [row[3:] for row in pipeline.rows["q"][1:]] == [(1, "retract", 2, 1), (3, "insert", 2, 2)]
