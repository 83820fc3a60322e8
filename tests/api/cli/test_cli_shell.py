"""`braid shell`, typed and from a pipe."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from braid.api.cli.shell import NameCompleter, missing, typed
from braid.client import Client
from tests.api.cli.playback import Braid, Playback, Start, problem
from tests.api.cli.test_cli_query import ended, follows, read_until, terminal


def test_statements_from_a_pipe_run_in_order(service: Playback, braid: Braid) -> None:
    text = "CREATE STREAM purchases\n (note STRING DEFAULT 'a;b'); -- one;\n\\d purchases\nDROP STREAM x"
    result = braid("--url", service.url, "shell", input=text)
    assert result.exit_code == 0
    sent = [request.json["sql"] for request in service.asked("POST", "/sql")]
    assert sent == ["CREATE STREAM purchases\n (note STRING DEFAULT 'a;b')", "DROP STREAM x"]
    assert "stream purchases is declared" in result.stdout
    assert "user_id  BIGINT" in result.stdout


def test_the_shell_runs_what_messages_advise_for_the_command_line(service: Playback, braid: Braid) -> None:
    service.add_query({"sql": "SELECT 'a' AS a FROM purchases", "name": "cheap"})
    result = braid("--url", service.url, "shell", input="braid drop cheap --no-drain\nDROP STREAM x;\n")
    assert result.exit_code == 0
    assert service.asked("DELETE", "/queries/cheap")[0].query == {"drain": "false"}
    assert "query q-1 is RETIRED" in result.stdout
    assert service.asked("POST", "/sql"), "the shell goes on"
    wrong = braid("--url", service.url, "shell", input="braid nothing\n")
    assert (wrong.exit_code, "nothing" in wrong.stderr) == (2, True)
    refused = braid("--url", service.url, "shell", input="braid drop unknown\nDROP STREAM x;\n")
    assert (refused.exit_code, "no query 'unknown'" in refused.stderr) == (1, True)
    assert len(service.asked("POST", "/sql")) == 1, "a refusal ends what a pipe brings"


def test_the_first_refusal_from_a_pipe_ends_the_shell(service: Playback, braid: Braid) -> None:
    service.play(problem(422, "Unknown", "no such stream", position={"line": 1, "column": 6}))
    result = braid("--url", service.url, "shell", input="DROP STREAM x; SHOW QUERIES;")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == ["  DROP STREAM x", "       ^"]
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("line", "said"), [("\\x", "must be one of"), ("\\watch", "needs the name"), ("\\d nothing", "'nothing'")]
)
def test_a_wrong_command_says_what_there_is(service: Playback, braid: Braid, line: str, said: str) -> None:
    service.play(*(problem(404, "Not Found", "no") for _ in range(3 * (line == "\\d nothing"))))
    result = braid("--url", service.url, "shell", input=line)
    assert result.exit_code == 1
    assert said in result.stderr


def test_ctrl_c_retires_the_query_and_leaves_the_shell_open(
    service: Playback, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PROMPT_TOOLKIT_NO_CPR", "1")  # this terminal does not tell where its cursor is
    with terminal(100) as (master_fd, terminal_fd):
        process = start("shell", stdin=terminal_fd, stdout=terminal_fd, stderr=terminal_fd)
        read_until(master_fd, b"braid>")
        for number in (1, 2):
            os.write(master_fd, b"SELECT user_id FROM purchases;\r")
            path = f"/queries/q-{number}/results"
            service.wait_until(lambda path=path: service.asked("GET", path))
            service.emit(f"q-{number}", {"user_id": 7})
            service.wait_until(lambda path=path: len(service.asked("GET", path)) >= 2)
            process.send_signal(signal.SIGINT)
            read_until(master_fd, f"retired query q-{number}".encode(), b"braid>")
        os.write(master_fd, b"\\q\r")
        assert ended(process)[0] == 0
    assert {query["state"] for query in service.queries.values()} == {"RETIRED"}


def test_a_closed_terminal_retires_the_query_and_ends_the_shell(service: Playback, start: Start) -> None:
    process = start("shell", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"SELECT user_id FROM purchases; SHOW QUERIES;\n")
    process.stdin.flush()
    follows(service)
    process.send_signal(signal.SIGHUP)
    assert ended(process)[0] == 0
    assert service.queries["q-1"]["state"] == "RETIRED"
    assert not service.asked("POST", "/sql")


def test_enter_waits_for_the_semicolon_and_history_is_kept(
    service: Playback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with create_pipe_input() as keys, Client(service.url) as client:
        keys.send_text("SHOW\rQUERIES; SHOW STREAMS;\r\\d\rhelp\rExit;\r\x04")
        entered = list(typed(client, input=keys, output=DummyOutput()))
    assert entered == [["SHOW\nQUERIES", "SHOW STREAMS"], ["\\d"], ["\\?"], ["\\q"]]
    history = tmp_path / "braid" / "history"
    assert "QUERIES; SHOW STREAMS;" in history.read_text(encoding="utf-8")
    assert stat.S_IMODE(history.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("SELECT 1", ""),
        ("SELECT 1\nFROM s", "a semicolon ends the statement"),
        ("SELECT 'it''s;\n", "' ends the text"),
        ('SELECT "it\n', '" ends the name'),
        ("SELECT 1 /* it's\n", "*/ ends the comment"),
    ],
)
def test_the_shell_says_what_a_statement_of_several_lines_needs(text: str, needed: str) -> None:
    assert missing(text) == needed


def test_names_columns_keywords_and_commands_are_completed(service: Playback) -> None:
    service.add_query({"sql": "SELECT 1", "name": "revenue"})
    with Client(service.url) as client:
        completer = NameCompleter(client)
    completer.learn_names()

    def completed(text: str) -> list[str]:
        return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]

    assert completed("SELECT us") == ["user_id", "USING"]
    assert completed("SELECT 1 FROM pur") == ["purchases"]
    assert completed("DROP QUERY rev") == ["revenue"]
    assert completed("\\w") == ["\\watch"]
    assert completed("\\watch rev") == ["revenue"]
