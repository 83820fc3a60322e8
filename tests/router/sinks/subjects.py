"""Queries and rows for tests of sinks."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from braid.operators.expressions import Column
from braid.operators.queries import Aggregation, Selection
from braid.operators.query_parts import COUNT_ALL, Output
from braid.operators.windows import Emit, Window
from braid.router.sinks.sink import SinkRows, Subject
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

DECIMAL = ColumnType("DECIMAL", 12, 2)
_COLUMNS = {
    "n": BIGINT,
    "i": INT,
    "x": DOUBLE,
    "d": DECIMAL,
    "s": VARCHAR,
    "b": BOOLEAN,
    "day": DATE,
    "at": TIMESTAMP,
}
SELECTION = Selection("s-1", None, tuple(Output(name, Column(name, kind)) for name, kind in _COLUMNS.items()))
SECOND = 1_000_000


def aggregation(emit: Emit | None = None) -> Aggregation:
    """Return a count per name in windows of two seconds."""
    outputs = (
        Output("window_start", Column("window_start", TIMESTAMP)),
        Output("window_end", Column("window_end", TIMESTAMP)),
        Output("name", Column("key0", VARCHAR)),
        Output("n", Column(COUNT_ALL.name, BIGINT)),
    )
    form = {} if emit is None else {"emit": emit}
    window = Window(2 * SECOND, 2 * SECOND)
    return Aggregation("s-1", window, None, (Column("name", VARCHAR),), (COUNT_ALL,), outputs, **form)  # type: ignore[arg-type]


def subject(query: Selection | Aggregation = SELECTION) -> Subject:
    """Return a subject that no other test has."""
    return Subject(f"q-1-{uuid.uuid4().hex[:12]}", "q-1", "mine", query)


def selected(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Return rows of :data:`SELECTION`: all types, NULL in each column somewhere, and texts that need care."""
    texts = ["plain", 'quo"te', "com,ma", "line\nbreak", "", "ü€\u2028", "\\N", "'"]
    rows = []
    for number in range(first, first + count):
        row = {
            "n": number,
            "i": number % 5,
            "x": number / 4,
            "d": Decimal(number) / 100,
            "s": texts[number % len(texts)],
            "b": number % 2 == 0,
            "day": dt.date(2026, 1, 1) + dt.timedelta(number % 300),
            "at": dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=number),
        }
        if number % 9:
            row[list(row)[number % 9 % 8]] = None
        row["n"] = number
        rows.append(row)
    return rows


def rows_of(subject: Subject, values: Sequence[dict[str, Any]], seq: int) -> SinkRows:
    """Return rows as of batch ``seq``; the cursor after them is ``after SEQ``."""
    table = pa.Table.from_pylist(list(values), schema=subject.schema)
    return SinkRows(table, f"after {seq}", ((seq, 0, len(table)),))
