"""The supervisor against small real children: restart, readiness, stop, leftovers, log."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psutil
import pytest

from braid.session.upkeep.job_supervisor import JobSupervisor, end_leftovers
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until

CHILD = """
import json, os, pathlib, signal, subprocess, sys, psutil
data = pathlib.Path(sys.argv[1])
mode = sys.argv[2]
print(f"child {os.getpid()} says 100% hello", flush=True)
if mode == "dies":
    sys.exit(3)
if mode == "fails":
    (data / "failing.json").write_text(json.dumps({"pid": os.getpid(), "times": 2}))
    sys.stdin.read()
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "late":
    (data / "ready.json").write_text(json.dumps({"pid": os.getpid()}))
    sys.stdin.read()
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
if mode == "late":
    (data / "late.json").write_text(json.dumps({"pid": grandchild.pid}))
    sys.exit(0)
me, jvm = psutil.Process(), psutil.Process(grandchild.pid)
job = {"pid": me.pid, "create_time": me.create_time(), "jvm_pid": jvm.pid, "jvm_create_time": jvm.create_time()}
(data / "job.json").write_text(json.dumps(job))
(data / "ready.json").write_text(json.dumps({"pid": os.getpid()}))
if mode == "deaf":
    while True:
        signal.pause()
sys.stdin.read()
"""

Start = Callable[..., JobSupervisor]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start supervisors of the small child; all are stopped after the test."""
    started: list[JobSupervisor] = []

    def starter(mode: str, longest_pause: float = 30) -> JobSupervisor:
        command = [sys.executable, "-c", CHILD, str(tmp_path), mode]
        supervisor = JobSupervisor(
            command,
            Storage(str(tmp_path)),
            tmp_path / "logs" / "job.log",
            first_pause=0.05,
            longest_pause=longest_pause,
        )
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield starter
    for supervisor in started:
        supervisor.stop(1)


def job(folder: Path) -> dict[str, float]:
    """Return what the child wrote about itself."""
    value: dict[str, float] = orjson.loads((folder / "job.json").read_bytes())
    return value


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_becomes_ready_and_stops_when_its_input_ends(start: Start, tmp_path: Path) -> None:
    supervisor = start("serves")
    wait_until(supervisor.is_ready, 10, "the child is ready")
    child, jvm = supervisor.pid, int(job(tmp_path)["jvm_pid"])
    assert child is not None
    supervisor.stop(4)
    assert supervisor.pid is None
    assert gone(child)
    assert gone(jvm), "what the child started must end with it"
    assert not (tmp_path / "job.json").exists()
    assert supervisor.deaths == 0


def test_a_killed_child_is_started_again_and_its_jvm_is_ended(start: Start, tmp_path: Path) -> None:
    supervisor = start("serves")
    wait_until(supervisor.is_ready, 10, "the child is ready")
    first, jvm = supervisor.pid, int(job(tmp_path)["jvm_pid"])
    assert first is not None
    os.kill(first, 9)
    wait_until(lambda: supervisor.deaths == 1, 10, "the death is seen")
    wait_until(lambda: supervisor.is_ready() and supervisor.pid != first, 10, "another child is ready")
    assert gone(jvm)
    assert "signal 9" in supervisor.why_not_ready()


def test_temporary_files_of_a_child_go_with_it(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks = [tmp_path / "one", tmp_path / "two"]
    for disk in disks:
        disk.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, disks)))
    supervisor = start("serves")

    def folders() -> list[Path]:
        environment = psutil.Process(int(job(tmp_path)["jvm_pid"])).environ()
        return [Path(folder) for name in ("TMPDIR", "SPARK_LOCAL_DIRS") for folder in environment[name].split(",")]

    wait_until(supervisor.is_ready, 10, "the child is ready")
    killed, first = folders(), supervisor.pid
    assert first is not None
    assert [folder.parent for folder in killed[1:]] == disks
    for folder in killed:
        (folder / "left").write_text("behind")
    os.kill(first, 9)
    wait_until(lambda: supervisor.is_ready() and supervisor.pid not in (None, first), 10, "another child is ready")
    assert not [folder for folder in killed if folder.exists()]
    stopped = folders()
    assert all(folder.is_dir() for folder in stopped)
    supervisor.stop(4)
    assert not [folder for folder in stopped if folder.exists()]


