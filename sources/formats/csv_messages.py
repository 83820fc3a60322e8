"""Messages that come one by one, each a record of CSV without names: decoded together, as lines of a file are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from braid.sources.core.schema import Schema
from braid.sources.formats.csv_records import CsvLayout, decode_records, read_fast, record_ends, without_end
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.texts import MARK

WITH_CARE_AT_ONCE = 500


def decode_csv_messages(values: Sequence[bytes | None], schema: Schema, delimiter: str) -> Decoded:
    """Decode records whose fields are the columns in the order of their declaration; they are numbered from 1."""
    records = [b"" if value is None else without_end(value) for value in values]
    pieces = list(_pieces(records, 0, schema, CsvLayout.declared(schema, delimiter)))
    malformed = [fault for piece in pieces for fault in piece.malformed]
    return Decoded(pa.concat_batches([piece.tuples for piece in pieces]), tuple(malformed))


def _pieces(records: Sequence[bytes], first: int, schema: Schema, layout: CsvLayout) -> Iterator[Decoded]:
    """Yield all records; reading with care is slow, so that is done only to few around those that need it."""
    tuples = _read_together(records, schema, layout)
    if tuples is not None:
        yield Decoded(tuples, ())
    elif len(records) <= WITH_CARE_AT_ONCE:
        yield _read_one_by_one(records, first, schema, layout)
    else:
        half = len(records) // 2
        yield from _pieces(records[:half], first, schema, layout)
        yield from _pieces(records[half:], first + half, schema, layout)


def _read_together(records: Sequence[bytes], schema: Schema, layout: CsvLayout) -> pa.RecordBatch | None:
    """Decode records as lines, or return None when they may not be one line each."""
    text = b"\n".join([*records, b""])
    if text.count(b"\n") != len(records) or text.startswith(MARK):
        return None
    tuples = read_fast(text, schema, layout)
    # a quote that one opens and another closes makes one of both
    return tuples if tuples is not None and tuples.num_rows == len(records) else None


def _read_one_by_one(records: Sequence[bytes], first: int, schema: Schema, layout: CsvLayout) -> Decoded:
    faults: dict[int, str] = {}
    for i, record in enumerate(records):
        if not record:
            faults[i] = " must be a record of CSV, got no value"
        elif b"\n" in record and len(record_ends(record + b"\n", layout.delimiter)) > 1:
            faults[i] = " must be one record of CSV, got several"
    numbered = list(enumerate(records, first + 1))
    return decode_records(numbered, schema, layout, faults, "line")
