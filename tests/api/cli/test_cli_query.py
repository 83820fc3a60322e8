"""`braid query` and `braid results`, as processes with signals, pipes and terminals, and in this process."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pytest

from braid.api.cli import query as query_command
from tests.api.cli.playback import DEADLINE_SECONDS, Braid, Playback, Start, problem, running

SQL = "SELECT user_id FROM purchases WHERE price > 5"
RESULTS = "/queries/q-1/results"


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Wait for a process; return its status, stdout and stderr."""
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, (out or b"").decode(), (err or b"").decode()


def follows(service: Playback, polls: int = 1) -> None:
    """Wait until the command long-polls for the nth time."""
    service.wait_until(lambda: len(service.asked("GET", RESULTS)) >= polls)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_retires_the_query_and_says_so(service: Playback, start: Start, number: int) -> None:
    process = start("query", SQL)
    follows(service)
    service.emit("q-1", {"user_id": 7})
    follows(service, 2)
    process.send_signal(number)
    status, out, err = ended(process)
    assert (status, out) == (0, "user_id\n      7\n"), "standard output has rows only"
    assert err.splitlines() == [
        "query q-1 is RUNNING, deployed in 0.84 s; Ctrl-C retires it",
        "retired query q-1",
    ]
    assert [request.query for request in service.asked("DELETE", "/queries/q-1")] == [{"drain": "false"}]
    assert service.queries["q-1"]["state"] == "RETIRED"


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_query_that_finishes_says_which_rows_were_set_aside(service: Playback, start: Start, has_rows: bool) -> None:
    process = start("query", SQL)
    follows(service)
    with service.changed:
        service.queries["q-1"]["active_from"] = {"purchases": None, "subquery q-2": None}
        if not has_rows:
            service.queries["q-1"]["waiting_for"] = {"reason": "malformed", "detail": "All 9 inputs are malformed."}
    if has_rows:
        service.emit("q-1", {"user_id": 7})
    service.set_state("q-1", "FINISHED")
    status, _, err = ended(process)
    assert status == 0
    late = (
        "1 row was late in stream purchases: it came more than its LATENESS (1.5 s) after later ones, as rows do"
        " that are pushed twice. Queries that ran then did not see them; one that starts at 'earliest' may. `braid"
        " streams purchases --dead-letters` lists them."
    )
    malformed = "2 rows were malformed in stream purchases. `braid streams purchases --dead-letters` lists them."
    said = [late, malformed] if has_rows else ["no row: All 9 inputs are malformed."]
    assert err.splitlines()[1:] == ["query q-1 is FINISHED", *said]


def test_a_shell_that_ignores_interrupts_in_the_background_does_not_keep_it(service: Playback, start: Start) -> None:
    process = start("query", SQL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    follows(service)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 0
    assert service.queries["q-1"]["state"] == "RETIRED"


def test_an_interrupt_before_the_answer_leaves_no_query_behind(service: Playback, start: Start) -> None:
    service.hold_registrations = True
    process = start("query", SQL)
    service.wait_until(lambda: len(service.queries) == 1)
    process.send_signal(signal.SIGINT)
    service.wait_until(lambda: len(service.asked("POST", "/queries")) == 2)
    with service.changed:
        service.hold_registrations = False
        service.changed.notify_all()
    status, _, err = ended(process)
    assert (status, err) == (0, "retired query q-1\n")
    assert [query["state"] for query in service.queries.values()] == ["RETIRED"]


def test_rows_are_printed_as_they_come(service: Playback, start: Start) -> None:
    process = start("query", SQL, "--json")
    assert process.stdout is not None
    follows(service)
    for number in range(3):
        service.emit("q-1", {"user_id": number, "name": "ü"})
        # blocks until the line is there, while the command goes on
        assert json.loads(process.stdout.readline()) == {"user_id": number, "name": "ü"}
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process)
    assert (status, out) == (0, "")
    assert "deployed in 0.84 s" in err
    assert "retired query q-1" in err


