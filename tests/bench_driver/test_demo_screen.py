"""The screen fits every size of terminal and shows what matters."""

from __future__ import annotations

from collections import deque
from io import StringIO

import pytest
from rich.console import Console

from bench_driver.demo_screen import Header, cells, clock_text, draw, grouped, plain_line, plain_rows
from bench_driver.demo_script import MORE_PREFIX
from bench_driver.demo_watch import QueryLine, RateMeter, Snapshot, StreamLine

TIME = "2026-01-01T10:20:30.123456Z"


def query(name: str, state: str = "RUNNING") -> QueryLine:
    return QueryLine(name, name, "SELECT 1", state, 1000, 12.5, 1.25, 0.75)


@pytest.fixture
def snapshot() -> Snapshot:
    names = ["revenue", "expensive", *(f"{MORE_PREFIX}{i}" for i in range(50))]
    window = {"window_start": TIME, "window_end": "2026-01-01T10:20:32.123456Z", "gem_pack": 3}
    return Snapshot(
        [StreamLine("purchases", 1_234_567, 50_000, TIME, None), StreamLine("ads", 0, 0, None, None)],
        [query(name) for name in names] + [query("late-1", "DRAINING")],
        {
            "revenue": [window | {"revenue": 1234.5, "_partial": False}] * 40,
            "expensive": [{"time": TIME, "user_id": 7, "price": 99.95}] * 40,
        },
    )


def drawn(snapshot: Snapshot, width: int, height: int) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    news = deque(["first news", "second " * 40])
    with console.capture() as capture:
        console.print(draw(Header("http://127.0.0.1:1", 5, 60), snapshot, news, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 35), (200, 60)])
def test_the_screen_fits_the_terminal(snapshot: Snapshot, width: int, height: int) -> None:
    lines = drawn(snapshot, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("52 queries in one Spark job", "5 of 60 s", "1,234,567", "50 more", "DRAINING", "1,234.50"):
        assert part in text
    assert "10:20:30-10:20:32" in text
    assert "99.95" in text


def test_a_taller_terminal_shows_more_rows(snapshot: Snapshot) -> None:
    def rows(height: int) -> int:
        return sum("99.95" in line for line in drawn(snapshot, 100, height))

    assert 0 < rows(24) < rows(35)


def test_a_screen_without_rows_yet_is_drawn(snapshot: Snapshot) -> None:
    empty = Snapshot(snapshot.streams, [], {"revenue": [], "expensive": []})
    assert "none yet" in "\n".join(drawn(empty, 80, 24))


def test_only_the_last_finished_queries_are_shown() -> None:
    listed, similar = grouped([query(f"late-{i}", "RETIRED") for i in range(5)] + [query(f"{MORE_PREFIX}2")])
    assert [q.name for q in listed] == ["late-3", "late-4"]
    assert [q.name for q in similar] == [f"{MORE_PREFIX}2"]


def test_cells_join_the_window_and_keep_null_visible() -> None:
    row = {"window_start": TIME, "window_end": TIME, "gem_pack": None, "mean": 5.0, "_partial": True}
    assert {name: text.plain for name, text in cells(row).items()} == {
        "window": "10:20:30-10:20:30",
        "gem_pack": "-",
        "mean": "5.00",
    }


def test_the_time_of_day_has_the_digits_that_are_asked() -> None:
    assert [clock_text(TIME, digits) for digits in (0, 1, 3)] == ["10:20:30", "10:20:30.1", "10:20:30.123"]
    assert clock_text(None, 3) == "-"


def test_the_plain_line_tells_the_same(snapshot: Snapshot) -> None:
    line = plain_line(Header("http://127.0.0.1:1", 5, None), snapshot)
    assert "purchases 50,000/s" in line
    assert "52 queries RUNNING, 53,000 rows" in line
    assert "at most 1.25 s" in line


def test_plain_output_shows_the_latest_row_of_each_watched_query(snapshot: Snapshot) -> None:
    revenue, expensive = plain_rows(snapshot)
    assert revenue.strip() == "revenue: window=10:20:30-10:20:32  gem_pack=3  revenue=1,234.50"
    assert expensive.strip() == "expensive: time=10:20:30.123  user_id=7  price=99.95"


def test_a_rate_is_that_of_the_last_seconds() -> None:
    meter = RateMeter(seconds=4)
    rates = [meter.add("purchases", float(t), 100.0 * t if t < 5 else 500.0) for t in range(12)]
    assert rates[0] == 0.0
    assert rates[4] == 100.0
    assert rates[11] == 0.0
    assert meter.add("ads", 12.0, 7.0) == 0.0
