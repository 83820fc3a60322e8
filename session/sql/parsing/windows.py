"""Windows in FROM: ``[RANGE 8 SECONDS SLIDE 4 SECONDS]``, ``[SESSION 5 SECONDS]``; TUMBLE, HOP and SESSION.

The thesis writes SLICE for SLIDE, in brackets of its own (figures 4.7 and 4.8); both are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from braid.operators.windows import SessionWindow, Window
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.session.sql.statements import WindowedSource
from braid.session.sql.syntax import Node
from braid.sources.core.errors import NotAllowed

MAX_WINDOWS_PER_TUPLE = 1000
MIN_SLIDE_US = 1000
_KNOWN_WINDOWS = "There are TUMBLE, HOP, SESSION, [RANGE size SLIDE slide] and [SESSION gap]"


def make_window(cursor: Cursor, at: int, size_us: int, slide_us: int, offset_us: int = 0) -> Window:
    """Return the window; SqlNotAllowed when it is empty, too fine, or holds a tuple too often."""
    try:
        window = Window(size_us, slide_us, offset_us % slide_us if slide_us > 0 else 0)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None
    if min(size_us, slide_us) < MIN_SLIDE_US:
        raise cursor.not_allowed("A window's size and slide must be at least 1 MILLISECOND.", at)
    if size_us > MAX_WINDOWS_PER_TUPLE * slide_us:
        raise cursor.not_allowed(
            f"A row must lie in at most {MAX_WINDOWS_PER_TUPLE} windows (size / slide);"
            f" here it lies in {-(-size_us // slide_us)}. Make the slide longer or the size shorter.",
            at,
        )
    return window


def make_session(cursor: Cursor, at: int, gap_us: int) -> SessionWindow:
    """Return the window; SqlNotAllowed when its gap is not above zero."""
    try:
        return SessionWindow(gap_us)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, at) from None


def parse_range(cursor: Cursor) -> Window | SessionWindow:
    """Read ``[RANGE r]``, ``[RANGE r SLIDE s]``, ``[RANGE r] [SLICE s]`` or ``[SESSION g]``."""
    at = cursor.expect("[").start
    if cursor.accept("SESSION"):
        gap = parse_duration(cursor, "the gap of the session")
        cursor.expect("]")
        return make_session(cursor, at, gap)
    if cursor.at("ROWS"):
        raise cursor.not_allowed(f"Windows of a number of rows are not supported. {_KNOWN_WINDOWS}.")
    cursor.expect("RANGE", "or SESSION (as in [RANGE 8 SECONDS SLIDE 4 SECONDS] and [SESSION 5 SECONDS])")
    if cursor.at("UNBOUNDED"):
        raise cursor.not_allowed(
            "[RANGE UNBOUNDED] is not supported yet; write [RANGE 36500 DAYS] for one window over all of a stream that"
            " ends."
        )
    size = slide = parse_duration(cursor, "the size of the window")
    _refuse_trigger(cursor)
    if cursor.at("]") and cursor.ahead() == "[" and cursor.ahead(2) in ("SLIDE", "SLICE"):
        cursor.advance()
        cursor.advance()
    if cursor.at("SLIDE", "SLICE"):
        cursor.advance()
        slide = parse_duration(cursor, "the slide of the window")
    _refuse_trigger(cursor)
    cursor.expect("]")
    return make_window(cursor, at, size, slide)


def _refuse_trigger(cursor: Cursor) -> None:
    if cursor.at("TRIGGER"):
        raise cursor.not_allowed(
            "TRIGGER is not supported; close the window with ], and write EMIT STREAM at the end for every change."
        )


@dataclass(frozen=True)
class _Parameter:
    name: str
    synonyms: tuple[str, ...]
    parse: Callable[[Cursor], Any]
    required: bool = True


def _parse_table(cursor: Cursor) -> WindowedSource:
    table = cursor.accept("TABLE")
    wrapped = table and cursor.accept("(")
    if cursor.at("SELECT", "WITH", "("):
        raise cursor.not_allowed("Write WITH name AS (SELECT …) and the name here, or [RANGE …] after the subquery.")
    source = WindowedSource(at=cursor.start, stream=cursor.name("the name of a stream"))
    if wrapped:
        cursor.expect(")")
    return source


def _parse_stream(cursor: Cursor) -> WindowedSource:
    source = _parse_table(cursor)
    if cursor.at("PARTITION"):
        raise cursor.not_allowed("PARTITION BY belongs to SESSION windows; write GROUP BY for one result per key.")
    return source


def _parse_partitioned_stream(cursor: Cursor) -> WindowedSource:
    """Read a stream, then ``PARTITION BY a``, ``PARTITION BY a, b`` or ``PARTITION BY (a, b)`` if it is there."""
    source = _parse_table(cursor)
    if not cursor.accept("PARTITION"):
        return source
    cursor.expect("BY")
    in_brackets = cursor.accept("(")
    columns = [_parse_column(cursor)]
    # outside brackets the next comma may be that of DESCRIPTOR(…) or of a named argument
    while cursor.at(",") and (in_brackets or cursor.ahead(2) in (",", ".", ")")):
        cursor.advance()
        columns.append(_parse_column(cursor))
    if in_brackets:
        cursor.expect(")")
    return replace(source, partition_by=tuple(columns))


def _parse_column(cursor: Cursor) -> Node:
    at = cursor.start
    parts = [cursor.name("a column")]
    while cursor.accept("."):
        parts.append(cursor.name("a column"))
    return Node("name", at, tuple(parts))


def _parse_descriptor(cursor: Cursor) -> tuple[str, int]:
    if cursor.at_word() and cursor.ahead() != "(":
        raise cursor.syntax_error(
            f"Expected DESCRIPTOR (the event time column), got {cursor.shown()}. Write DESCRIPTOR({cursor.text})."
        )
    cursor.expect("DESCRIPTOR", "(the event time column)")
    cursor.expect("(")
    at = cursor.start
    name = cursor.name("the event time column")
    cursor.expect(")")
    return name, at


def _duration(noun: str) -> Callable[[Cursor], int]:
    return lambda cursor: parse_duration(cursor, noun)


_DATA = _Parameter("data", (), _parse_stream)
_TIMECOL = _Parameter("timecol", (), _parse_descriptor)
_SIZE = _Parameter("dur", ("size",), _duration("the size of the window"))
_SLIDE = _Parameter("hopsize", ("slide",), _duration("the slide of the window"))
_PARTITIONED_DATA = _Parameter("data", (), _parse_partitioned_stream)
_GAP = _Parameter("gap", ("dur", "size"), _duration("the gap of the session"))
_OFFSET = _Parameter("offset", (), _duration("the offset of the window"), required=False)
_FUNCTIONS = {
    "TUMBLE": (_DATA, _TIMECOL, _SIZE, _OFFSET),
    "HOP": (_DATA, _TIMECOL, _SLIDE, _SIZE, _OFFSET),
    "SESSION": (_PARTITIONED_DATA, _TIMECOL, _GAP),
}
_USAGE = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(t), size[, offset])",
    "HOP": "HOP(TABLE s, DESCRIPTOR(t), slide, size[, offset])",
    "SESSION": "SESSION(TABLE s [PARTITION BY k], DESCRIPTOR(t), gap)",
}
WINDOW_FUNCTIONS = (*_FUNCTIONS, "CUMULATE")


def parse_window_function(cursor: Cursor) -> WindowedSource:
    """Read ``TUMBLE(…)``, ``HOP(…)`` or ``SESSION(…)`` with positional or named arguments.

    The named arguments are those of One SQL to Rule Them All, section 6.4; it has no SESSION, whose gap is ``gap``.
    """
    function = cursor.advance()
    name = function.text.upper()
    if name not in _FUNCTIONS:
        raise cursor.not_allowed(f"{name} windows are not supported. {_KNOWN_WINDOWS}.", function.start)
    cursor.expect("(")
    arguments: dict[str, Any] = {}
    while True:
        parameter = _next_parameter(cursor, name, arguments)
        arguments[parameter.name] = parameter.parse(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    missing = [p.name for p in _FUNCTIONS[name] if p.required and p.name not in arguments]
    if missing:
        raise cursor.syntax_error(f"{_USAGE[name]} lacks {', '.join(missing)}.", function.start)
    descriptor, descriptor_at = arguments["timecol"]
    return replace(
        arguments["data"],
        window=_window_of(cursor, function.start, arguments),
        window_at=function.start,
        descriptor=descriptor,
        descriptor_at=descriptor_at,
    )


def _window_of(cursor: Cursor, at: int, arguments: dict[str, Any]) -> Window | SessionWindow:
    if "gap" in arguments:
        return make_session(cursor, at, arguments["gap"])
    size = arguments["dur"]
    return make_window(cursor, at, size, arguments.get("hopsize", size), arguments.get("offset", 0))


def _next_parameter(cursor: Cursor, function: str, arguments: dict[str, Any]) -> _Parameter:
    parameters = _FUNCTIONS[function]
    if cursor.ahead() != "=>":
        if len(arguments) >= len(parameters):
            raise cursor.syntax_error(f"{_USAGE[function]} takes no further argument.")
        parameter = parameters[len(arguments)]
    else:
        name = cursor.text.lower()
        matching = [p for p in parameters if name == p.name or name in p.synonyms]
        if not matching:
            names = ", ".join(p.name for p in parameters)
            raise cursor.syntax_error(f"{function} has no argument {name!r}; it has {names}.")
        parameter = matching[0]
    if parameter.name in arguments:
        raise cursor.syntax_error(f"The argument {parameter.name} of {function} is given twice.")
    if cursor.ahead() == "=>":
        cursor.advance()
        cursor.advance()
    return parameter
