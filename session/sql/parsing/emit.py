"""EMIT: how and when the rows of a window come (One SQL to Rule Them All, section 6.5)."""

from __future__ import annotations

from braid.operators.windows import Emit
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_duration
from braid.session.sql.statements import EmitClause
from braid.sources.core.errors import NotAllowed

_FORMS = "[STREAM] [AFTER DELAY INTERVAL '6' MINUTES] [AND] [AFTER WATERMARK]"
# how other systems spell EMIT STREAM (ksqlDB) and EMIT AFTER WATERMARK (ksqlDB, RisingWave)
_SPELLED = {
    ("CHANGES",): Emit(stream=True, after_watermark=False),
    ("FINAL",): Emit(),
    ("ON", "WINDOW", "CLOSE"): Emit(),
}


def parse_emit(cursor: Cursor) -> EmitClause:
    """Read ``EMIT [STREAM] [AFTER DELAY d] [AND] [AFTER WATERMARK]``, the AFTER in any order, or another spelling."""
    at = cursor.expect("EMIT").start
    for words, emit in _SPELLED.items():
        if cursor.accept_all(*words):
            return EmitClause(emit, at, at)
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
