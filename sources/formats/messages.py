"""Messages that come one by one, each a JSON object: decoded together, as lines are. They may have headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braid.sources.core.schema import Schema
from braid.sources.formats.decoded import Decoded, MalformedLine
from braid.sources.formats.limits import TEXT_PIECE
from braid.sources.formats.ndjson import BLANKS, decode_ndjson
from braid.sources.formats.record_messages import HEADER_BYTES, NO_HEADER, schema_id
from braid.sources.formats.texts import is_utf8

NO_OBJECT = b"null"


def decode_json_messages(values: Sequence[bytes | None], schema: Schema) -> Decoded:
    """Decode JSON objects; malformed ones are numbered from 1, as lines would be. None is a message without a value."""
    lines: list[bytes] = []
    reasons: dict[int, str] = {}
    for number, value in enumerate(values, start=1):
        text = b"" if value is None else value.replace(b"\n", b" ")  # between tokens a space is as good
        if not text.strip(BLANKS):
            reasons[number] = " must be a JSON object, got no value"
        elif not is_utf8(text):
            reasons[number] = " must be UTF-8"
        lines.append(NO_OBJECT if number in reasons else text)
    decoded = decode_ndjson(b"\n".join(lines), schema, TEXT_PIECE)
    malformed = [
        fault if fault.line not in reasons else _with_reason(fault, reasons, values) for fault in decoded.malformed
    ]
    return Decoded(decoded.tuples, tuple(malformed))


def decode_framed_json_messages(
    values: Sequence[bytes | None], schema: Schema, schema_of: Callable[[int], object]
) -> Decoded:
    """Decode JSON objects behind a registry's header; ``schema_of`` gives a text where a schema cannot be used."""
    reasons: dict[int, str] = {}
    texts: list[bytes | None] = []
    for number, value in enumerate(values, start=1):
        identifier = None if value is None else schema_id(value)
        found = NO_HEADER if identifier is None else schema_of(identifier)
        if value is not None and isinstance(found, str):
            reasons[number] = found
        texts.append(None if value is None or number in reasons else value[HEADER_BYTES:])
    decoded = decode_json_messages(texts, schema)
    malformed = [
        fault if fault.line not in reasons else _with_reason(fault, reasons, values) for fault in decoded.malformed
    ]
    return Decoded(decoded.tuples, tuple(malformed))


def _with_reason(fault: MalformedLine, reasons: dict[int, str], values: Sequence[bytes | None]) -> MalformedLine:
    raw = (values[fault.line - 1] or b"").decode(errors="replace")
    return MalformedLine(fault.line, f"line {fault.line}{reasons[fault.line]}", raw)
