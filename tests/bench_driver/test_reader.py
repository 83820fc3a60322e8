"""Rows that came together are counted by the end of their window."""

from __future__ import annotations

import pytest

from bench_driver.reader import arrivals_of


def test_rows_are_grouped_by_their_windows_end() -> None:
    ends = ["1970-01-01T00:00:09.000000Z", "1970-01-01T00:00:09.000000Z", "1970-01-01T00:00:10.000000Z"]
    arrivals = arrivals_of(10.75, ends)
    assert [(a.window_end, a.rows) for a in arrivals] == [(9.0, 2), (10.0, 1)]
    assert [a.latency for a in arrivals] == pytest.approx([1.75, 0.75])
    assert arrivals_of(1.0, []) == []
