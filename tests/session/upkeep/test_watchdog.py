"""The watchdog: what hangs is ended, what works for too long is ended and noted, and what gets on is left alone."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psutil
import pytest

from braid.engine.data_layout import BATCHES, READY_FILE, write_heartbeat
from braid.engine.recovery.isolation_log import OUTLASTED
from braid.engine.recovery.processor_share import ProcessorShare
from braid.session.upkeep.job_supervisor import JobSupervisor
from braid.session.upkeep.watchdog import START_SECONDS, WATCHED_SECONDS, Watchdog
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until

STALL, LIMIT = 15.0, 60.0


class Job(JobSupervisor):
    """A job that is one real process, which nobody starts anew."""

    def __init__(self, storage: Storage, code: str) -> None:
        super().__init__([], storage, Path("unused"))
        self.child = subprocess.Popen([sys.executable, "-c", code])
        storage.put_json(READY_FILE, {"pid": self.child.pid})
        self.ends = 0

    @property
    def pid(self) -> int | None:
        return self.child.pid

    def end_all(self) -> None:
        self.ends += 1


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def start(storage: Storage) -> Iterator[Callable[[str], tuple[Job, Watchdog]]]:
    jobs: list[Job] = []

    def started(code: str) -> tuple[Job, Watchdog]:
        job = Job(storage, code)
        jobs.append(job)
        return job, Watchdog(job, storage, STALL, LIMIT)

    yield started
    for job in jobs:
        job.child.kill()
        job.child.wait()


def used(job: Job) -> float:
    return sum(psutil.Process(job.child.pid).cpu_times()[:2])


IDLE = "import time; time.sleep(600)"
BUSY = "while True: pass"


def test_a_job_that_shows_signs_of_life_is_left_alone(
    storage: Storage, start: Callable[[str], tuple[Job, Watchdog]]
) -> None:
    job, watchdog = start(IDLE)
    for number in range(5):
        write_heartbeat(storage, number)
        watchdog.look(1.0)
        watchdog.look(STALL - 1.0)
    assert (job.ends, job.stall, watchdog.stalls) == (0, None, 0)


def test_a_batch_that_ends_is_a_sign_of_life(storage: Storage, start: Callable[[str], tuple[Job, Watchdog]]) -> None:
    job, watchdog = start(IDLE)
    write_heartbeat(storage, 1)
    watchdog.look(1.0)
    watchdog.look(STALL)
    assert job.stall is not None
    assert not job.is_ready()
    RecordLog(storage, BATCHES).append(1, {})
    watchdog.look(1.0)
    assert (job.stall, job.ends) == (None, 0)


def test_what_does_nothing_is_ended(storage: Storage, start: Callable[[str], tuple[Job, Watchdog]]) -> None:
    job, watchdog = start(IDLE)
    write_heartbeat(storage, 1)
    watchdog.look(1.0)
    for _ in range(round(STALL)):
        watchdog.look(1.0)
    assert (job.ends, watchdog.stalls) == (0, 1), "it is watched first"
    for _ in range(round(WATCHED_SECONDS)):
        watchdog.look(1.0)
    assert job.ends == 1
    assert not storage.exists(OUTLASTED)


def test_a_slow_first_batch_is_no_error(
    storage: Storage, start: Callable[[str], tuple[Job, Watchdog]], caplog: pytest.LogCaptureFixture
) -> None:
    job, watchdog = start(IDLE)
    caplog.set_level(logging.INFO, "braid.watchdog")
    RecordLog(storage, BATCHES).append(1, {})  # of an earlier start
    storage.delete(READY_FILE)
    write_heartbeat(storage, 1)
    watchdog.look(1.0)
    watchdog.look(STALL)
    assert (watchdog.stalls, job.stall is None) == (0, False)
    first = ("INFO", "the job has ended no batch since its start; it is given time")
    assert [(record.levelname, record.message) for record in caplog.records] == [first]
    RecordLog(storage, BATCHES).append(2, {})
    storage.put_json(READY_FILE, {"pid": job.child.pid})
    watchdog.look(1.0)
    watchdog.look(STALL)
    assert watchdog.stalls == 1
    again = ("INFO", "the job makes progress again")
    later = ("ERROR", "the job shows no sign of life; if it hangs it is ended and started again")
    assert [(record.levelname, record.message) for record in caplog.records] == [first, again, later]


def test_what_starts_is_given_time(start: Callable[[str], tuple[Job, Watchdog]]) -> None:
    job, watchdog = start(IDLE)
    watchdog.look(1.0)
    watchdog.look(START_SECONDS - 1.0)
    assert (job.ends, job.stall) == (0, None)


def test_a_stopped_process_is_ended_at_once(storage: Storage, start: Callable[[str], tuple[Job, Watchdog]]) -> None:
    job, watchdog = start(BUSY)
    write_heartbeat(storage, 1)
    watchdog.look(1.0)
    os.kill(job.child.pid, signal.SIGSTOP)
    process = psutil.Process(job.child.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 30, "the process stops")
    watchdog.look(STALL)
    assert job.ends == 1


def test_time_in_which_other_programs_have_the_processor_does_not_count(
    storage: Storage, start: Callable[[str], tuple[Job, Watchdog]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorShare, "of", lambda *_: 0.25)
    job, watchdog = start(BUSY)
    write_heartbeat(storage, 1)
    looks = 1 + round(STALL + (LIMIT - STALL) / 0.25)
    monkeypatch.setattr(Watchdog, "_is_still", lambda *_: False)  # seconds pass at once here, and it works in none
    for _ in range(looks - 4):
        watchdog.look(1.0)
    assert (job.ends, watchdog.stalls) == (0, 1)
    for _ in range(4):
        watchdog.look(1.0)
    assert job.ends == 1


@pytest.mark.long
def test_a_batch_that_works_for_too_long_is_ended_and_noted_and_then_given_twice_the_time(
    storage: Storage, start: Callable[[str], tuple[Job, Watchdog]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessorShare, "of", lambda *_: 1.0)  # other tests run beside this one
    job, watchdog = start(BUSY)
    storage.put("checkpoint/offsets/0", b"v1\n{}\n{}")

    def look_for(seconds: float) -> None:
        watchdog.look(1.0)
        watchdog.look(STALL)
        for _ in range(round(seconds - STALL) - 1):
            before = used(job)
            wait_until(lambda before=before: used(job) >= before + 0.06, 60, "the process works")  # type: ignore[misc]
            watchdog.look(1.0)

    write_heartbeat(storage, 1)
    look_for(LIMIT)
    assert job.ends == 0
    watchdog.look(1.0)
    assert job.ends == 1
    assert orjson.loads(storage.get(OUTLASTED)) == {"seq": 1}
    write_heartbeat(storage, 2)
    look_for(2 * LIMIT)
    assert job.ends == 1
    watchdog.look(1.0)
    assert job.ends == 2
