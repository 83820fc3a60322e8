"""The table that streams: alignment, growth, narrow terminals."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from braid.api.cli.table import ColumnDigits, StreamTable, cell_text, fit_widths


def printed(*pages: list[dict[str, Any]], width: int | None = None) -> list[str]:
    """Print pages to a terminal of some width, or to a pipe; return the lines without colour codes."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=width is not None, color_system=None, highlight=False)
    table = StreamTable(console)
    for page in pages:
        table.add(page)
    return file.getvalue().splitlines()


def test_columns_are_aligned_numbers_to_the_right() -> None:
    assert printed([{"name": "a", "n": 1, "x": 1.5}, {"name": "long", "n": 200, "x": None}]) == [
        "name    n     x",
        "a       1   1.5",
        "long  200  NULL",
    ]


def test_pages_share_one_header_while_they_fit() -> None:
    assert printed([{"name": "abc"}], [{"name": "abcd"}], []) == ["name", "abc", "abcd"]


def test_a_wider_value_widens_the_columns_and_repeats_the_header() -> None:
    lines = printed([{"k": "a", "n": 1}], [{"k": "abcde", "n": 2}], [{"k": "abcdefgh", "n": 3}])
    assert lines == ["k  n", "a  1", "k         n", "abcde     2", "abcdefgh  3"]


def test_a_pipe_gets_every_value_whole() -> None:
    value = "x" * 500
    assert printed([{"a": value, "b": value}])[1] == f"{value}  {value}"


@pytest.mark.parametrize("width", [30, 40, 60, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    row = {"id": 123456789, "sql": "SELECT user_id, price FROM purchases", "name": "ein langer Name 漢字漢字"}
    lines = printed([row, row], width=width)
    assert len(lines) == 3
    assert all(cell_len(line) <= width for line in lines)
    assert all("123456789" in line for line in lines[1:])
    assert ("…" in lines[1]) == (width < 100)


def test_numbers_and_times_are_never_shortened() -> None:
    row = {"window_start": "2026-01-01T00:00:04.000000Z", "revenue": 1234567.25, "text": "y" * 90}
    for width in range(10, 120):
        text = "\n".join(printed([row], width=width))
        assert "2026-01-01T00:00:04Z" in text
        assert "1234567.25" in text


def test_a_very_narrow_terminal_gets_a_block_per_row() -> None:
    row = {"window_start": "2026-01-01T00:00:04.500000Z", "n": 7}
    assert printed([row], [row], width=20) == [
        "-- row 1",
        "window_start  2026-01-01T00:00:04.500000Z",
        "n             7",
        "-- row 2",
        "window_start  2026-01-01T00:00:04.500000Z",
        "n             7",
    ]


def test_a_column_that_comes_later_is_not_lost() -> None:
    assert printed([{"a": 1}], [{"a": 2, "b": "x"}]) == ["a", "1", "a  b", "2  x"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (2**60, "1152921504606846976"),
        (0.1 + 0.2, "0.3"),
        (ColumnDigits("4.10"), "4.10"),
        (ColumnDigits("1234567890123456789.00"), "1234567890123456789.00"),
        ({"a": [ColumnDigits("4.10"), None, True]}, '{"a": [4.10, null, true]}'),
        ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.100000Z", "2026-01-01T00:00:00.100000Z"),
        ("costs 1.000000Z", "costs 1.000000Z"),
        ("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"),
        ([1, "ü"], '[1, "ü"]'),
        ("[bold]", "[bold]"),
    ],
)
def test_values_are_written_for_people(value: Any, text: str) -> None:
    assert cell_text(value) == text


def test_the_widest_columns_shrink_first() -> None:
    assert fit_widths([4, 30, 20], [4, 8, 8], 40) == [4, 16, 16]
    assert fit_widths([4, 30, 20], [4, 8, 8], None) == [4, 30, 20]
    assert fit_widths([4, 30, 20], [4, 8, 8], 23) is None
