"""EMIT: how and when the rows of a window come (One SQL to Rule Them All, section 6.5)."""

from __future__ import annotations

from braid.operators.windows import Emit
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.session.sql.statements import EmitClause
from braid.sources.core.errors import NotAllowed

_FORMS = "[STREAM] [AFTER DELAY INTERVAL '6' MINUTES] [AND] [AFTER WATERMARK]"
# what other systems write, and what to write here
_FOREIGN_FORMS = {
    "CHANGES": "EMIT STREAM for every change of a window",
    "FINAL": "EMIT AFTER WATERMARK for the final rows of a window",
    "ON": "EMIT AFTER WATERMARK for the rows of a window when it closes",
}


def parse_emit(cursor: Cursor) -> EmitClause:
    """Read ``EMIT [STREAM] [AFTER DELAY d] [AND] [AFTER WATERMARK]``, the two AFTER in any order."""
    at = cursor.expect("EMIT").start
    if cursor.word in _FOREIGN_FORMS:
        raise cursor.not_allowed(f"EMIT {cursor.word} is not supported; write {_FOREIGN_FORMS[cursor.word]}.")
    stream = cursor.accept("STREAM")
    if not stream and not cursor.at("AFTER"):
        raise cursor.unexpected(f"STREAM or AFTER, as in EMIT {_FORMS}")
    offsets: dict[str, int] = {}
    delay_us = None
    while cursor.at("AFTER"):
        after_at = cursor.advance().start
        if not cursor.at("WATERMARK", "DELAY"):
            raise cursor.unexpected("WATERMARK or DELAY")
        part = cursor.advance().text.upper()
        if part in offsets:
            raise cursor.syntax_error(f"AFTER {part} is given twice.", after_at)
        offsets[part] = after_at
        if part == "DELAY":
            delay_us = parse_duration(cursor, "the delay")
        if not cursor.accept("AND"):
            break
        if not cursor.at("AFTER"):
            raise cursor.unexpected("AFTER WATERMARK or AFTER DELAY")
    delay_at = offsets.get("DELAY", at)
    try:
        emit = Emit(stream, "WATERMARK" in offsets, delay_us)
    except NotAllowed as error:
        raise cursor.not_allowed(error.detail, delay_at) from None
    return EmitClause(emit, at, delay_at)
