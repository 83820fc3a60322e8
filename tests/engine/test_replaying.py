"""What a batch reads of replays: their share, which of them waits, and when one has joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from braid.engine.planning.offsets import Offset
from braid.engine.planning.positions import tuples_of
from braid.engine.planning.replaying import (
    MAX_LEFT_OUT,
    ReplayBudget,
    held_back,
    joined_replays,
    passed_at,
    reads_replays,
    replayed_extents,
)
from braid.operators.windows import Window
from braid.sources.connectors.connector import Extent, GappedExtent
from braid.sources.core.replays import replay_of
from tests.engine.test_planner import RATE, SECOND, Folder, Kept, stream
from tests.operators.pipeline import aggregation, changelog


def test_a_replay_has_joined_once_it_begins_where_its_origin_does() -> None:
    begins = {
        "s-1": {"0": 5, "1": 7},
        "s-1.q-2": {"0": 5, "1": 7},
        "s-1.q-3": {"0": 5, "1": 6},
        "s-2.q-1": {},
        "s-2": {},
    }
    assert joined_replays(begins) == {"s-1.q-2": "s-1"}


def test_a_replay_begins_with_the_oldest_and_ends_with_its_origin() -> None:
    extents = {"0": Extent(90, 100), "1": GappedExtent(0, 50, 30)}
    replayed = replayed_extents(extents, {"0": 10, "1": 30})
    assert replayed == {"0": Extent(10, 100), "1": Extent(30, 50)}
    assert replayed["1"].skip_to == 30, "what is gone is done without, as by the origin"


def test_a_replay_leaves_out_what_is_before_the_start_of_its_queries(folder: Folder) -> None:
    origin = stream("a")
    folder.log(origin)
    planner = folder.planner()
    offset = Offset()
    for second in (1, 2, 3, 4):
        offset = folder.latest(planner, offset, second * SECOND)
        folder.commit(offset, clocks={"a": second * SECOND})
    begun = []
    # a start; two queries, of which the earlier start counts; one that sees all; a start before all that was read
    starts = [[2 * SECOND], [4 * SECOND, 3 * SECOND + 1], [3 * SECOND, None], [1]]
    for number, of_queries in enumerate(starts, folder.changelogs.latest() + 1):
        replay = replay_of(origin, f"q-{number}")
        query = replace(aggregation(), stream=replay.id)
        queries = [(f"q-{number}-{slot}", number * 10 + slot, query) for slot in range(len(of_queries))]
        record = changelog(number, queries, streams=[replay])
        for created, after in zip(record["created"], of_queries, strict=True):
            created |= {} if after is None else {"sees_after": {replay.id: after}}
        folder.changelogs.append(number, record)
        begun.append(replay.id)
    folder.batches.trim(1)
    offset = folder.latest(planner, offset, 4 * SECOND)
    assert [offset.begins[replay]["0"] for replay in begun] == [2 * RATE + 1, 3 * RATE + 1, 0, 0]
    assert offset.begins["a"] == {"0": 4 * RATE + 1}


def test_a_replay_reads_all_of_a_stream_that_did_not_begin_with_its_oldest(folder: Folder) -> None:
    origin = replace(stream("a"), connector="flight")
    folder.log(origin, reading="a")
    planner = folder.planner()
    planner._sources._connectors["a"] = Kept(Extent(80, 100))
    offset = folder.latest(planner, Offset(), SECOND)
    assert (offset.begins, offset.streams) == ({"a": {"0": 80}}, {"a": {"0": 100}})
    folder.commit(offset, clocks={"a": SECOND})
    assert passed_at(folder.batches, "a", SECOND) == {"0": 100}
    replay = replay_of(origin, "q-2")
    record = changelog(2, [("q-2", 2, replace(aggregation(), stream=replay.id))], streams=[replay])
    record["created"][0]["sees_after"] = {replay.id: SECOND}
    folder.changelogs.append(2, record)
    offset = folder.latest(planner, offset, SECOND)
    assert offset.begins[replay.id] == {"0": 10}, "who knows what event times come before its beginning"


@pytest.mark.parametrize(
    ("watermarks", "waiting"),
    [
        ({"a.q-1": 10, "b.q-1": 20}, {"b.q-1"}),
        ({"a.q-1": 10, "b.q-1": None}, {"a.q-1"}),
        ({"a.q-1": 10, "b.q-1": 10}, set()),
        ({}, set()),
    ],
)
def test_of_replays_that_are_joined_the_one_ahead_waits(watermarks: dict[str, int | None], waiting: set[str]) -> None:
    streams = [("a.q-1", "b.q-1"), ("c.q-1",), ("a.q-1", "s")]
    assert held_back({"a.q-1", "b.q-1", "c.q-1"}, streams, watermarks) == waiting


def test_a_replay_waits_for_none_that_has_joined() -> None:
    assert held_back({"a.q-1"}, [("a.q-1", "b.q-1")], {"a.q-1": 20, "b.q-1": 10}) == set()


def most(budget: ReplayBudget, live: float, now_us: int, room: float | None = None) -> float:
    """Return what replays may cost beside live tuples where a batch may cost 1000, and 100 a second."""
    return budget.most(live, 100 / SECOND, SECOND, 1000, now_us, room)


def test_replays_take_little_while_live_tuples_come_and_all_otherwise() -> None:
    budget = ReplayBudget(0.2)
    assert most(budget, 0, 0, room=10) == 1000, "nobody is live"
    assert not budget.is_live(0)
    assert most(budget, 900, SECOND) == pytest.approx(180)
    assert most(budget, 10, 2 * SECOND) == pytest.approx(20), "a fifth of what a usual batch takes"
    assert most(budget, 0, 3 * SECOND) == pytest.approx(20), "there were live tuples a second ago"
    assert budget.is_live(3 * SECOND)
    assert most(budget, 0, 5 * SECOND) == 1000


def test_batches_without_room_leave_replays_out_and_the_next_one_makes_up_for_them() -> None:
    budget = ReplayBudget(0.2)
    assert most(budget, 10, 0, room=15) == pytest.approx(5), "what room live tuples leave"
    budget.take_note(True, True, 0)
    for second in range(1, 4):
        assert most(budget, 10, second * SECOND, room=0) == 0
        budget.take_note(True, False, second * SECOND)
    assert most(budget, 10, 4 * SECOND, room=1000) == pytest.approx(0.2 * 4 * 100), "of the time since it was read"
    budget.take_note(True, True, 4 * SECOND)
    assert most(budget, 10, 5 * SECOND, room=1000) == pytest.approx(20)


def test_after_too_many_batches_without_room_all_read_replays_until_one_has_room() -> None:
    budget = ReplayBudget(0.2)
    for _ in range(MAX_LEFT_OUT):
        assert most(budget, 10, SECOND, room=0) == 0
        budget.take_note(True, False, SECOND)
    for _ in range(3):
        assert most(budget, 10, SECOND, room=0) == pytest.approx(20)
        budget.take_note(True, True, SECOND)
    assert most(budget, 10, SECOND, room=25) == pytest.approx(15)
    budget.take_note(True, True, SECOND)
    assert most(budget, 10, SECOND, room=0) == 0, "there was room between windows"
    budget.take_note(True, False, SECOND)
    budget.take_note(False, False, SECOND)
    assert most(budget, 10, 9 * SECOND, room=1000) == pytest.approx(20), "a new replay has nothing to make up for"


def test_a_batch_that_reads_what_its_origin_read_reads_no_replay() -> None:
    counts = {"a": {"tuples": 5}, "a.q-1": {"tuples": 5}, "a.q-2": {"tuples": 0}}
    assert not reads_replays({"streams": counts, "joined": {"a.q-1": {"0": 0}}})
    assert reads_replays({"streams": counts, "joined": {}})


@dataclass(frozen=True)
class Batch:
    """What a batch read of the live stream and of the replay, whether it fired, and the time that it took."""

    live: int
    replayed: int
    has_fired: bool
    begin_us: int
    end_us: int


def batches(folder: Folder, period_us: int, seconds: int, duration_us: int = 100_000) -> Iterator[Batch]:
    """Plan and commit batches of a live stream, and after ten seconds of a replay of another one.

    Windows of the live stream end every ``period_us``. A batch takes ``duration_us``, and as long again for each 10 000
    tuples. The replay has 110 000 of these.
    """
    live, other = replace(stream("a"), created_us=1000 * SECOND), replace(stream("b"), created_us=900 * SECOND)
    replay = replay_of(other, "q-9")
    query = replace(aggregation(window=Window(period_us, period_us)), stream="a")
    folder.changelogs.append(1, changelog(1, [("q-1", 1, query)], streams=[live, other]))
    planner, offset, now = folder.planner(), Offset(), 1000 * SECOND
    planner._budget.tuples = 100_000
    while now < (1000 + seconds) * SECOND:
        if folder.changelogs.latest() == 1 and now >= 1010 * SECOND:
            past = replace(aggregation(window=Window(SECOND, SECOND)), stream=replay.id)
            folder.changelogs.append(2, changelog(2, [("q-9", 2, past)], streams=[replay]))
        end = folder.latest(planner, offset, now)
        if end is offset:
            now += 2000
            continue
        read = {s: tuples_of(end.begins[s], places) for s, places in end.streams.items() if s not in end.joined}
        begin, now = now, now + duration_us + sum(read.values()) * duration_us // 10_000
        folder.passed_us = now
        watermark = begin - 20_000
        reached = {s: watermark if s in ("a", "b") else end.streams[s]["0"] * SECOND // RATE for s in end.streams}
        counts = {s: {"tuples": read.get(s, 0), "offsets": dict(end.streams[s]), "unread": None} for s in end.streams}
        folder.commit(end, streams=counts, clocks=reached, watermarks=reached, fired=reached)
        has_fired = offset.seq > 0 and (end.watermarks["a"] or 0) // period_us != watermark // period_us
        yield Batch(read["a"], read.get(replay.id, 0), has_fired, begin, now)
        offset = end


def test_batches_that_fire_live_windows_read_no_replays_and_those_between_are_over_before(folder: Folder) -> None:
    of_replay = [batch for batch in batches(folder, SECOND, 60) if batch.begin_us > 1011 * SECOND]
    assert not any(batch.replayed for batch in of_replay if batch.has_fired)
    between = [batch for batch in of_replay if batch.replayed]
    assert len(between) > 20
    assert all(batch.begin_us // SECOND == batch.end_us // SECOND for batch in between)


def test_replays_go_on_where_live_windows_fire_in_every_batch(folder: Folder) -> None:
    of_replay = [batch for batch in batches(folder, 50_000, 30) if batch.begin_us > 1010 * SECOND]
    first, *_, last = (number for number, batch in enumerate(of_replay) if batch.replayed)
    assert first <= MAX_LEFT_OUT + 1, "the batch with the query reads none, either"
    assert all(batch.has_fired and batch.replayed for batch in of_replay[first:last])
    assert sum(batch.replayed for batch in of_replay) >= 110_000, "it has caught up"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