def test_a_child_that_dies_while_the_disk_is_full_is_started_once_there_is_room(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = start("serves", longest_pause=0.1)
    wait_until(supervisor.is_ready, 10, "the child is ready")
    first, refused = supervisor.pid, []
    assert first is not None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def no_room(_: Storage, path: str, *__: object) -> None:
        refused.append(path)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Storage, "put", no_room)
        os.kill(first, 9)
        wait_until(lambda: len(refused) >= 3, 10, "three starts that the disk refuses")
    assert not supervisor.is_ready()
    wait_until(lambda: supervisor.is_ready() and supervisor.pid != first, 10, "another child is ready")
    assert len(list(tmp_path.glob("braid-job-*"))) == 1, "what a refused start made must go"


def test_a_child_that_dies_while_the_disk_is_away_is_started_once_it_is_back(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = start("serves", longest_pause=0.1)
    wait_until(supervisor.is_ready, 10, "the child is ready")
    first, jvm, refused = supervisor.pid, int(job(tmp_path)["jvm_pid"]), []
    assert first is not None
    get = Storage.get

    def away(storage: Storage, path: str) -> bytes:
        if path == "job.json":
            refused.append(supervisor.is_ready())
            raise OSError(5, "Input/output error")
        return get(storage, path)

    with monkeypatch.context() as broken:
        broken.setattr(Storage, "get", away)
        os.kill(first, 9)
        wait_until(lambda: len(refused) >= 4, 10, "the disk is asked again and again")
    assert not any(refused), "what has ended is not ready, whatever the file says"
    wait_until(lambda: supervisor.is_ready() and supervisor.pid != first, 10, "another child is ready")
    assert gone(jvm)


def test_a_child_that_cannot_start_is_tried_again_with_growing_pauses(start: Start) -> None:
    supervisor = start("dies", longest_pause=0.1)
    wait_until(lambda: supervisor.deaths >= 3, 20, "three deaths")
    assert not supervisor.is_ready()
    assert "exit status 3" in supervisor.why_not_ready()
    assert str(supervisor.log_file) in supervisor.why_not_ready()


def test_a_child_whose_query_ends_again_and_again_is_told_apart_from_one_that_starts(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "failing.json").write_text(f'{{"pid": {os.getpid()}, "times": 9}}')
    supervisor = start("serves")
    wait_until(supervisor.is_ready, 10, "the child is ready")
    assert "in a row" not in supervisor.why_not_ready()
    supervisor.stop(1)
    supervisor = start("fails")
    wait_until(lambda: "ended 2 times in a row" in supervisor.why_not_ready(), 10, "the reason is told")
    assert not supervisor.is_ready()
    assert str(supervisor.log_file) in supervisor.why_not_ready()


def test_a_deaf_child_is_killed_at_the_deadline(start: Start, tmp_path: Path) -> None:
    supervisor = start("deaf")
    wait_until(supervisor.is_ready, 10, "the child is ready")
    child, jvm = supervisor.pid, int(job(tmp_path)["jvm_pid"])
    assert child is not None
    supervisor.stop(1)
    assert gone(child)
    assert gone(jvm)


def test_what_a_child_starts_while_it_is_stopped_is_ended(start: Start, tmp_path: Path) -> None:
    supervisor = start("late")
    wait_until(supervisor.is_ready, 10, "the child is ready")
    supervisor.stop(10)
    grandchild = orjson.loads((tmp_path / "late.json").read_bytes())["pid"]
    wait_until(lambda: gone(grandchild), 10, "what was killed with the group of the child is gone")


def test_the_childs_output_goes_to_the_log_file(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    supervisor = start("serves")
    wait_until(lambda: "says 100% hello" in supervisor.log_file.read_text(), 10, "the log has the line")
    assert "hello" not in "".join(capfd.readouterr())


def test_the_ready_file_of_an_earlier_child_counts_for_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text(f'{{"pid": {os.getpid()}}}')
    supervisor = start("dies", longest_pause=5)
    assert not supervisor.is_ready()


def test_leftovers_are_ended_only_when_they_were_created_when_the_file_says(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        created = psutil.Process(process.pid).create_time()
        job_file = {"pid": process.pid, "create_time": created - 60, "jvm_pid": None, "jvm_create_time": None}
        storage.put("job.json", orjson.dumps(job_file))
        end_leftovers(storage)
        assert process.poll() is None, "a process with a reused id must be left alone"
        storage.put("job.json", orjson.dumps({**job_file, "create_time": created}))
        end_leftovers(storage)
        assert process.wait(10) == -9
    assert not storage.exists("job.json")
