"""Peer programs as child processes: JSON lines both ways, failures with the log's end, nothing left behind."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from braid.bench_driver.child import ChildFailedError, ChildProcess, session_processes

SECONDS = 20.0

ECHO = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("a word of a library", flush=True)
print(json.dumps({"child": child.pid}), flush=True)
for line in sys.stdin:
    value = json.loads(line)
    if value.get("do") == "fail":
        sys.exit("the words of the failure")
    print(json.dumps({"echo": value}), flush=True)
"""


@pytest.fixture
def peer() -> Iterator[ChildProcess]:
    process = ChildProcess("test-peer", [sys.executable, "-c", ECHO]).start()
    try:
        yield process
    finally:
        process.stop()
        shutil.rmtree(process.folder, ignore_errors=True)


def test_objects_go_in_and_come_back_with_their_time(peer: ChildProcess) -> None:
    before = time.time()
    peer.send({"number": 1})
    peer.send({"number": 2})
    line = peer.wait_for(lambda value: value.get("echo") == {"number": 2}, SECONDS, "the second echo")
    assert before <= line.arrived <= time.time()
    assert [echo.value for echo in peer.lines(after=1)] == [{"echo": {"number": 1}}, {"echo": {"number": 2}}]


def test_objects_that_were_taken_are_kept_no_longer(peer: ChildProcess) -> None:
    peer.send({"number": 1})
    peer.wait_for(lambda value: "echo" in value, SECONDS, "the first echo")
    assert [line.value for line in peer.take()][1:] == [{"echo": {"number": 1}}]
    peer.send({"number": 2})
    peer.wait_for(lambda value: "echo" in value, SECONDS, "the second echo")
    assert [line.value for line in peer.take()] == [{"echo": {"number": 2}}]
    assert peer.lines() == peer.take() == []


def test_other_text_on_its_stdout_goes_to_the_log(peer: ChildProcess) -> None:
    peer.wait_for(lambda value: "child" in value, SECONDS, "the child's number")
    assert "a word of a library" in peer.log.read_text()


def test_an_end_by_itself_is_told_with_the_end_of_the_log(peer: ChildProcess) -> None:
    peer.send({"do": "fail"})
    with pytest.raises(ChildFailedError, match=r"(?s)ended by itself with exit status 1.*words of the failure"):
        peer.wait_for(lambda value: "never" in value, SECONDS, "what never comes")
    with pytest.raises(ChildFailedError, match="exit status 1"):
        peer.check_alive()


def test_what_does_not_come_in_time_is_told(peer: ChildProcess) -> None:
    with pytest.raises(ChildFailedError, match=r"word that it is ready must come within 0.2 s, and did not"):
        peer.wait_for(lambda value: "ready" in value, 0.2, "word that it is ready")


def test_stop_ends_the_whole_session_and_removes_the_folder(peer: ChildProcess) -> None:
    child = peer.wait_for(lambda value: "child" in value, SECONDS, "the child's number").value["child"]
    session = os.getsid(child)
    assert session != os.getsid(0)
    folder = peer.folder
    peer.stop()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert session_processes(session) == []
    assert not folder.exists()
    peer.stop()


def test_the_log_of_a_failure_stays_and_nothing_else(peer: ChildProcess) -> None:
    (peer.folder / "state").mkdir()
    error = peer.failure("It must not fail")
    peer.stop()
    assert list(peer.folder.iterdir()) == [peer.log]
    assert str(peer.log) in str(error)


def test_a_program_that_is_not_running_is_refused_clearly() -> None:
    with pytest.raises(ChildFailedError, match="must be started before"):
        ChildProcess("idle", ["true"]).send({})
    with pytest.raises(ChildFailedError, match="is not started"):
        ChildProcess("idle", ["true"]).check_alive()


def test_a_command_that_does_not_exist_is_told() -> None:
    process = ChildProcess("nowhere", ["/no/such/program"])
    with pytest.raises(ChildFailedError, match="/no/such/program"):
        process.start()
    assert not process.folder.exists()
