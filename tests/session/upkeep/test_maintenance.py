"""Jobs that nobody waits for: one at a time, not twice, and a failure is said and tried again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from braid.session.upkeep import maintenance
from braid.session.upkeep.maintenance import Maintenance
from tests.kit.waiting import wait_until


@pytest.fixture
def jobs() -> Iterator[Maintenance]:
    jobs = Maintenance()
    yield jobs
    jobs.close()


def test_before_the_start_a_job_runs_where_it_is_asked_for(jobs: Maintenance) -> None:
    ran: list[threading.Thread] = []
    jobs.run("job", lambda: ran.append(threading.current_thread()))
    assert ran == [threading.current_thread()]
    with pytest.raises(ZeroDivisionError):
        jobs.run("job", lambda: [][1 // 0])
    assert jobs.problem is None


def test_jobs_run_one_after_the_other_and_each_once_while_it_waits_or_runs(jobs: Maintenance) -> None:
    jobs.start()
    entered, go_on, done = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def slow() -> None:
        ran.append("slow")
        entered.set()
        assert go_on.wait(30)

    jobs.run("slow", slow)
    assert entered.wait(30)
    for _ in range(3):
        jobs.run("slow", slow)
        jobs.run("other", lambda: ran.append("other"))
    jobs.run("last", done.set)
    assert ran == ["slow"]
    go_on.set()
    assert done.wait(30)
    assert ran == ["slow", "other"]


def test_a_failure_is_said_until_a_job_succeeds(jobs: Maintenance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "RETRY_SECONDS", 0.01)
    jobs.start()

    def fails() -> None:
        raise OSError("the disk is full")

    jobs.run("job", fails)
    wait_until(lambda: jobs.problem, 10, "the failure is known")
    assert jobs.problem == "the disk is full"
    ran = threading.Event()
    wait_until(lambda: jobs.run("job", ran.set) or ran.is_set(), 10, "it runs again")  # type: ignore[func-returns-value]
    wait_until(lambda: jobs.problem is None, 10, "all is well again")


def test_closing_drops_what_waits(jobs: Maintenance) -> None:
    jobs.start()
    entered, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow() -> None:
        entered.set()
        assert go_on.wait(30)
        ran.append("slow")

    jobs.run("slow", slow)
    assert entered.wait(30)
    jobs.run("waits", lambda: ran.append("waits"))
    closing = threading.Thread(target=jobs.close)
    closing.start()
    wait_until(lambda: jobs._stopping, 10, "it is closing")
    go_on.set()
    closing.join(30)
    assert ran == ["slow"]