def test_a_reader_that_goes_away_retires_the_query(service: Playback, start: Start) -> None:
    process = start("query", SQL, "--json")
    assert process.stdout is not None
    follows(service)
    process.stdout.close()
    service.emit("q-1", {"user_id": 1})
    service.wait_until(lambda: service.asked("DELETE", "/queries/q-1"))
    assert process.wait(DEADLINE_SECONDS) != 0
    assert service.queries["q-1"]["state"] == "RETIRED"


def test_a_sink_still_gets_what_is_complete(service: Playback, start: Start) -> None:
    process = start("query", SQL, "--sink", '{"connector": "file"}')
    follows(service)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 0
    assert service.queries["q-1"]["sink"] == {"connector": "file"}
    assert service.asked("DELETE", "/queries/q-1")[0].query == {"drain": "true"}


def test_a_service_that_goes_away_is_status_3_and_names_the_way_back(start: Start) -> None:
    with running() as leaving:
        process = start("query", SQL, "--url", leaving.url)
        follows(leaving)
        leaving.emit("q-1", {"user_id": 1})
        follows(leaving, 2)
    status, out, err = ended(process)
    assert status == 3
    assert "retired query" not in out + err
    assert "`braid drop q-1`" in err
    assert "`braid results q-1 --follow --after 1`" in err
    assert f"no Braid service answers at {leaving.url}" in err


def test_the_end_of_the_results_ends_the_command(service: Playback, start: Start) -> None:
    process = start("query", SQL)
    follows(service)
    service.set_state("q-1", "RETIRED")
    status, _, err = ended(process)
    assert status == 0
    assert err.endswith("query q-1 is RETIRED\n")
    assert service.asked("DELETE", "/queries/q-1") == []


def test_a_query_that_fails_is_status_1_with_its_error(service: Playback, start: Start) -> None:
    process = start("query", SQL)
    follows(service)
    service.set_state("q-1", "FAILED", "division by zero")
    status, _, err = ended(process)
    assert status == 1
    assert err.splitlines()[1:] == ["Error: query q-1 is FAILED: division by zero"]


def test_the_limit_ends_the_command_and_the_query(service: Playback, start: Start) -> None:
    process = start("query", SQL, "--json", "--limit", "2")
    follows(service)
    service.emit("q-1", {"n": 1}, {"n": 2}, {"n": 3})
    status, out, err = ended(process)
    assert (status, out) == (0, '{"n": 1}\n{"n": 2}\n')
    assert "retired query q-1" in err


def test_detach_only_registers(service: Playback, braid: Braid) -> None:
    words = ["--name", "cheap", "--ttl", "60", "--label", "team=ads", "--label", "a=b=c", "--wait", "3"]
    result = braid("--url", service.url, "query", SQL, "--detach", *words)
    assert result.stdout == "query q-1 (cheap) is RUNNING, deployed in 0.84 s\n"
    assert len(service.requests) == 1
    assert service.last().query == {"wait": "3.0"}
    assert service.last().json == {
        "sql": SQL,
        "name": "cheap",
        "ttl_seconds": 60,
        "labels": {"team": "ads", "a": "b=c"},
    }
    printed = braid("--url", service.url, "query", SQL, "--detach", "--json").stdout
    assert json.loads(printed)["id"] == "q-2"


def test_a_query_may_come_from_standard_input(service: Playback, braid: Braid) -> None:
    result = braid("--url", service.url, "query", "-", "--detach", input=SQL + "\n")
    assert result.exit_code == 0
    assert service.last().json == {"sql": SQL + "\n"}


