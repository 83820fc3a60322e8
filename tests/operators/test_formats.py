"""DATE_FORMAT and STRFTIME: the letters of both, what stands between, and what is no format."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Literal
from braid.operators.functions import call
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import TIMESTAMP, VARCHAR
from tests.kit.duck import connected
from tests.kit.examples import examples

TIME = Column("t", TIMESTAMP)
CODES = ["%Y", "%m", "%d", "%H", "%M", "%S", "%f", "%j", "%A", "%a", "%B", "%b", "%p", "%I", "%y", "%%"]
TEXTS = ["-", "é ", "T", "\n", "'", "yyyy"]
MOMENTS = st.datetimes() | st.sampled_from([dt.datetime.min, dt.datetime.max])
COLUMNS = st.lists(st.none() | MOMENTS, min_size=1, max_size=8)
# in Java's letters, and in Python
LETTERS: dict[str, Callable[[dt.datetime], str]] = {
    "y": lambda t: str(t.year),
    "yy": lambda t: f"{t.year % 100:02}",
    "yyyy": lambda t: f"{t.year:04}",
    "uuuu": lambda t: f"{t.year:04}",
    "Q": lambda t: str((t.month + 2) // 3),
    "M": lambda t: str(t.month),
    "MM": lambda t: f"{t.month:02}",
    "MMM": lambda t: t.strftime("%b"),
    "MMMM": lambda t: t.strftime("%B"),
    "D": lambda t: str(t.timetuple().tm_yday),
    "DDD": lambda t: f"{t.timetuple().tm_yday:03}",
    "d": lambda t: str(t.day),
    "dd": lambda t: f"{t.day:02}",
    "EE": lambda t: t.strftime("%a"),
    "EEE": lambda t: t.strftime("%a"),
    "EEEE": lambda t: t.strftime("%A"),
    "a": lambda t: "AM" if t.hour < 12 else "PM",
    "H": lambda t: str(t.hour),
    "HH": lambda t: f"{t.hour:02}",
    "h": lambda t: str(t.hour % 12 or 12),
    "hh": lambda t: f"{t.hour % 12 or 12:02}",
    "mm": lambda t: f"{t.minute:02}",
    "s": lambda t: str(t.second),
    "ss": lambda t: f"{t.second:02}",
    "S": lambda t: f"{t.microsecond:06}"[:1],
    "SSS": lambda t: f"{t.microsecond:06}"[:3],
    "SSSSSS": lambda t: f"{t.microsecond:06}",
    "'T'": lambda _: "T",
    "'it''s'": lambda _: "it's",
    "''": lambda _: "'",
    "é%/": lambda _: "é%/",
}


def formatted(name: str, form: str, moments: list[dt.datetime | None]) -> list[str | None]:
    expression = call(name, TIME, Literal(form, VARCHAR))
    values: list[str | None] = evaluate(
        expression, {"t": pa.array(moments, pa.timestamp("us"))}, len(moments)
    ).to_pylist()
    return values


@given(st.lists(st.sampled_from(CODES + TEXTS), min_size=1, max_size=8).map("".join), COLUMNS)
@settings(max_examples=examples(150), deadline=None)
def test_strftime_is_that_of_duckdb(form: str, moments: list[dt.datetime | None]) -> None:
    with connected() as duck:
        duck.register("r", pa.table({"t": pa.array(moments, pa.timestamp("us"))}))
        expected = duck.execute(f"SELECT strftime(t, '{form.replace(chr(39), chr(39) * 2)}') FROM r").fetchall()
    assert formatted("strftime", form, moments) == [text for (text,) in expected]


@given(st.lists(st.sampled_from(list(LETTERS)), min_size=1, max_size=6), COLUMNS)
@settings(max_examples=examples(150))
def test_date_format_writes_what_java_does(letters: list[str], moments: list[dt.datetime | None]) -> None:
    expected = [None if t is None else "/".join(LETTERS[part](t) for part in letters) for t in moments]
    assert formatted("date_format", "/".join(letters), moments) == expected


@pytest.mark.parametrize("name", ["date_format", "strftime"])
@pytest.mark.parametrize(("form", "text"), [("", ""), ("-- é", "-- é")])
def test_a_format_without_fields_is_its_text(name: str, form: str, text: str) -> None:
    assert formatted(name, form, [dt.datetime.min, None]) == [text, None]


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("date_format", "yyyy-MM-ddTHH", r"DATE_FORMAT has no 'T'; it has y, yy, .*'yyyy-MM-dd''T''HH:mm'"),
        ("date_format", "yyyyy", "DATE_FORMAT has no 'yyyyy'"),
        ("date_format", "%Y-%m", r"Write STRFTIME\(timestamp, format\) for a format with %"),
        ("date_format", "[yyyy]", r"'\[' must stand in single quotes, doubled inside a text: ''\[''"),
        ("date_format", "yyyy 'o", "a single quote must be followed by another one"),
        ("strftime", "%Y-%q", "STRFTIME has no '%q'; it has %Y, .* and %%"),
        ("strftime", "100%", "STRFTIME has no '%'"),
        ("date_format", "y" * 101, "at most 100 characters"),
    ],
)
def test_what_is_no_format_is_refused(name: str, form: str, message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        call(name, TIME, Literal(form, VARCHAR))


def test_a_format_is_a_constant() -> None:
    with pytest.raises(NotAllowed, match="must be a text in quotes; got f"):
        call("strftime", TIME, Column("f", VARCHAR))
