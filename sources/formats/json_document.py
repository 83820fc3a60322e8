"""``application/json``: one object, or an array of objects; elements are numbered from 1."""

from __future__ import annotations

import json
from typing import Any

import orjson

from sources.errors import MalformedRequest
from sources.formats.coercion import show
from sources.formats.decoded import Decoded
from sources.formats.json_rows import decode_rows, needs_exact_numbers, parse_json
from sources.schema import Schema


def decode_json(body: bytes, schema: Schema) -> Decoded:
    """Decode a JSON object or an array of them; MalformedRequest when the body is neither."""
    try:
        document = parse_json(body, needs_exact_numbers(schema))
    except ValueError as problem:
        raise MalformedRequest(f"The body must be a JSON object or an array of objects: {problem}.") from None
    if not isinstance(document, (dict, list)):
        raise MalformedRequest(f"The body must be a JSON object or an array of objects, got {show(document)}.")
    elements = document if isinstance(document, list) else [document]
    return decode_rows(schema, elements, "element", lambda i: i + 1, lambda i: _text_of(elements[i]))


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
