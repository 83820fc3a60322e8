"""What a CREATE STREAM says about the stream's watermark, whatever its connector: three options of WITH.

``max_future`` bounds how far ahead of the processing time an event time may be, ``idle_timeout`` says after how long a
silence joined streams no longer wait, ``on_idle`` what the watermark does then, ``watermark_percentile`` which of the
event times the watermark follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from braid.sources.core.errors import NotAllowed

MAX_FUTURE = "max_future"
IDLE_TIMEOUT = "idle_timeout"
ON_IDLE = "on_idle"
PERCENTILE = "watermark_percentile"
OPTIONS = (MAX_FUTURE, IDLE_TIMEOUT, ON_IDLE, PERCENTILE)
TIMESTAMP_FORMAT = "timestamp.format"
COMMON_OPTIONS = (*OPTIONS, TIMESTAMP_FORMAT)
"""The options that streams have whatever their connector, but for generators, which read no times."""
WAIT, ADVANCE = "wait", "advance"
NONE = "none"

SECOND = 10**6
HOUR = 3600 * SECOND
LONGEST = 36_525 * 24 * HOUR
_UNITS = {"d": 24 * HOUR, "h": HOUR, "min": 60 * SECOND, "s": SECOND, "ms": 1000, "us": 1}
_SPELLINGS = {
    "day": "d",
    "hour": "h",
    "minute": "min",
    "sec": "s",
    "second": "s",
    "millisecond": "ms",
    "microsecond": "us",
}
_DURATION = re.compile(r"(\d{1,16}(?:\.\d{1,6})?)\s*([a-z]+)")
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,6})?")


@dataclass(frozen=True)
class WatermarkOptions:
    """Times are microseconds, and None switches the option off.

    With ``percentile``, over 0 and at most 100, the watermark follows that percentile of the last event times; without
    it the greatest one. With ``on_idle`` ADVANCE the watermark of an idle stream follows the processing time, with WAIT
    that of the streams it is joined with.
    """

    max_future_us: int | None = HOUR
    idle_timeout_us: int | None = None
    percentile: float | None = None
    on_idle: str = WAIT

    def __post_init__(self) -> None:
        for name, value, least in ((MAX_FUTURE, self.max_future_us, 0), (IDLE_TIMEOUT, self.idle_timeout_us, 1)):
            if value is not None and not least <= value <= LONGEST:
                rule = "must not be negative" if least == 0 else "must be longer than 0"
                raise NotAllowed(f"Option {name!r} {rule} and at most 100 years long; got {value} microseconds.")
        if self.on_idle not in (WAIT, ADVANCE):
            raise NotAllowed(f"Option {ON_IDLE!r} must be {WAIT!r} or {ADVANCE!r}; got {self.on_idle!r}.")
        if self.on_idle == ADVANCE and self.idle_timeout_us is None:
            raise NotAllowed(
                f"{ON_IDLE!r} = {ADVANCE!r} needs option {IDLE_TIMEOUT!r}: after how long a silence the watermark"
                " follows the clock, such as '10 s'."
            )
        if self.percentile is not None and not 0 < self.percentile <= 100:
            raise NotAllowed(f"Option {PERCENTILE!r} must be over 0 and at most 100; got {self.percentile}.")

    def describe(self) -> dict[str, Any]:
        """Return what GET /streams/{name} shows of them; durations in seconds."""
        return {
            "max_future_seconds": None if self.max_future_us is None else self.max_future_us / 1e6,
            "idle_timeout_seconds": None if self.idle_timeout_us is None else self.idle_timeout_us / 1e6,
            "on_idle": self.on_idle,
            "watermark_percentile": self.percentile,
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "max_future_us": self.max_future_us,
            "idle_timeout_us": self.idle_timeout_us,
            "percentile": self.percentile,
            "on_idle": self.on_idle,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WatermarkOptions:
        """Read what :meth:`to_json` wrote."""
        return cls(**value)


def split_options(options: Mapping[str, str]) -> tuple[WatermarkOptions, dict[str, str]]:
    """Read the options of the watermark from those in WITH, and return the connector's beside them.

    NotAllowed tells what may be written.
    """
    values: dict[str, Any] = {}
    if MAX_FUTURE in options:
        values["max_future_us"] = _duration(MAX_FUTURE, options[MAX_FUTURE])
    if IDLE_TIMEOUT in options:
        values["idle_timeout_us"] = _duration(IDLE_TIMEOUT, options[IDLE_TIMEOUT])
    if ON_IDLE in options:
        values["on_idle"] = options[ON_IDLE].strip().lower()
    if PERCENTILE in options:
        values["percentile"] = _percentile(options[PERCENTILE])
    return WatermarkOptions(**values), {name: value for name, value in options.items() if name not in OPTIONS}


def format_duration(us: int) -> str:
    """Return microseconds in the largest unit that leaves no fraction, as ``max_future`` takes it."""
    unit = next(unit for unit, length in _UNITS.items() if us % length == 0)
    return f"{us // _UNITS[unit]} {unit}" if us else "0 s"


def parse_duration(text: str) -> int | None:
    """Return the microseconds of a duration such as ``90 s`` or ``1 hour``; None for a text that is none."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = None if match is None else _unit(match[2])
    if match is None or unit is None:
        return None
    us = Decimal(match[1]) * _UNITS[unit]
    return int(us) if us == int(us) and us <= LONGEST else None


def _duration(name: str, text: str) -> int | None:
    """Return microseconds, None for ``'none'``."""
    lowered = text.strip().lower()
    if lowered == NONE:
        return None
    match = _DURATION.fullmatch(lowered)
    unit = None if match is None else _unit(match[2])
    if match is None or unit is None:
        raise NotAllowed(
            f"Option {name!r} must be {NONE!r} or a duration such as '90 s', '30 min' or '1 hour'"
            f" (units: {', '.join(_UNITS)}); got {text!r}."
        )
    us = Decimal(match[1]) * _UNITS[unit]
    if us != int(us):
        raise NotAllowed(f"Option {name!r} must be a whole number of microseconds; got {text!r}.")
    return int(us)


def _unit(text: str) -> str | None:
    if text in _UNITS:
        return text
    return _SPELLINGS.get(text) or _SPELLINGS.get(text.removesuffix("s"))


def _percentile(text: str) -> float:
    if not _NUMBER.fullmatch(text.strip()):
        raise NotAllowed(f"Option {PERCENTILE!r} must be a number such as '99.5'; got {text!r}.")
    return float(text)
