"""What a batch cannot be run with is found: by a search over runs that are made up, and by real runs that die."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.engine.planning.offsets import Offset, PassedOver
from braid.engine.recovery.isolation import Failure, RunApart, isolate
from braid.operators.selection.source import SelectionSource
from braid.sources.connectors.push import PushConnector
from tests.operators.job_in_process import PARTITIONS, Job
from tests.operators.test_firing_limit import NOW, SECOND, STREAMS

QUERIES = [f"q-{n}" for n in range(12)]


class Runs:
    """Runs that fail with some of the queries, with too many of them, and with some of the input."""

    def __init__(self, bad: set[str], room: float, bad_input: set[int], knows_suspects: bool) -> None:
        self.bad = bad
        self.room = room
        self.bad_input = bad_input
        self.knows_suspects = knows_suspects
        self.count = 0

    def __call__(self, end: Offset) -> Failure | None:
        self.count += 1
        read = {n for span in end.spans for s in span.without(end.passed_over) for n in range(s.start, s.end)}
        if read & self.bad_input:
            return Failure("bytes")
        running = [query for query in QUERIES if query not in end.failed]
        found = [query for query in running if query in self.bad]
        if found:
            return Failure("bad", (found[0],) if self.knows_suspects else ())
        return Failure("memory", tuple(running)) if len(running) > self.room else None


@given(
    st.sets(st.sampled_from(QUERIES)),
    st.sampled_from([0, 3, 11, 12]),
    st.sets(st.integers(100, 160), max_size=12),
    st.booleans(),
)
def test_just_what_it_cannot_be_run_with_is_left_out(
    bad: set[str], room: int, bad_input: set[int], knows_suspects: bool
) -> None:
    end = Offset(
        seq=7, streams={"a": {"0": 150, "1": 20}, "b": {"0": 7}}, begins={"a": {"0": 100, "1": 20}, "b": {"0": 0}}
    )
    bad_input = {n for n in bad_input if n < 150}
    runs = Runs(bad, room, bad_input, knows_suspects)
    found = isolate(end, QUERIES, runs)
    if found is None:
        assert not bad_input
        assert not bad
        assert room == len(QUERIES)
        return
    good = [query for query in QUERIES if query not in bad]
    assert set(found.failed) == bad | set(good[room:]), "of those that are too many the oldest stay"
    left = {n for span in found.spans for s in span.without(found.passed_over) for n in range(s.start, s.end)}
    assert left == {*range(100, 150), *range(7)} - bad_input
    assert all(each.reason == "bytes" for each in found.passed_over)
    assert {found.failed[query] for query in bad} <= {"bad"}


def test_a_batch_that_fails_whatever_is_left_out_is_told_of() -> None:
    with pytest.raises(RuntimeError, match="without any query and input"):
        isolate(Offset(seq=7), QUERIES, lambda _: Failure("state"))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    sums = "SELECT SUM(v) AS s FROM a [RANGE 1 SECONDS]"
    running = Job(tmp_path, STREAMS, {"good": sums, "bad": "SELECT k, v FROM a WHERE v > 1", "other": sums})
    for stream in "ab":
        running.push(stream, [{"k": 1, "v": n, "t": NOW + n * SECOND} for n in range(4)])
    yield running
    running.close()


def hang() -> None:
    time.sleep(600)


def crash() -> None:
    faulthandler.disable()  # pytest's would write where it was
    os.kill(os.getpid(), signal.SIGSEGV)


def take_memory() -> None:
    bytearray(8 << 30)


def limit_above_own_memory() -> int:
    """Return a limit for forks of this process, which start with all that the tests before left in it (bytes)."""
    held = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert held
    return ((int(held[1]) >> 10) + 2048) << 20


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (hang, "A batch takes longer than 3 seconds with it (setting batch_limit_seconds)."),
        (crash, "It ends the process that runs a batch (SIGSEGV)."),
        (take_memory, "A batch takes more than {mib} MiB of memory with it (setting worker_memory_bytes)."),
    ],
)
def test_a_query_that_ends_or_holds_a_batch_fails_and_the_others_have_their_rows(
    job: Job, monkeypatch: pytest.MonkeyPatch, harm: Callable[[], None], reason: str
) -> None:
    select = SelectionSource._select

    def harmful(self: Any, *arguments: Any) -> Any:
        harm()
        return select(self, *arguments)

    end = job.planner.latest(job.offset, NOW)
    limit = limit_above_own_memory()
    reason = reason.format(mib=limit >> 20)
    with monkeypatch.context() as patch:
        patch.setattr(SelectionSource, "_select", harmful)
        run = RunApart(job.storage, job.offset, PARTITIONS, limit, 3.0, 1000)
        found = isolate(end, ["good", "bad", "other"], run)
    assert found is not None
    assert found.failed == {"bad": reason}
    record = job.batch(found)
    assert record["failures"] == {"bad": reason}
    assert [row["s"] for row in job.rows("good")] == [0, 1, 2]
    assert [row["s"] for row in job.rows("other")] == [0, 1, 2]
    after = job.planner.latest(job.offset, NOW + SECOND)
    assert after.failed == {"bad": reason}, "until its slot is freed"


def test_input_that_ends_a_batch_becomes_a_dead_letter(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.push("a", [{"k": 1, "v": n, "t": NOW + n * SECOND} for n in range(4, 8)])
    end = job.planner.latest(job.offset, NOW)
    read = PushConnector.read

    def harmful(self: Any, partition: str, start: int, stop: int) -> Any:
        for at in range(start, stop):
            if at in (2, 3):
                crash()
            yield from read(self, partition, at, at + 1)

    with monkeypatch.context() as patch:
        patch.setattr(PushConnector, "read", harmful)
        found = isolate(end, ["good", "bad", "other"], RunApart(job.storage, job.offset, PARTITIONS, 0, 60.0, 1000))
        assert found is not None
        reason = "It ends the process that runs a batch (SIGSEGV)."
        assert found.passed_over == tuple(PassedOver(stream.id, "0", 2, 4, reason) for stream in STREAMS)
        record = job.batch(found)
    assert record["streams"]["a"]["malformed"] == 2
    assert record["streams"]["a"]["offsets"] == {"0": 8}
    (letter,) = job.dead_letters("a")
    assert letter["detail"] == (
        "2 rows from offset 2 of partition 0 on are passed over: It ends the process that runs a batch (SIGSEGV)."
    )
    assert [row["s"] for row in job.rows("good")] == [0, 1, 4, 5, 6]


def test_an_offset_keeps_what_is_left_out() -> None:
    passed_over = PassedOver("a", "0", 3, 5, "why")
    offset = replace(Offset(seq=3), failed={"q": "why"}, passed_over=(passed_over,))
    assert Offset.from_json(offset.to_json()) == offset
