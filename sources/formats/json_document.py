"""``application/json``: one object, or an array of objects; elements are numbered from 1."""

from __future__ import annotations

import json
from typing import Any

import orjson

from sources.errors import MalformedRequest
from sources.formats.coercion import show
from sources.formats.decoded import Decoded, Gathered
from sources.formats.json_rows import decode_rows, needs_exact_numbers, parse_json
from sources.formats.limits import BODY, Limits
from sources.formats.ndjson import BLANKS, LINES_AT_ONCE, WORTH_BYTES, read_fast
from sources.schema import Schema


def decode_json(body: bytes, schema: Schema, limits: Limits = BODY) -> Decoded:
    """Decode a JSON object or an array of them; MalformedRequest when the body is neither.

    Also, or TooLarge, when there is more than the limits allow.
    """
    lines = lines_of(body) if len(body) >= WORTH_BYTES else None
    tuples = None if lines is None else read_fast(lines, schema)
    if tuples is None:
        return read_document(body, schema, limits)
    gathered = Gathered(schema, limits)
    gathered.add(Decoded(tuples, ()))
    return gathered.decoded()


def lines_of(body: bytes) -> bytes | None:
    """Return an array of flat objects as NDJSON, None for what is written in other ways.

    Where a text has what separates objects, its line is cut in two, neither of which is an object.
    """
    text = body.strip(BLANKS + b"\n")
    if not (text.startswith(b"[") and text.endswith(b"]")) or b"\n" in text:
        return None
    return text[1:-1].strip(BLANKS).replace(b"},{", b"}\n{").replace(b"}, {", b"}\n{")


def read_document(body: bytes, schema: Schema, limits: Limits = BODY) -> Decoded:
    """Decode element by element, by the rules of :mod:`sources.formats.coercion`."""
    try:
        document = parse_json(body, needs_exact_numbers(schema))
    except ValueError as problem:
        raise MalformedRequest(f"The body must be a JSON object or an array of objects: {problem}.") from None
    if not isinstance(document, (dict, list)):
        raise MalformedRequest(f"The body must be a JSON object or an array of objects, got {show(document)}.")
    elements = document if isinstance(document, list) else [document]
    limits.check_rows(len(elements))
    gathered = Gathered(schema, limits)
    for first in range(0, max(len(elements), 1), LINES_AT_ONCE):
        some = elements[first : first + LINES_AT_ONCE]
        gathered.add(_decode_some(schema, some, first))
    return gathered.decoded()


def _decode_some(schema: Schema, elements: list[Any], first: int) -> Decoded:
    return decode_rows(schema, elements, "element", lambda i: first + i + 1, lambda i: _text_of(elements[i]))


def _text_of(element: Any) -> str:
    """Return ``element`` as JSON text again; Decimals become strings."""
    try:
        return orjson.dumps(element, default=str).decode()
    except orjson.JSONEncodeError:  # nested deeply, or half a surrogate pair
        pass
    try:
        return json.dumps(element, default=str)
    except RecursionError:
        return "(nested too deeply to show)"
