"""What the demo prints of a moment says what matters."""

from __future__ import annotations

from braid.bench_driver.demo_watch import DemoMoment, RateMeter, cells, clock_text

TIME = "2026-01-01T10:20:30.123456Z"


def test_a_moment_is_told_with_the_latest_row_of_each_watched_query() -> None:
    queries = [
        {"state": state, "rows_out": 1000, "event_time_latency_seconds": latency}
        for state, latency in (*[("RUNNING", 1.25)] * 51, ("RUNNING", None), ("DRAINING", 0.5))
    ]
    window = {"window_start": TIME, "window_end": "2026-01-01T10:20:32.123456Z", "gem_pack": 3}
    latest = {
        "revenue": window | {"revenue": 1234.5, "_partial": False},
        "expensive": {"time": TIME, "user_id": 7, "price": 99.95},
    }
    moment, revenue, expensive = DemoMoment({"purchases": 50_000, "ads": 0}, queries, 662.5, latest).text().splitlines()
    assert moment == (
        "purchases 50,000/s, ads 0/s | 52 queries RUNNING, 53,000 rows (662/s), event-time latency at most 1.25 s"
    )
    assert revenue.strip() == "revenue: window=10:20:30-10:20:32  gem_pack=3  revenue=1,234.50"
    assert expensive.strip() == "expensive: time=10:20:30.123  user_id=7  price=99.95"


def test_a_moment_without_rows_yet_is_told() -> None:
    assert DemoMoment({}, [], 0.0, {}).text() == "0 queries RUNNING, the first windows are not over yet"


def test_cells_join_the_window_and_keep_null_visible() -> None:
    row = {"window_start": TIME, "window_end": TIME, "gem_pack": None, "mean": 5.0, "_partial": True}
    assert cells(row) == {"window": "10:20:30-10:20:30", "gem_pack": "-", "mean": "5.00"}


def test_the_time_of_day_has_the_digits_that_are_asked() -> None:
    assert [clock_text(TIME, digits) for digits in (0, 1, 3)] == ["10:20:30", "10:20:30.1", "10:20:30.123"]
    assert clock_text(None, 3) == "-"


def test_a_rate_is_that_of_the_last_seconds() -> None:
    meter = RateMeter(seconds=4)
    rates = [meter.add("purchases", float(t), 100.0 * t if t < 5 else 500.0) for t in range(12)]
    assert rates[0] == 0.0
    assert rates[4] == 100.0
    assert rates[11] == 0.0
    assert meter.add("ads", 12.0, 7.0) == 0.0
