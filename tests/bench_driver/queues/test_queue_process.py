"""A queue's process serves, measures, and leaves nothing behind, however the driver ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pyarrow.flight as fl
import pytest

from braid.bench_driver.child import PROJECT
from braid.bench_driver.queues.process import Pull, QueueFailedError, QueueProcess, QueueSample
from braid.bench_driver.queues.schedule import Share
from tests.kit.waiting import wait_until

SECOND = 1_000_000
DEADLINE = 30.0
DRIVER = """
import sys
from braid.bench_driver.queues.process import QueueProcess
queue = QueueProcess("a", "ads", {}, 1).start()
print(queue.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the logs of queues that failed in the test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def queue() -> Iterator[QueueProcess]:
    with QueueProcess("a", "astream", {"keys": 10}, 1) as running:
        yield running


def pull(queue: QueueProcess, start: int, end: int, consumer: str) -> int:
    ticket = {"path": queue.stream, "partition": "0", "start": start, "end": end, "consumer": consumer}
    with fl.FlightClient(queue.location) as client:
        reader = client.do_get(fl.Ticket(json.dumps(ticket).encode()))
        return sum(chunk.data.num_rows for chunk in reader)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_generates_at_the_rate_it_is_told_and_is_measured_where_it_is_pulled(queue: QueueProcess) -> None:
    at = time.time_ns() // 1000
    queue.run(at, [(0.2, 1_000_000), (0.2, 0), (None, 500_000)])
    started = time.time()
    first = queue.schedule.segments[0].first_offset
    assert queue.schedule.time_of(first) == pytest.approx(at, abs=10)
    assert pull(queue, first, first + 150_000, "one") == 150_000
    assert pull(queue, first, first + 250_000, "two") == 250_000
    samples = wait_until(
        lambda: [s for s in queue.samples() if s.pulled.get("two") == first + 250_000][1:] and queue.samples(),
        DEADLINE,
        "samples show what was pulled",
    )
    assert [sample.at for sample in samples] == sorted(sample.at for sample in samples)
    for sample in (sample for sample in samples if sample.at > started):
        assert sample.generated == queue.schedule.generated(round(sample.at * SECOND))
    last = samples[-1]
    assert last.length("one") == last.generated - first - 150_000
    assert last.length() == last.length("one") > last.length("two")
    assert queue.samples()[: len(samples)] == samples
    first_pull, second_pull = queue.pulls()
    assert (first_pull.consumer, first_pull.start, first_pull.end) == ("one", first, first + 150_000)
    assert at / SECOND <= first_pull.at <= second_pull.at <= time.time()
    assert isinstance(first_pull, Pull)

    queue.stop_generating()
    end = queue.schedule.generated(time.time_ns() // 1000)
    assert queue.schedule.time_of(end) is None
    assert pull(queue, end - 1_000, end, "one") == 1_000


def test_samples_come_at_most_ten_a_second_and_cost_next_to_nothing(queue: QueueProcess) -> None:
    queue.run(time.time_ns() // 1000, [(None, 20_000_000)])
    process = psutil.Process(queue.pid)
    sample_count, busy, began = len(queue.samples()), sum(process.cpu_times()[:2]), time.monotonic()
    samples = wait_until(lambda: queue.samples()[sample_count + 10 :], DEADLINE, "ten more samples come")
    assert sum(process.cpu_times()[:2]) - busy < 0.3 * (time.monotonic() - began)
    assert all(later.at - sooner.at > 0.05 for sooner, later in pairwise(samples))


def test_what_it_refuses_is_told(queue: QueueProcess) -> None:
    with pytest.raises(QueueFailedError, match=r"did not do 'run': .*a rate must be a whole number .* got -5"):
        queue.run(0, [(1, -5)])
    queue.check_alive()


def test_ctrl_c_does_not_reach_it(queue: QueueProcess) -> None:
    assert queue.pid is not None
    assert os.getsid(queue.pid) == queue.pid != os.getsid(0)


def test_it_ends_in_order_while_somebody_waits_and_stays_ended() -> None:
    with QueueProcess("a", "ads", {}, 1) as queue:
        queue.run(time.time_ns() // 1000 - SECOND, [(0.1, 10)])
        pid = queue.pid
        assert pid is not None
        client = fl.FlightClient(queue.location)
        reader = client.do_get(fl.Ticket(json.dumps({"path": "a", "start": 0, "end": 100}).encode()))
        assert reader.read_chunk().data.num_rows == 1
    assert gone(pid)
    with pytest.raises(fl.FlightUnavailableError):
        list(reader)
    client.close()
    queue.stop()
    with pytest.raises(QueueFailedError, match="must be started before 'samples', and not stopped"):
        queue.samples()
    with pytest.raises(QueueFailedError, match="can be started once"):
        queue.start()


def test_it_ends_when_the_driver_dies() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True
    )
    with driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        assert not gone(pid)
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: gone(pid), DEADLINE, "the queue's process ends with its driver")


def test_why_it_does_not_start_is_told() -> None:
    with pytest.raises(QueueFailedError, match=r"(?s)exit status 2.*no dataset 'nexmark'; there are purchases"):
        QueueProcess("a", "nexmark", {}, 1).start()
    with pytest.raises(QueueFailedError, match=r"(?s)exit status 2.*it has no colour"):
        QueueProcess("a", "ads", {"colour": 1}, 1).start()
    with pytest.raises(QueueFailedError, match=r"(?s)exit status 2.*'seed' must be a whole number from 0, got -1"):
        QueueProcess("a", "ads", {}, -1).start()


def test_that_it_was_killed_is_told() -> None:
    with QueueProcess("a", "ads", {}, 1) as queue:
        assert queue.pid is not None
        os.kill(queue.pid, signal.SIGKILL)
        with pytest.raises(QueueFailedError, match="ended by itself with exit status -9"):
            queue.samples()


def test_the_length_is_that_of_the_slowest_consumer() -> None:
    assert QueueSample(0.0, 100).length() == 100
    assert QueueSample(0.0, 100, {"a": 70, "b": 30}).length() == 70
    assert QueueSample(0.0, 100, {"a": 70, "b": 30}).length("a") == 30
    assert QueueSample(0.0, 100, {"a": 70}).length("unknown") == 100


def test_a_queue_generates_its_share_of_the_rate() -> None:
    with QueueProcess("a", "nexmark-bids", {}, 1, Share(46, 50)) as queue:
        queue.run(time.time_ns() // 1000, [(None, 1_000_000)])
        assert queue.schedule.segments[-1].tuples_per_second == 920_000
        assert pull(queue, 0, 1000, "reader") == 1000
