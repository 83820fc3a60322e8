"""Help, version, exit statuses, and the commands that speak to no service."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version
from types import ModuleType

import click
import pytest

from braid.api.cli.main import cli
from tests.api.cli.playback import Braid, Playback, problem

COMMANDS = [
    "serve",
    "deliver",
    "query",
    "queries",
    "results",
    "watch",
    "replace",
    "pause",
    "resume",
    "drop",
    "explain",
    "streams",
    "tables",
    "refresh",
    "infer",
    "push",
    "sql",
    "shell",
    "tenants",
    "keys",
    "demo",
    "bench",
]


def test_all_commands_are_there_in_the_order_of_use() -> None:
    assert list(cli.commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_an_example_of_its_command(braid: Braid, command: str) -> None:
    result = braid(command, "--help")
    assert result.exit_code == 0
    assert f"braid {command}" in result.stdout.split("Example", 1)[1]


def test_the_help_fits_a_terminal_and_ends_with_examples(braid: Braid) -> None:
    lines = braid("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("..." in line for line in lines[lines.index("Commands:") :])
    assert "  braid serve" in lines


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by name, those below others instead of these."""
    for name, command in cli.commands.items():
        is_group = isinstance(command, click.Group) and name != "bench"
        yield from command.commands.items() if is_group else [(name, command)]


@pytest.mark.parametrize(
    "command",
    [
        each
        for name, each in leaves()
        if name not in ("serve", "deliver", "demo", "bench", "drop", "push", "revoke", "shell", "watch")
    ],
    ids=lambda command: command.name,
)
def test_every_command_that_prints_data_knows_json(command: click.Command) -> None:
    assert any("--json" in parameter.opts for parameter in command.params)


def test_the_version_is_the_distributions(braid: Braid) -> None:
    assert braid("--version").stdout == f"braid, version {version('braid-sql')}\n"


def test_nobody_listening_is_status_3_and_says_what_to_do(braid: Braid) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = braid("--url", url, "queries")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert url in result.stderr
    assert "`braid serve`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_refusal_is_status_1_with_a_caret(braid: Braid, service: Playback) -> None:
    service.play(problem(422, "Unknown column", "no column 'pric'; there is price", position={"line": 1, "column": 8}))
    result = braid("query", "SELECT pric FROM purchases", "--url", service.url)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Refused (422 Unknown column): no column 'pric'; there is price",
        "  SELECT pric FROM purchases",
        "         ^",
    ]


def test_an_overload_says_when_to_try_again(braid: Braid, service: Playback) -> None:
    overload = problem(429, "Too Many Requests", "1000 queries are the quota")
    overload.headers["Retry-After"] = "7"
    service.play(overload)
    result = braid("--url", service.url, "streams")
    assert result.exit_code == 1
    assert "Try again in 7 s." in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["query"],
        ["query", " "],
        ["query", "SELECT 1", "--label", "team"],
        ["query", "SELECT 1", "--ttl", "0"],
        ["query", "SELECT 1", "--limit", "0"],
        ["query", "SELECT 1", "--detach", "--limit", "3"],
        ["query", "SELECT 1", "--sink", "{broken"],
        ["queries", "--state", "SLEEPING"],
        ["results", ".."],
        ["results", "q-1", "--limit", "many"],
        ["drop", ""],
        ["drop", "--stream", "purchases", "--no-drain"],
        ["explain", "SELECT 1 FROM s", "--format", "dot"],
        ["push", "purchases", "no-such-file"],
        ["push", "purchases", "--format", "xml"],
        ["push", "purchases", "--key", "Schlüssel"],
        ["serve", "--port", "65536"],
        ["--url", "localhost:8080", "queries"],
        ["queries", "--url", "ftp://host"],
        ["demo", "--seconds", "0"],
        ["bench"],
        ["bench", "no-such-workload"],
        ["bench", "--peers", "spark"],
        ["bench", "rovio-join", "--peers", "storm"],
        ["bench", "rovio-join", "--queries", "1,many"],
        ["bench", "rovio-join", "--queries", "0"],
        ["bench", "rovio-join", "--rounds", "0"],
        ["bench", "rovio-join", "--seconds", "0"],
        ["bench", "rovio-join", "--output", "pyproject.toml"],
        ["bench", "compare", "pyproject.toml"],
        ["bench", "compare", "pyproject.toml", "pyproject.toml"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2_and_asks_nobody(braid: Braid, service: Playback, words: list[str]) -> None:
    result = braid(*words, env={"BRAID_URL": service.url})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr
    assert service.requests == []


def test_the_url_comes_from_the_command_then_the_group_then_the_environment(braid: Braid, service: Playback) -> None:
    for words, environment in (
        (["--url", "http://127.0.0.1:1", "streams", "--url", service.url], {}),
        (["--url", service.url, "streams"], {"BRAID_URL": "http://127.0.0.1:1"}),
        (["streams"], {"BRAID_URL": service.url + "/"}),
    ):
        assert braid(*words, env=environment).exit_code == 0


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], {}),
        (["--port", "8080"], {"port": 8080}),
        (
            ["--host", "::1", "--data-dir", "s3://braid/d", "--master", "local[2]", "--config", "b.toml"],
            {"host": "::1", "data_dir": "s3://braid/d", "master": "local[2]", "config": "b.toml"},
        ),
    ],
)
def test_serve_passes_on_only_what_was_typed(
    braid: Braid, monkeypatch: pytest.MonkeyPatch, words: list[str], flags: dict[str, object]
) -> None:
    passed_on: list[dict[str, object]] = []

    def run(typed: dict[str, object]) -> int:
        passed_on.append(typed)
        return 5

    module = ModuleType("braid.api.serve")
    module.__dict__["serve"] = run
    monkeypatch.setitem(sys.modules, "braid.api.serve", module)
    result = braid("serve", *words, env={"BRAID_PORT": "9", "BRAID_HOST": "nowhere"})
    assert passed_on == [flags]
    assert result.exit_code == 5


def test_demo_runs_for_the_seconds_given(braid: Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[int] = []
    module = ModuleType("braid.bench_driver.demo")
    module.__dict__["run_demo"] = seconds.append
    monkeypatch.setitem(sys.modules, "braid.bench_driver.demo", module)
    assert braid("demo", "--seconds", "3").exit_code == 0
    assert seconds == [3]
