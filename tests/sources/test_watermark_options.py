"""The options of WITH that every stream has: what may be written, and what it means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import HOUR, LONGEST, SECOND, WatermarkOptions, format_duration, split_options


def test_defaults() -> None:
    assert split_options({"path": "x"}) == (WatermarkOptions(HOUR, None, None), {"path": "x"})


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1 h", HOUR),
        ("90 s", 90 * SECOND),
        ("30 min", HOUR // 2),
        ("1.5 Minutes", 90 * SECOND),
        ("2 HOURS", 2 * HOUR),
        ("250ms", SECOND // 4),
        ("7 days", 168 * HOUR),
        ("3 us", 3),
        ("1 sec", SECOND),
        ("none", None),
        (" NONE ", None),
    ],
)
def test_durations(text: str, us: int | None) -> None:
    watermark, rest_of_options = split_options({"max_future": text, "idle_timeout": text, "rate": "5"})
    assert (watermark.max_future_us, watermark.idle_timeout_us, rest_of_options) == (us, us, {"rate": "5"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("max_future", "soon", "'max_future' must be 'none' or a duration such as '90 s'"),
        ("max_future", "60", "or '1 hour' (units: d, h, min, s, ms, us); got '60'"),
        ("max_future", "-1 s", "got '-1 s'"),
        ("idle_timeout", "1 fortnight", "got '1 fortnight'"),
        ("idle_timeout", "0 s", "must be longer than 0"),
        ("idle_timeout", "0.5 us", "whole number of microseconds"),
        ("max_future", "36526 d", "at most 100 years"),
        ("on_idle", "sleep", "must be 'wait' or 'advance'; got 'sleep'"),
        ("on_idle", "advance", "needs option 'idle_timeout'"),
        ("watermark_percentile", "most", "must be a number such as '99.5'; got 'most'"),
        ("watermark_percentile", "0", "over 0 and at most 100"),
        ("watermark_percentile", "100.1", "over 0 and at most 100"),
        ("watermark_percentile", "nan", "got 'nan'"),
    ],
)
def test_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        split_options({name: text})
    assert message in refused.value.detail
    assert name in refused.value.detail


def test_no_future_at_all_may_be_allowed() -> None:
    assert split_options({"max_future": "0 s"})[0].max_future_us == 0


@given(st.integers(0, LONGEST))
def test_a_duration_is_shown_as_it_may_be_written(us: int) -> None:
    watermark, _ = split_options({"max_future": format_duration(us)})
    assert watermark.max_future_us == us


def test_durations_are_shown_in_the_largest_whole_unit() -> None:
    assert [format_duration(us) for us in (0, HOUR, 90 * SECOND, 24 * HOUR, 1500)] == [
        "0 s", "1 h", "90 s", "1 d", "1500 us",
    ]  # fmt: skip


def test_a_definition_keeps_them() -> None:
    schema = StreamSchema((Field("t", TIMESTAMP),), "t", 0)
    options = WatermarkOptions(None, 5 * SECOND, 99.5)
    definition = StreamDefinition("s-1", "s", schema, "push", "json", watermark=options)
    assert StreamDefinition.from_json(definition.to_json()) == definition
    older = definition.to_json()
    del older["watermark"]
    assert StreamDefinition.from_json(older).watermark == WatermarkOptions()
