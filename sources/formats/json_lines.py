"""A run of lines with a JSON object each, which need not be UTF-8 everywhere."""

from __future__ import annotations

from braid.sources.core.schema import Schema
from braid.sources.formats.decoded import Decoded, MalformedLine
from braid.sources.formats.limits import TEXT_PIECE
from braid.sources.formats.messages import decode_json_messages
from braid.sources.formats.ndjson import BLANKS, decode_ndjson
from braid.sources.formats.texts import is_utf8


def decode_json_lines(text: bytes, schema: Schema) -> Decoded:
    """Decode lines, which are numbered from 1; blank ones are skipped, and one that is not UTF-8 is malformed alone."""
    if is_utf8(text):
        return decode_ndjson(text, schema, TEXT_PIECE)
    lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip(BLANKS)]
    decoded = decode_json_messages([line for _, line in lines], schema)
    numbers = [number for number, _ in lines]
    return Decoded(decoded.tuples, tuple(_renumbered(fault, numbers[fault.line - 1]) for fault in decoded.malformed))


def _renumbered(line: MalformedLine, number: int) -> MalformedLine:
    return MalformedLine(number, f"line {number}{line.detail.removeprefix(f'line {line.line}')}", line.raw)
