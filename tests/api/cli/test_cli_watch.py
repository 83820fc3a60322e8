"""`braid watch`, in a terminal and elsewhere."""

from __future__ import annotations

import signal

import pytest
from rich.console import Console

from braid.api.cli.watch import Newest, drawn
from tests.api.cli.playback import Braid, Playback, Start
from tests.api.cli.test_cli_query import SQL, ended, follows, read_until, terminal


def test_rows_of_the_newest_window_are_kept() -> None:
    newest = Newest()
    newest.add([{"k": 1, "window_end": "2026-01-01T00:00:04Z"}, {"k": 1, "window_end": "2026-01-01T00:00:08Z"}])
    newest.add([{"k": 2, "window_end": "2026-01-01T00:00:08Z"}, {"k": 3, "window_end": "2026-01-01T00:00:04Z"}])
    assert [row["k"] for row in newest.rows] == [1, 2]


def test_of_changes_the_rows_that_hold_are_kept() -> None:
    newest = Newest()
    window = {"window_end": "2026-01-01T00:00:04Z"}
    newest.add([{"k": k, "n": 1, **window, "_op": "insert", "_ptime": "a", "_ver": 0} for k in (1, 2)])
    newest.add([{"k": 1, "n": 1, **window, "_op": "retract", "_ptime": "b", "_ver": 1}])
    newest.add([{"k": 1, "n": 2, **window, "_op": "insert", "_ptime": "b", "_ver": 2}])
    assert newest.rows == [{"k": 2, "n": 1, **window}, {"k": 1, "n": 2, **window}]


@pytest.mark.parametrize("height", [8, 24])
def test_the_table_fits_the_terminal(height: int) -> None:
    console = Console(width=40, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(drawn([{"n": n, "text": "x" * 100} for n in range(100)], "revenue", height))
    lines = captured.get().splitlines()
    assert len(lines) < height + 1
    assert all(len(line) <= 40 for line in lines)
    assert "99" in lines[-3]


def test_a_query_given_by_name_goes_on_after_ctrl_c(service: Playback, start: Start) -> None:
    service.add_query({"sql": SQL, "name": "revenue"})
    with terminal(80) as (master_fd, terminal_fd):
        process = start("watch", "revenue", stdout=terminal_fd, stderr=terminal_fd)
        follows(service)
        service.emit("q-1", {"user_id": 123456})
        read_until(master_fd, b"123456")
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 0
    assert service.queries["q-1"]["state"] == "RUNNING"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_query_given_as_sql_is_retired(service: Playback, start: Start, number: int) -> None:
    process = start("watch", SQL)
    follows(service)
    service.emit("q-1", {"user_id": 7})
    follows(service, 2)
    process.send_signal(number)
    status, out, _ = ended(process)
    assert (status, out) == (0, "user_id\n      7\n")
    assert service.queries["q-1"]["state"] == "RETIRED"


def test_without_a_terminal_each_change_prints_the_table(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": SQL, "name": "revenue"})
    service.emit("q-1", {"n": 1, "window_end": "a"}, {"n": 2, "window_end": "b"})
    service.set_state("q-1", "FINISHED")
    assert braid("--url", service.url, "watch", "revenue").stdout == "n  window_end\n2  b\n"