def test_results_prints_what_there_is_and_where_to_go_on(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": SQL, "name": "cheap"})
    service.emit("q-1", *({"n": n} for n in range(1000, 2500)))
    result = braid("--url", service.url, "results", "cheap", "--limit", "1200")
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + 1200
    assert result.stderr == "cursor: 1200\n"
    result = braid("--url", service.url, "results", "q-1", "--after", "1200", "--json")
    assert [json.loads(line)["n"] for line in result.stdout.splitlines()] == list(range(2200, 2500))
    assert result.stderr == "cursor: 1500\n"
    assert all("wait" not in request.query for request in service.asked("GET", RESULTS))


def test_digits_are_printed_as_the_service_sent_them(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": SQL})
    digits = ("4.10", "12345678901234567890123456.70", "0.1", "1e-7")
    service.emit("q-1", *({"top": orjson.Fragment(text), "n": 1} for text in digits))
    result = braid("--url", service.url, "results", "q-1")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [[text, "1"] for text in digits]
    result = braid("--url", service.url, "results", "q-1", "--json")
    assert result.stdout.splitlines() == [f'{{"top": {text}, "n": 1}}' for text in digits]


def test_results_says_why_there_is_no_row(service: Playback, braid: Braid) -> None:
    query = service.add_query({"sql": SQL})
    query["waiting_for"] = {"reason": "no_tuple", "detail": "No row of stream purchases has come."}
    result = braid("--url", service.url, "results", "q-1")
    assert "no row: No row of stream purchases has come." in result.stderr
    result = braid("--url", service.url, "results", "q-1", "--json")
    assert "No row of stream purchases has come." in result.stderr, "standard output has rows only"


def test_a_query_without_rows_says_once_why(service: Playback, braid: Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_command, "_FIRST_ROW_SECONDS", 0.05)

    def emit_after_some_waits() -> None:
        follows(service)
        service.queries["q-1"]["waiting_for"] = {"reason": "no_tuple", "detail": "No row has come."}
        follows(service, len(service.asked("GET", RESULTS)) + 3)
        service.emit("q-1", {"n": 1})

    emitter = threading.Thread(target=emit_after_some_waits)
    emitter.start()
    result = braid("--url", service.url, "query", SQL, "--limit", "1")
    emitter.join()
    assert result.stdout == "n\n1\n"
    assert result.stderr.splitlines()[1:] == ["no row yet: No row has come.", "retired query q-1"]


def test_a_terminal_says_once_why_no_further_row_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(query_command.time, "monotonic", lambda: now)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    hint, query = query_command._NoRowHint(), {"state": "RUNNING", "open_window": {"detail": "A window is open."}}
    hint.tell(query)
    hint.note_rows()
    now += query_command._QUIET_SECONDS - 1
    hint.tell(query)
    assert capsys.readouterr().err == "", "rows have just come"
    now += 1
    hint.tell(query)
    hint.tell(query)
    assert capsys.readouterr().err == "no further row yet: A window is open.\n"
    monkeypatch.undo()
    hint = query_command._NoRowHint()
    hint.note_rows()
    monkeypatch.setattr(query_command, "_QUIET_SECONDS", 0.0)
    hint.tell(query)
    assert capsys.readouterr().err == "", "only a person in a terminal asks"


def test_results_follows_until_the_end(service: Playback, start: Start) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", {"n": 1})
    process = start("results", "q-1", "--follow")
    follows(service, 2)
    service.emit("q-1", {"n": 2})
    follows(service, 3)
    service.set_state("q-1", "RETIRED")
    assert ended(process) == (0, "n\n1\n2\n", "cursor: 2  (the end)\n")


def test_interrupted_results_name_the_cursor_and_leave_the_query(service: Playback, start: Start) -> None:
    service.add_query({"sql": SQL})
    service.emit("q-1", {"n": 1})
    process = start("results", "q-1", "--follow", "--json")
    follows(service, 2)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (0, '{"n": 1}\n', "cursor: 1\n")
    assert service.queries["q-1"]["state"] == "RUNNING"


def test_results_of_nothing_is_a_refusal(service: Playback, braid: Braid) -> None:
    result = braid("--url", service.url, "results", "q-9")
    assert result.exit_code == 1
    assert result.stderr == "Refused (404 Not Found): There is no query 'q-9'.\n"


@contextmanager
def terminal(columns: int) -> Iterator[tuple[int, int]]:
    """Open a terminal of some width; give its two ends."""
    master_fd, terminal_fd = pty.openpty()
    fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield master_fd, terminal_fd
    finally:
        os.close(master_fd)
        os.close(terminal_fd)


def read_until(end: int, *marks: bytes) -> bytes:
    """Read from a terminal until marks have come, in order; fail when they do not within the deadline."""
    text, at, until = b"", 0, time.monotonic() + DEADLINE_SECONDS
    for mark in marks:
        while mark not in text[at:]:
            ready, _, _ = select.select([end], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"{mark!r} must come, got {text!r}"
            text += os.read(end, 65536)
        at = text.index(mark, at) + len(mark)
    return text


@pytest.mark.parametrize(("columns", "shortened"), [(50, True), (200, False)])
def test_a_terminal_gets_colours_and_lines_that_fit(
    service: Playback, start: Start, columns: int, shortened: bool
) -> None:
    with terminal(columns) as (master_fd, terminal_fd):
        process = start("query", SQL, "--limit", "1", stdout=terminal_fd, stderr=terminal_fd)
        follows(service)
        service.emit("q-1", {"user_id": 123456789, "text": "x" * 100})
        text = read_until(master_fd, b"retired query q-1").decode()
        assert ended(process)[0] == 0
    header, row = text.split("\r\n")[1:3]
    assert header.startswith("\x1b[1m")
    assert "\x1b" not in row
    assert "123456789" in row
    assert ("…" in row) == shortened
    assert len(row) <= columns


def test_a_terminal_shows_how_much_of_the_past_is_read_until_rows_come(service: Playback, start: Start) -> None:
    with terminal(100) as (master_fd, terminal_fd):
        process = start("query", SQL, "--limit", "1", "--start", "earliest", stdout=terminal_fd, stderr=terminal_fd)
        shown = read_until(master_fd, b"catching up with purchases", b"6/100")
        looks = len(service.asked("GET", "/queries/q-1"))
        service.wait_until(lambda: len(service.asked("GET", "/queries/q-1")) >= looks + 3)
        service.emit("q-1", {"user_id": 7})
        rest = read_until(master_fd, b"user_id", b"7", b"retired query q-1")
        assert ended(process)[0] == 0
    assert b"no row yet" not in shown, "the bar says it"
    assert b"0/?" not in shown + rest, "a stream has one bar"
    assert b"catching up" not in rest[rest.index(b"user_id") :]


def test_a_terminal_says_for_what_the_rows_of_the_next_window_wait(service: Playback, start: Start) -> None:
    query = service.add_query({"sql": SQL})
    query["open_window"] = {"detail": "The watermark is before the end of the next window."}
    service.emit("q-1", {"n": 1})
    with terminal(200) as (master_fd, terminal_fd):
        process = start("results", "q-1", stdout=terminal_fd, stderr=terminal_fd)
        shown = b"cursor: 1\r\nno further row yet: The watermark is before the end of the next window.\r\n"
        read_until(master_fd, shown)
        assert ended(process)[0] == 0
    assert ended(start("results", "q-1"))[2] == "cursor: 1\n"


def test_a_pipe_gets_no_colour_codes(service: Playback, start: Start) -> None:
    service.play(problem(422, "Unknown column", "no", position={"line": 1, "column": 8}))
    assert "\x1b" not in ended(start("query", SQL))[2]
    service.add_query({"sql": SQL})
    for words in (["queries"], ["streams"], ["streams", "purchases"], ["explain", "q-1"], ["results", "q-1"]):
        status, out, err = ended(start(*words))
        assert status == 0
        assert out or err
        assert "\x1b" not in out + err
