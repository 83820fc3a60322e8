"""The planner: what the next batch reads, with which epoch and which clocks; from real files and real connectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.engine.data_layout import BATCHES, CHANGELOGS, PLANS, PlannedBatch, read_planned, read_unavailable
from braid.engine.planning.offsets import Offset
from braid.engine.planning.planner import KEPT_BUSY_US, WARM_UP_BATCHES, Planner
from braid.engine.planning.positions import begins_of, skipped_of
from braid.operators.event_times import ENDED
from braid.operators.live_queries import LiveQueries
from braid.sources.connectors.connector import Chunk, Extent, GappedExtent
from braid.sources.connectors.generator import DATASETS
from braid.sources.connectors.kafka.formats import registry_option
from braid.sources.core.confinement import Confinement
from braid.sources.core.outgoing import Outgoing
from braid.sources.core.record_log import RecordLog
from braid.sources.core.replays import replay_of
from braid.sources.core.schema import StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from braid.sources.core.watermark_options import WatermarkOptions
from tests.kit.waiting import wait_until
from tests.operators.pipeline import aggregation, changelog

SECOND = 10**6
RATE = 1000


def stream(name: str, rate: int = RATE, idle_timeout_us: int | None = None) -> StreamDefinition:
    """Return a generated stream: after x seconds since 1970 it has x · rate tuples, and a little more."""
    schema = StreamSchema(DATASETS["purchases"], "time", 0)
    options = {"dataset": "purchases", "rate": str(rate)}
    watermark = WatermarkOptions(idle_timeout_us=idle_timeout_us)
    return StreamDefinition(name, name, schema, "generator", "", options, watermark=watermark)


class Folder:
    """A data folder in which sessions and routers have written."""

    def __init__(self, root: Path) -> None:
        self.storage = Storage(str(root))
        self.changelogs = RecordLog(self.storage, CHANGELOGS)
        self.batches = RecordLog(self.storage, BATCHES)
        self.passed_us = 0
        """By a clock that nobody sets."""

    def planner(self, warm_ups: int = 0) -> Planner:
        """Return a planner that has done its warm-up batches but for some."""
        planner = Planner(self.storage, 1.0, lambda: self.passed_us * 1000)
        planner._warm_ups = warm_ups
        return planner

    def latest(self, planner: Planner, start: Offset, now_us: int) -> Offset:
        """Plan at a time of both clocks."""
        self.passed_us = now_us
        return planner.latest(start, now_us)

    def log(self, *streams: StreamDefinition, dropped: list[str] | None = None, reading: str | None = None) -> None:
        """Append a changelog, with a query of some stream that there is none of, or of one that it is ``reading``."""
        number = self.changelogs.latest() + 1
        query = (f"q{number}", number, aggregation() if reading is None else replace(aggregation(), stream=reading))
        self.changelogs.append(number, changelog(number, [query], streams=streams, dropped=dropped or []))

    def commit(self, offset: Offset, **record: Any) -> None:
        """Append the record of the batch that ends at an offset."""
        streams = {
            name: {"tuples": sum(ends.values()), "offsets": dict(ends), "unread": None}
            for name, ends in offset.streams.items()
        }
        common = {"seq": offset.seq, "epoch": offset.epoch, "planned_us": offset.planned_us, "streams": streams}
        reached = dict(offset.watermarks)
        times = {"clocks": dict(offset.clocks), "watermarks": reached, "fired": reached, "partitions": {}}
        self.batches.append(offset.seq, {**common, **times, **record})

    def commit_unread(self, offset: Offset, stream: str) -> None:
        """Append the record of a batch that could not read a stream."""
        counted = {"tuples": 0, "offsets": dict(offset.begins[stream]), "unread": "its server is gone"}
        self.commit(offset, streams={stream: counted})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_nothing_new_no_batch(folder: Folder) -> None:
    planner = folder.planner()
    assert planner.latest(Offset(), SECOND) == Offset()
    folder.log(stream("a"))
    first = planner.latest(Offset(), SECOND)
    assert (first.seq, first.epoch) == (1, 1)
    folder.commit(first)
    assert planner.latest(first, SECOND) is first
    assert planner.latest(first, 2 * SECOND).seq == 2


def test_an_epoch_alone_makes_a_batch(folder: Folder) -> None:
    folder.log()
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    assert (first.seq, first.epoch, first.streams) == (1, 1, {})
    folder.commit(first)
    folder.log()
    folder.log()
    second = planner.latest(first, SECOND)
    assert (second.seq, second.epoch) == (2, 3), "all epochs that are logged, in one batch"


def test_a_delay_that_runs_out_makes_a_batch(folder: Folder) -> None:
    folder.log()
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    folder.commit(first, emit_due_us=2 * SECOND)
    assert planner.latest(first, 2 * SECOND - 1) is first
    second = planner.latest(first, 2 * SECOND)
    assert (second.seq, second.planned_us) == (2, 2 * SECOND)
    folder.commit(second, emit_due_us=None)
    assert folder.planner().latest(second, 9 * SECOND) is second


def test_a_delay_runs_out_though_the_clock_of_the_machine_was_set_back(folder: Folder) -> None:
    hour = 3600 * SECOND
    folder.log()
    planner = folder.planner()
    first = planner.latest(Offset(), hour)
    folder.commit(first, emit_due_us=hour + 1)
    assert planner.latest(first, SECOND) is first
    folder.passed_us += 1
    assert planner.latest(first, SECOND).planned_us == hour + 1, "the delay has run out"


def test_silence_is_broken_before_processes_end(folder: Folder) -> None:
    planner = folder.planner()
    folder.log()
    first = planner.latest(Offset(), SECOND)
    folder.commit(first)
    assert planner.latest(first, SECOND + KEPT_BUSY_US - 1) is first
    second = planner.latest(first, SECOND + KEPT_BUSY_US)
    assert (second.seq, second.epoch) == (2, first.epoch)
    folder.commit(second)
    assert planner.latest(second, 2 * SECOND + KEPT_BUSY_US) is second


def test_processing_time_never_falls_even_if_the_clock_of_the_machine_does(folder: Folder) -> None:
    folder.log()
    first = folder.planner().latest(Offset(), 5 * SECOND)
    assert first.planned_us == 5 * SECOND
    folder.commit(first)
    folder.log()
    assert folder.planner().latest(first, 3 * SECOND).planned_us == 5 * SECOND


def test_clocks_are_those_in_the_record_of_the_batch_before(folder: Folder) -> None:
    folder.log(stream("a"), stream("b"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    assert first.clocks == first.watermarks == {"a": None, "b": None}
    folder.commit(first, clocks={"a": 7, "b": None}, watermarks={"a": 5, "b": None})
    second = planner.latest(first, 2 * SECOND)
    assert second.clocks == {"a": 7, "b": None}
    assert second.watermarks == {"a": 5, "b": None}


def test_waits_for_the_record_of_the_last_batch(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    folder.log()
    assert planner.latest(first, 9 * SECOND) is first
    folder.commit(first)
    assert planner.latest(first, 9 * SECOND).seq == 2


def test_the_record_of_the_last_batch_is_read_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    folder.commit(first, clocks={"a": 7})
    assert planner.latest(first, SECOND) is first
    with monkeypatch.context() as patch:
        patch.setattr(planner, "_batches", None)
        assert planner.latest(first, SECOND) is first
        second = planner.latest(first, 2 * SECOND)
    assert (second.seq, second.clocks) == (2, {"a": 7})
    folder.commit(second, clocks={"a": 9})
    assert planner.latest(second, 3 * SECOND).clocks == {"a": 9}


def test_a_new_stream_starts_at_its_beginning_and_a_dropped_one_leaves_the_offset(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    folder.commit(first, clocks={"a": 7}, watermarks={"a": 7})
    folder.log(stream("b"))
    second = planner.latest(first, SECOND)
    assert second.clocks == {"a": 7, "b": None}
    assert second.streams["b"]["0"] >= RATE
    folder.commit(second)
    folder.log(dropped=["a"])
    third = planner.latest(second, 2 * SECOND)
    assert set(third.streams) == set(third.clocks) == set(third.watermarks) == {"b"}


def test_a_stream_created_and_dropped_between_two_batches_is_never_read(folder: Folder) -> None:
    folder.log(stream("a"))
    folder.log(dropped=["a"])
    assert folder.planner().latest(Offset(), SECOND) == Offset(1, 2, planned_us=SECOND, firing_budget_us=2e6)


def test_a_backlog_is_read_in_bounded_batches_and_completely(folder: Folder) -> None:
    folder.log(stream("slow", 100), stream("fast", 100_000))
    planner = folder.planner()
    offset, sizes = Offset(), []
    while True:
        ended = planner.latest(offset, 20 * SECOND)
        if ended is offset:
            break
        sizes.append(sum(ended.streams[s]["0"] - offset.streams.get(s, {"0": 0})["0"] for s in ended.streams))
        assert sizes[-1] <= planner._budget.tuples + 2, "one more for each partition, by rounding"
        for name, partitions in ended.streams.items():
            before, all_of_it = offset.streams.get(name, {"0": 0})["0"], 20 * (100 if name == "slow" else 100_000)
            assert partitions["0"] > before or partitions["0"] >= all_of_it, "fair"
        folder.commit(ended)
        offset = ended
    assert len(sizes) > 2
    end = {name: c.available(20 * SECOND) for name, c in planner._sources._connectors.items()}
    assert offset.streams == {name: {p: extent.end for p, extent in extents.items()} for name, extents in end.items()}


def test_warm_up_batches_run_without_anything_to_do(folder: Folder) -> None:
    planner, offset = folder.planner(WARM_UP_BATCHES), Offset()
    for _ in range(WARM_UP_BATCHES):
        offset = planner.latest(offset, 0)
        folder.commit(offset)
    assert offset.seq == WARM_UP_BATCHES
    assert planner.latest(offset, 0) is offset


def test_another_process_goes_on_from_snapshot_and_changelogs(folder: Folder) -> None:
    folder.log(stream("a"), stream("gone"))
    folder.log(dropped=["gone"])
    live = LiveQueries()
    for _, record in folder.changelogs.after(0):
        live.apply(record, {})
    folder.storage.put(f"{PLANS}/{2:012d}.json", orjson.dumps(live.to_json()))
    first = folder.planner().latest(Offset(), SECOND)
    folder.commit(first)
    folder.changelogs.trim(2)
    folder.log(stream("b"))
    second = folder.planner().latest(first, SECOND)
    assert (second.epoch, set(second.streams)) == (3, {"a", "b"})
    assert second.streams["a"] == first.streams["a"]


def test_positions_never_go_back_and_partitions_out_of_sight_keep_theirs(folder: Folder) -> None:
    available = {"a": {"0": Extent(0, 5), "2": Extent(1, 3)}}
    begins = begins_of({"a": {"0": 10, "1": 20}}, available)
    assert begins == {"a": {"0": 10, "1": 20, "2": 1}}
    assert folder.planner()._bounded(begins, available, (), {}, 0) == {"a": {"0": 10, "1": 20, "2": 3}}


def test_what_is_gone_is_skipped_where_a_stream_does_without() -> None:
    available = {
        "a": {"0": GappedExtent(0, 50, 30), "1": Extent(2, 50), "2": GappedExtent(5, 50, 9)},
        "b": {"0": GappedExtent(0, 9, 7)},
    }
    reached = {"a": {"0": 10, "1": 1, "9": 4}, "b": {"0": 8}}
    assert begins_of(reached, available) == {"a": {"0": 30, "1": 1, "2": 9, "9": 4}, "b": {"0": 8}}
    assert skipped_of(reached, available) == {"a": 20 + 4}


class Kept:
    """A connector of an extent, whose oldest offset is 10."""

    problem: str | None = None

    def __init__(self, extent: Extent) -> None:
        self.extent = extent

    def bounds(self) -> None:
        return None

    def oldest(self) -> dict[str, int]:
        return {"0": 10}

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002
        return {"0": self.extent}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        raise NotImplementedError


def test_a_batch_says_what_was_skipped_once_also_when_nothing_is_left(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    offset = planner.latest(Offset(), SECOND)
    folder.commit(offset)
    reached = offset.streams["a"]["0"]
    planner._sources._connectors["a"] = Kept(GappedExtent(0, reached + 7, reached + 7))
    gap = planner.latest(offset, SECOND)
    assert (gap.begins, gap.streams, gap.skipped) == ({"a": {"0": reached + 7}}, {"a": {"0": reached + 7}}, {"a": 7})
    assert Offset.from_json(orjson.loads(orjson.dumps(gap.to_json()))) == gap
    folder.commit(gap)
    assert planner.latest(gap, SECOND) is gap


def test_a_stream_that_ends_before_the_place_it_got_to_is_told(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    offset = planner.latest(Offset(), SECOND)
    folder.commit(offset)
    reached = offset.streams["a"]["0"]
    planner._sources._connectors["a"] = Kept(Extent(0, reached - 1))
    assert planner.latest(offset, SECOND) is offset
    problem = read_unavailable(folder.storage)["a"]
    assert f"it got to offset {reached} of partition 0, which now ends at {reached - 1}" in problem
    planner._sources._connectors["a"] = Kept(Extent(0, reached))
    planner.latest(offset, SECOND)
    assert read_unavailable(folder.storage) == {}


def test_a_stream_that_could_not_be_read_rests_and_goes_on_where_it_was(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("braid.engine.planning.planner.time.monotonic", lambda: now)
    folder.log(stream("a"))
    planner, offset = folder.planner(), Offset()
    for number, rest in enumerate((1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0), start=1):
        offset = planner.latest(offset, number * SECOND)
        assert offset.begins == {"a": {"0": 0}}
        assert offset.streams["a"]["0"] >= RATE
        folder.commit_unread(offset, "a")
        assert planner.latest(offset, (number + 1) * SECOND) is offset
        now += rest - 0.001
        assert planner.latest(offset, (number + 1) * SECOND) is offset
        now += 0.001
    offset = planner.latest(offset, 8 * SECOND)
    folder.commit(offset)
    further = planner.latest(offset, 9 * SECOND)
    assert further.begins == {"a": offset.streams["a"]}


def test_a_connector_that_fails_costs_its_own_stream_only(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.log(stream("a"), stream("b"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    folder.commit(first)

    def fail(_now_us: int) -> dict[str, Extent]:
        raise OSError("no route")

    monkeypatch.setattr(planner._sources._connectors["a"], "available", fail)
    second = planner.latest(first, 2 * SECOND)
    assert second.streams["a"] == first.streams["a"]
    assert second.streams["b"]["0"] > first.streams["b"]["0"]


def test_a_stream_that_cannot_be_opened_costs_itself_only_and_is_tried_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("braid.engine.planning.planner.time.monotonic", lambda: now)
    registry = {
        "topic": "t",
        "properties.bootstrap.servers": "127.0.0.1:1",
        registry_option("avro"): "http://127.0.0.1:1",
    }
    kafka = StreamDefinition("k", "k", stream("k").schema, "kafka", "avro", registry)
    Confinement(outgoing=Outgoing(("public",))).write(folder.storage)
    folder.log(stream("a"), kafka, reading="k")
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    assert first.streams["a"]["0"] >= RATE
    assert first.streams["k"] == {}
    assert "127.0.0.1" in read_unavailable(folder.storage)["k"]
    folder.commit(first)
    Confinement().write(folder.storage)
    now += 0.999
    second = planner.latest(first, 2 * SECOND)
    assert second.streams["a"]["0"] > first.streams["a"]["0"]
    assert "k" in read_unavailable(folder.storage)
    folder.commit(second)
    now += 0.001
    planner.latest(second, 3 * SECOND)
    assert "127.0.0.1" not in read_unavailable(folder.storage).get("k", "")
    assert "k" in planner._sources._connectors
    folder.log(dropped=["k"])
    assert set(planner.latest(second, 4 * SECOND).streams) == {"a"}


def silence(read: int) -> Callable[[int], dict[str, Extent]]:
    """Return what a connector says all of whose tuples have been read."""
    return lambda _now_us: {"0": Extent(0, read)}


def test_a_stream_becoming_idle_makes_one_batch_and_so_does_its_return(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.log(stream("a", idle_timeout_us=2 * SECOND))
    planner = folder.planner()
    first = folder.latest(planner, Offset(), SECOND)
    assert first.idle == ()
    folder.commit(first)
    with monkeypatch.context() as patch:
        patch.setattr(planner._sources._connectors["a"], "available", silence(first.streams["a"]["0"]))
        assert folder.latest(planner, first, 3 * SECOND - 1) is first
        second = folder.latest(planner, first, 3 * SECOND)
        assert (second.seq, second.idle, second.spans) == (2, ("a",), [])
        folder.commit(second, idle=["a"])
        logged = Offset.from_json(orjson.loads(orjson.dumps(second.to_json())))
        assert folder.latest(planner, logged, 9 * SECOND) is logged
    third = folder.latest(planner, logged, 9 * SECOND)
    assert (third.seq, third.idle, bool(third.spans)) == (3, (), True)


def test_a_stream_that_does_not_answer_is_not_idle(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.log(stream("a", idle_timeout_us=2 * SECOND))
    planner = folder.planner()
    first = folder.latest(planner, Offset(), SECOND)
    folder.commit(first)
    connector, silent = planner._sources._connectors["a"], silence(first.streams["a"]["0"])
    for available, problem in (
        (lambda _: {}, None),  # it has not answered yet
        (lambda _: {"1": Extent(0, 0)}, None),  # some of its partitions do not
        (silent, "no broker answers"),
    ):
        monkeypatch.setattr(connector, "available", available)
        monkeypatch.setattr(connector, "problem", problem)
        assert folder.latest(planner, first, 30 * SECOND) is first
    monkeypatch.setattr(connector, "problem", None)
    assert folder.latest(planner, first, 32 * SECOND - 1) is first, "its silence begins when all of it answers"
    assert folder.latest(planner, first, 32 * SECOND).idle == ("a",)


def test_a_clock_that_is_set_forth_is_no_silence(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.log(stream("a", idle_timeout_us=2 * SECOND))
    planner = folder.planner()
    first = folder.latest(planner, Offset(), SECOND)
    folder.commit(first)
    monkeypatch.setattr(planner._sources._connectors["a"], "available", silence(first.streams["a"]["0"]))
    hour = 3600 * SECOND
    kept_busy = planner.latest(first, hour)  # processing time follows
    assert (kept_busy.planned_us, kept_busy.idle) == (hour, ())
    folder.commit(kept_busy)
    folder.passed_us = 3 * SECOND
    assert planner.latest(kept_busy, 3 * SECOND).idle == ("a",), "nor is its silence over when it is set back"


def test_the_last_event_times_are_carried_from_batch_to_batch(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    assert first.recent == {}
    recent = [{"us": [1, 2], "tuples": [1, 1]}]
    folder.commit(first, recent={"a": recent, "dropped": recent})
    assert planner.latest(first, 2 * SECOND).recent == {"a": recent}


@given(
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("012"), st.integers(0, 10**9))),
    st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("012"), st.integers(0, 10**9))),
    st.integers(1, 10**7),
)
def test_bounds_lie_between_start_and_end(
    before: dict[str, dict[str, int]], available: dict[str, dict[str, int]], budget: int
) -> None:
    planner = Planner(Storage("unused"), 1.0)
    planner._budget.tuples = budget
    planner._costs.learn({"streams": {name: {"tuples": 1} for name in available}})
    extents = {name: {p: Extent(0, end) for p, end in partitions.items()} for name, partitions in available.items()}
    bounded = planner._bounded(begins_of(before, extents), extents, (), {}, 0)
    read = 0
    for name, partitions in available.items():
        for partition, end in partitions.items():
            first, last = before.get(name, {}).get(partition, 0), bounded[name][partition]
            assert first <= last <= max(first, end)
            assert (last > first) == (end > first), "every partition with tuples gets on"
            read += last - first
    assert read <= budget + 9


def test_what_a_batch_takes_in_is_told_before_it_runs(folder: Folder) -> None:
    folder.log(stream("a"))
    first = folder.planner().latest(Offset(), SECOND)
    assert read_planned(folder.storage) == PlannedBatch(1, 0, first.epoch, first.clocks, SECOND)
    folder.commit(first)
    again = folder.planner().latest(first, 2 * SECOND)
    assert again.epoch == first.epoch
    planned = read_planned(folder.storage)
    assert planned is not None
    assert planned.seq == 1, "a batch that takes nothing in is not worth telling of"


def test_windows_that_wait_to_be_fired_make_batches_that_read_nothing_more_of_their_stream(folder: Folder) -> None:
    folder.log(stream("a"), stream("b"))
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    reached: dict[str, Any] = {"watermarks": {"a": 900, "b": 900}, "operator_busy_us": [10**6, 5 * 10**6]}
    folder.commit(first, **reached, fired={"a": 100, "b": 900}, fire_to={"a": 300})
    second = planner.latest(first, 9 * SECOND)
    assert (second.seq, second.fired, second.fire_to) == (2, {"a": 100, "b": 900}, {"a": 300})
    assert second.streams["a"] == first.streams["a"]
    assert second.streams["b"] != first.streams["b"]
    folder.commit(second, **reached, fired={"a": 300, "b": 900}, fire_to={"a": 900})
    third = planner.latest(second, 9 * SECOND)
    assert third.fire_to == {"a": 900}
    assert third.firing_budget_us == second.firing_budget_us / 2, "it took five times the target"
    folder.commit(third, **reached, fired={"a": 900, "b": 900}, fire_to={})
    fourth = planner.latest(third, 9 * SECOND)
    assert (fourth.fire_to, fourth.streams["a"] != third.streams["a"]) == ({}, True)


def files(folder: Folder, name: str = "f") -> StreamDefinition:
    """Return a bounded stream over a folder with ten records."""
    path = Path(folder.storage.uri) / "files"
    path.mkdir(exist_ok=True)
    lines = [f'{{"user_id": {n}, "gem_pack": 1, "price": 1.0, "time": "2026-01-01T00:00:0{n}Z"}}' for n in range(10)]
    (path / "a.json").write_text("\n".join(lines))
    os.utime(path / "a.json", (1, 1))  # so that it is complete at the first look
    options = {"path": str(path), "bounded": "true"}
    return StreamDefinition(name, name, StreamSchema(DATASETS["purchases"], "time", 0), "file", "json", options)


def planned_when(planner: Planner, start: Offset, holds: Callable[[Offset], bool]) -> Offset:
    """Plan until the planner, whose connectors look by threads of their own, says what is waited for."""
    planned: list[Offset] = []

    def looked() -> bool:
        planned.append(planner.latest(start, SECOND))
        return holds(planned[-1])

    wait_until(looked, 30, "the planner plans the batch")
    return planned[-1]


def test_a_folder_is_not_read_before_its_first_query_and_ends_after_its_last_record(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    Confinement().write(folder.storage)
    definition = files(Folder(tmp_path))
    folder.log(definition)
    planner = folder.planner()
    first = planner.latest(Offset(), SECOND)
    assert first.streams == {}
    folder.commit(first)
    folder.log(reading="f")
    second = planned_when(planner, first, lambda offset: offset.streams.get("f") == {"0": 10})
    assert (second.begins, second.raised) == ({"f": {"0": 0}}, {})
    folder.commit(second)
    third = planned_when(planner, second, lambda offset: offset is not second)
    assert third.raised == {"f": ENDED}
    folder.commit(third, watermarks={"f": ENDED}, fired={"f": ENDED})
    replay = replay_of(definition, "q-9")
    folder.log(replay, reading=replay.id)
    fourth = planned_when(planner, third, lambda offset: offset.streams.get(replay.id) == {"0": 10})
    assert (fourth.begins[replay.id], fourth.joined) == ({"0": 0}, {})
    assert {span.stream for span in fourth.spans} == {replay.id}
    folder.commit(fourth, watermarks={"f": ENDED}, fired={"f": ENDED})
    fifth = planned_when(planner, fourth, lambda offset: offset is not fourth)
    assert fifth.joined == {replay.id: "f"}, "that it has joined makes a batch"
    assert fifth.spans == []


def test_a_watermark_set_from_outside_counts_once_all_is_read_that_was_there(folder: Folder) -> None:
    folder.log(stream("a"))
    planner = folder.planner()
    planner._budget.tuples = 100
    number = folder.changelogs.latest() + 1
    folder.changelogs.append(number, {**changelog(number), "raised": {"a": 50 * SECOND}})
    offset, raised = Offset(), []
    while not raised or not raised[-1]:
        offset = folder.latest(planner, offset, SECOND + len(raised))
        raised.append(offset.raised)
        folder.commit(offset)
    assert len(raised) > 2, "read in several batches"
    assert raised[-1] == {"a": 50 * SECOND}
    assert offset.streams["a"]["0"] >= RATE
