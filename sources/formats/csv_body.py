"""``text/csv``: a first record with the names of columns, and records; those of tuples are rows, numbered from 1."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Schema
from braid.sources.formats.csv_records import CsvLayout, decode_pieces, record_ends, split_fields
from braid.sources.formats.decoded import Decoded, Gathered, row_bytes
from braid.sources.formats.limits import BODY, DecodingLimits
from braid.sources.formats.names_of_bodies import unknown_names

DELIMITERS = ",;\t|"
"""A comma, unless with another one the names are those of more columns."""
PIECE_BYTES = 1 << 20

_FIRST_RECORD = re.compile(rb'(?:[^"\n]++|"[^"]*+")*+(?=\n|\Z)|[^\n]*+')
"""The first record: a line break within quotes does not end it, unless they stay open."""


def decode_csv_body(body: bytes, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode CSV; columns that it does not have are NULL.

    Raises MalformedRequest when it has no names, none of the stream's, or not those that must not be NULL; also, or
    TooLarge, when there is more than the limits allow.
    """
    nested = next((f for f in schema.read if len(f.path) > 1), None)
    if nested is not None:
        raise MalformedRequest(
            f"CSV cannot have column {nested.name!r}, which is FROM {nested.source!r}. Push JSON, or an Arrow stream."
        )
    text = body.lstrip(b"\r\n")
    delimiter = _delimiter_of(_first_record(text), schema)
    ends = record_ends(text, delimiter)
    if not len(ends) or ends[-1] < len(text):
        ends = np.append(ends, len(text))
    names, ends = int(ends[0]), ends[1:]
    layout = CsvLayout.named(text[:names], schema, delimiter, may_lack=True)
    limits.check_rows(len(ends))
    limits.check_bytes(len(ends) * row_bytes(schema), "the columns of the stream")
    gathered = Gathered(schema, limits)
    first = begin = 0
    cuts = np.searchsorted(ends, range(names + PIECE_BYTES, len(text), PIECE_BYTES)) if len(ends) else np.array([])
    for last in np.unique([*cuts.tolist(), len(ends)]).tolist():
        piece_begin, piece_end = (names if not first else int(ends[first - 1])), int(ends[last - 1]) if last else names
        for begin, _, decoded, _ in decode_pieces(text[piece_begin:piece_end], last - first, schema, layout, first):
            gathered.add(decoded.numbered_from(begin + 1))
        first = last
    missing = tuple(field.name for field, place in zip(schema.read, layout.places, strict=True) if place is None)
    named = [(name or b"").decode() for name in split_fields(text[:names], delimiter) or ()]
    unknown = unknown_names(named, schema) if missing else ()
    return replace(gathered.decoded(), missing=missing, unknown=unknown)


def _first_record(text: bytes) -> bytes:
    found = _FIRST_RECORD.match(text)
    assert found is not None  # it matches what is empty, too
    return found[0]


def _delimiter_of(record: bytes, schema: Schema) -> str:
    """Return the delimiter by which a record of names has most columns of a schema, and of those most names."""
    wanted = {field.input_name.strip().lower() for field in schema.read}

    def found(delimiter: str) -> tuple[int, int]:
        names = [field or b"" for field in split_fields(record, delimiter) or ()]
        return len(wanted & {name.decode(errors="replace").strip().lower() for name in names}), len(names)

    return max(DELIMITERS, key=found)
