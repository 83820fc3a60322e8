"""``application/json``: one object, or an array of objects; elements are numbered from 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Schema
from braid.sources.formats.coercion import show
from braid.sources.formats.decoded import Decoded, Gathered
from braid.sources.formats.json_rows import decode_rows, elements_of, needs_exact_numbers, parse_json
from braid.sources.formats.limits import BODY, DecodingLimits
from braid.sources.formats.ndjson import BLANKS, LINES_AT_ONCE, WORTH_BYTES, read_fast
from braid.sources.formats.nested import max_text_bytes

WHOLE_BYTES = 4 << 20
ELEMENTS_AT_ONCE = 16  # where together they could take too much, as their bytes are not known one by one


def decode_json(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode a JSON object or an array of them; MalformedRequest when the body is neither.

    Also, or TooLarge, when there is more than the limits allow.
    """
    lines = lines_of(body) if len(body) >= WORTH_BYTES else None
    tuples = None if lines is None else read_fast(lines, schema, limits)
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


def read_document(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode element by element, by the rules of :mod:`braid.sources.formats.coercion`, some at a time."""
    gathered = Gathered(schema, limits)
    at_once = LINES_AT_ONCE if len(body) <= max_text_bytes(schema) else ELEMENTS_AT_ONCE
    first = 0
    try:
        elements = _elements(body, needs_exact_numbers(schema))
        while some := list(islice(elements, at_once)):
            gathered.add(_decode_some(schema, some, first))
            first += len(some)
    except ValueError as problem:
        raise MalformedRequest(f"The body must be a JSON object or an array of objects: {problem}.") from None
    return gathered.decoded()


def _elements(body: bytes, exact: bool) -> Iterator[Any]:
    """Return an iterator over an object, or the elements of an array; ValueError, or MalformedRequest, for others.

    Of a large array they are made one by one, as all together may take thirty times its bytes.
    """
    if len(body) > WHOLE_BYTES and body.lstrip(BLANKS + b"\n").startswith(b"["):
        return elements_of(body, exact)
    document = parse_json(body, exact)
    if not isinstance(document, (dict, list)):
        raise MalformedRequest(f"The body must be a JSON object or an array of objects, got {show(document)}.")
    return iter(document if isinstance(document, list) else [document])


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
