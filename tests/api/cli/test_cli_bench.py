"""`braid bench`: what is wrong usage, what is passed on, and the commands that measure nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from braid.bench_driver import bench
from braid.bench_driver.bench_task import Options
from braid.bench_driver.report.document import Document
from braid.bench_driver.workload import list_workloads
from tests.api.cli.playback import Braid
from tests.bench_driver.report.made_up_rows import made_up_row


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return what would have been measured; nothing is."""
    runs: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> int:
        runs.append(arguments[:-1])
        return 0

    monkeypatch.setattr(bench, "run_bench", run)
    return runs


def test_options_are_passed_on(braid: Braid, passed_on: list[tuple[Any, ...]], tmp_path: Path) -> None:
    words = "bench astream-sc1 rovio-join --queries 1,20 --peers spark,flink-jobs --quick --rounds 3 --seconds 9.5"
    assert (
        braid(*words.split(), "--seed", "7", "--read", "all", "--rate", "5000", "--output", str(tmp_path)).exit_code
        == 0
    )
    besides = ("--beside", "query_groups=off", "--beside", "partitions=1,query_groups=off")
    assert braid("bench", "one-key", *besides).exit_code == 0
    assert braid("bench", "--quick", "one-key").exit_code == 0
    assert braid("bench", "run", "one-key").exit_code == 0
    assert passed_on == [
        (
            ("astream-sc1", "rovio-join"),
            (1, 20),
            ("spark", "flink-jobs"),
            tmp_path,
            Options(True, 3, 9.5, 7, "all", 5000),
        ),
        (("one-key",), None, (), Path("bench-report"), Options(False, 1, None, 1, variants=besides[1::2])),
        (("one-key",), None, (), Path("bench-report"), Options(True, 1, None, 1)),
        (("one-key",), None, (), Path("bench-report"), Options(False, 1, None, 1)),
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench"], "name one or more workloads: "),
        (["bench", "nope"], "there is no workload 'nope'; there are "),
        (["bench", "one-key", "--peers", "storm"], "spark (spark-queries, spark-fused"),
        (["bench", "one-key", "--peers", "spark,"], "names look like spark,flink, got 'spark,'"),
        (["bench", "one-key", "--beside", "query_groups"], "settings are written as NAME=VALUE,…, such as "),
        (["bench", "one-key", "--queries", "1;2"], "look like 1,20,100 and are at least 1, got '1;2'"),
    ],
)
def test_wrong_usage_says_what_exists(
    braid: Braid, passed_on: list[tuple[Any, ...]], words: list[str], says: str
) -> None:
    result = braid(*words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Usage: braid bench [OPTIONS]" in result.stderr
    assert passed_on == []


def test_workloads_and_peers_are_listed(braid: Braid) -> None:
    listed = braid("bench", "--list")
    assert listed.exit_code == 0
    assert listed.stdout == braid("bench", "list").stdout
    for name in [*list_workloads(), "spark-fused-own", "flink-statement-set"]:
        assert name in listed.stdout


def test_the_help_shows_the_options_of_a_run_and_the_other_commands(braid: Braid) -> None:
    text = braid("bench", "--help").stdout
    assert text == braid("bench", "one-key", "--help").stdout
    for word in ("WORKLOAD…", "--queries", "--quick", "compare", "list"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("package", ["matplotlib", "locust", "jinja2"])
def test_a_missing_package_is_told_before_anything_is_measured(
    braid: Braid, passed_on: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    find_spec = bench.find_spec
    monkeypatch.setattr(bench, "find_spec", lambda name: None if name == package else find_spec(name))
    result = braid("bench", "one-key")
    assert result.exit_code == 1
    assert result.stderr == f"Error: `braid bench` needs {package}: install it with pip install 'braid-sql[bench]'\n"
    assert passed_on == []


def test_a_folder_that_cannot_be_made_is_told(braid: Braid, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = braid("bench", "one-key", "--output", str(tmp_path / "file" / "report"))
    assert result.exit_code == 1
    assert "the report cannot be written to" in result.stderr


def test_two_reports_are_compared(braid: Braid, tmp_path: Path) -> None:
    for name, rate in (("before", 100_000.0), ("after", 200_000.0)):
        document = Document("braid bench one-key", {"rounds": 2}, {"cores": 2}, {})
        for number in (1, 2):
            row = made_up_row("braid", "one-key", 1, sustainable_tuples_per_second=rate + number, round=number)
            document.add_row(row)
        (tmp_path / name).mkdir()
        document.write(tmp_path / name)
    result = braid("bench", "compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if "sustainable" in line)
    assert line.split()[4:] == ["100,002", "200,002", "2.00", "x", "better"]


def test_comparing_needs_no_package(braid: Braid, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Document("braid bench", {}, {}, {}).write(tmp_path)
    for name in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("braid.bench_driver.report.html", "braid.bench_driver.report.plots"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert braid("bench", "compare", str(tmp_path), str(tmp_path)).exit_code == 0
