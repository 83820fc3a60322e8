"""Local notations of times: the pattern that reads them, and what is taken for no time at all."""

from __future__ import annotations

import datetime as dt

import pytest

from braid.sources.inference.columns import MISSING, column_of_texts
from braid.sources.inference.notations import RFC_3339, clock_of, notation_of

MOMENTS = [dt.datetime(2026, 3, day, hour, 5, 7) for day in (2, 14, 31) for hour in (0, 9, 17)]


@pytest.mark.parametrize(
    ("written", "pattern"),
    [
        ("%d.%m.%Y %H:%M", "dd.MM.yyyy HH:mm"),
        ("%d.%m.%Y %H:%M:%S", "dd.MM.yyyy HH:mm:ss"),
        ("%Y-%m-%d %H:%M", "yyyy-MM-dd HH:mm"),
        ("%d/%m/%Y %H:%M", "dd/MM/yyyy HH:mm"),
        ("%m/%d/%Y %I:%M %p", "MM/dd/yyyy hh:mm a"),
        ("%-m/%-d/%Y %-H:%M", "M/d/yyyy H:mm[:ss]"),
        ("%-m/%-d/%y %-I:%M:%S %p", "M/d/yy h:mm[:ss] a"),
        ("%Y-%m-%d %H:%M:%S", RFC_3339),
        ("%Y-%m-%dT%H:%M:%SZ", RFC_3339),
    ],
)
def test_a_pattern_that_reads_all_texts_is_found(written: str, pattern: str) -> None:
    notation = notation_of(moment.strftime(written) for moment in MOMENTS)
    assert notation is not None
    assert (notation.pattern, notation.other) == (pattern, "")
    for moment in MOMENTS:
        us = notation.times[moment.strftime(written)]
        read = dt.datetime.fromtimestamp(us / 1e6, dt.UTC).replace(tzinfo=None)
        assert (read.date(), read.hour, read.minute) == (moment.date(), moment.hour, moment.minute)


def test_days_that_may_be_months_are_said() -> None:
    notation = notation_of(["02/03/2026 08:00", "04/05/2026 09:00"])
    assert notation is not None
    assert (notation.pattern, notation.other) == ("dd/MM/yyyy HH:mm", "MM/dd/yyyy HH:mm")
    column = column_of_texts("at", ["02/03/2026 08:00", "04/05/2026 09:00"])
    assert column.why == "'MM/dd/yyyy HH:mm' would fit as well"


def test_with_am_and_pm_the_month_comes_first() -> None:
    notation = notation_of(["03/01/26 06:07 AM", "03/02/26 06:07 PM"])
    assert notation is not None
    assert (notation.pattern, notation.other) == ("M/d/yy h:mm[:ss] a", "d/M/yy h:mm[:ss] a")


@pytest.mark.parametrize(
    ("written", "pattern"),
    [("%H:%M", "HH:mm"), ("%H:%M:%S", "HH:mm:ss"), ("%-H:%M", "H:mm[:ss]"), ("%I:%M %p", "hh:mm a")],
)
def test_times_of_day_are_found(written: str, pattern: str) -> None:
    clock = clock_of(["?", *(moment.strftime(written) for moment in MOMENTS)])
    assert clock is not None
    assert clock.pattern == pattern
    minutes = [clock.times[moment.strftime(written)] // 60_000_000 for moment in MOMENTS]
    assert minutes == [60 * moment.hour + moment.minute for moment in MOMENTS]


def test_texts_that_are_no_times_of_day_are_not_taken_for_such() -> None:
    assert clock_of(["25:10", "10:75"]) is None
    assert clock_of(["gems", "10:15", "rubies"]) is None
    assert clock_of([]) is None


def test_few_wrong_times_are_left_out() -> None:
    texts = [f"{day:02d}.03.2026 {hour:02d}:00" for day in range(1, 30) for hour in range(20)]
    column = column_of_texts("Datum", [*texts, "31.02.2026 10:00", None])
    assert str(column.type) == "VARCHAR", "what it is where it is not the event time: it takes all texts"
    assert (column.time_format, column.nulls) == ("dd.MM.yyyy HH:mm", 2)
    assert column.times is not None
    assert column.times[-2:].tolist() == [MISSING, MISSING]


@pytest.mark.parametrize("written", ["%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"])
def test_one_wrong_time_of_few_is_shown_with_its_row(written: str) -> None:
    texts = [moment.strftime(written) for moment in MOMENTS]
    column = column_of_texts("at", [*texts, None, "soon"])
    assert (str(column.type), column.nulls, column.misfits) == ("VARCHAR", 2, f"'soon' (row {len(texts) + 2})")
    assert column.times is not None
    assert (column.times != MISSING).sum() == len(texts)
    assert column.why == f"times beside {column.misfits}"


@pytest.mark.parametrize(
    ("written", "kind", "pattern"),
    [("%Y-%m-%d", "DATE", "yyyy-MM-dd"), ("%d.%m.%Y", "VARCHAR", "dd.MM.yyyy"), ("%m/%d/%Y", "VARCHAR", "MM/dd/yyyy")],
)
def test_dates_are_times_in_a_pattern(written: str, kind: str, pattern: str) -> None:
    column = column_of_texts("day", [moment.strftime(written) for moment in MOMENTS])
    assert (str(column.type), column.time_format, column.nulls) == (kind, pattern, 0)
    assert column.times is not None
    assert column.times[0] == dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp() * 10**6


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["1.2.3", "1.2.4 5"],
        ["1.2.34", "1.2.35"],
        ["31.12.2026 10:00", "soon", "later"],
        ["12:30", "13:30"],
    ],
)
def test_other_texts_are_no_times(texts: list[str]) -> None:
    assert notation_of(texts) is None
