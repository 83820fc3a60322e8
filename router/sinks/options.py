"""Options of sinks, ``{"connector": …, option: value, …}`` in a query: checks, and those that all sinks have."""

from __future__ import annotations

import math
from collections.abc import Mapping

from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import did_you_mean

FLUSH_ROWS, FLUSH_SECONDS = "flush_rows", "flush_seconds"
MAX_RETRIES, ON_ERROR = "sink.max_retries", "on_error"
DEAD_LETTER, STOP = "dead_letter", "stop"
DEFAULT_RETRIES = 5
COMMON = (FLUSH_ROWS, FLUSH_SECONDS, MAX_RETRIES, ON_ERROR)
_MAX_ROWS, _MAX_DIGITS = 1_000_000, 7
_MAX_SECONDS = 86400.0
_MAX_RETRIES = 1000


def check_options(
    connector: str, options: Mapping[str, str], required: tuple[str, ...], known: tuple[str, ...]
) -> None:
    """Raise NotAllowed for an option that is missing or not known; an ending ``*`` in ``known`` is any ending."""
    for option in required:
        if not options.get(option):
            raise NotAllowed(f"Sink {connector!r} needs the option {option!r}. Add it.")
    endings = tuple(name.removesuffix("*") for name in known if name.endswith("*"))
    for option in options:
        if option not in (*required, *known, *COMMON) and not (endings and option.startswith(endings)):
            names = ", ".join(map(repr, (*required, *known, *COMMON)))
            meant = did_you_mean(option, (*required, *known, *COMMON))
            raise NotAllowed(f"Sink {connector!r} has no option {option!r}. It has {names}.{meant}")


def choice(connector: str, options: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option, one of ``choices``; the first of these when it is left out."""
    value = options.get(option, choices[0])
    if value not in choices:
        raise NotAllowed(
            f"Option {option!r} of sink {connector!r} must be one of {', '.join(map(repr, choices))}; got {value!r}."
        )
    return value


def columns(
    connector: str, options: Mapping[str, str], option: str, result_columns: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the columns that an option names, separated by commas; NotAllowed for one that no row has."""
    names = tuple(name.strip() for name in options.get(option, "").split(",") if name.strip())
    for name in names:
        if name not in result_columns:
            raise NotAllowed(
                f"Option {option!r} of sink {connector!r} must name columns of the result: {', '.join(result_columns)};"
                f" got {name!r}."
            )
    return names


def flush_rows(options: Mapping[str, str], default: int) -> int:
    """Return how many rows are enough to write at once, and the most that are written at once."""
    text = options.get(FLUSH_ROWS, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and 0 < int(text) <= _MAX_ROWS):
        raise NotAllowed(f"Option {FLUSH_ROWS!r} must be a whole number from 1 to {_MAX_ROWS}; got {text!r}.")
    return int(text)


def flush_seconds(options: Mapping[str, str], default: float) -> float:
    """Return how long rows may wait for more."""
    text = options.get(FLUSH_SECONDS, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _MAX_SECONDS:
        raise NotAllowed(f"Option {FLUSH_SECONDS!r} must be a number from 0 to {_MAX_SECONDS:g}; got {text!r}.")
    return seconds


def max_retries(options: Mapping[str, str]) -> int:
    """Return how often rows that a place refuses are tried again before it is found out which it will never take."""
    text = options.get(MAX_RETRIES, str(DEFAULT_RETRIES))
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) <= _MAX_RETRIES):
        raise NotAllowed(f"Option {MAX_RETRIES!r} must be a whole number from 0 to {_MAX_RETRIES}; got {text!r}.")
    return int(text)


def sets_aside(options: Mapping[str, str]) -> bool:
    """Return whether rows that a place will never take become dead letters of the query, so that the rest goes on."""
    value = options.get(ON_ERROR, DEAD_LETTER)
    if value not in (DEAD_LETTER, STOP):
        raise NotAllowed(f"Option {ON_ERROR!r} must be {DEAD_LETTER!r} or {STOP!r}; got {value!r}.")
    return value == DEAD_LETTER
