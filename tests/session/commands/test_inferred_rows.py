"""A stream takes every row of the sample that it was inferred from, whatever is in them."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braid.session.commands.inference import Inference, InferredStream
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.core.schema import StreamSchema
from braid.sources.formats.csv_records import CsvLayout, read_carefully
from braid.sources.formats.ndjson import decode_ndjson
from tests.kit.examples import examples

MAX_ROWS = 15
"""Fewer than the whole floats beside NULLs that are taken for integers, which is a guess."""
NUMBERS = st.one_of(st.integers(), st.integers(-(2**31), 2**31), st.floats(allow_nan=False, allow_infinity=False))
TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2080, 1, 1)).map(lambda t: f"{t:%FT%T.%f}Z")
DATES = st.dates(date(1000, 1, 1)).map(str)
KINDS: tuple[st.SearchStrategy[Any], ...] = (
    st.integers(),
    st.integers(-100, 100),
    NUMBERS,
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(
        ["007", "+49", "1.", ".5", "1e5", "NaN", "NA", "-0", " 5 ", "true", "", '"', "a\nb", "a,b", "\r", "-"]
    ),
    DATES,
    TIMES,
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw rows with a time in each, and columns of any kinds, NULLs and mixtures among them."""
    count = draw(st.integers(1, MAX_ROWS))
    columns = draw(st.lists(st.sampled_from(KINDS), max_size=5))
    rows = [{"time": time} for time in draw(st.lists(TIMES, min_size=count, max_size=count))]
    for number, kind in enumerate(columns):
        values = st.one_of(st.none(), kind) if draw(st.booleans()) else kind
        for row in rows:
            row[f"c{number}"] = draw(values)
    return rows


def schema_of(inferred: InferredStream) -> StreamSchema:
    statement = parse_statement(inferred.sql)
    assert isinstance(statement, CreateStream)
    return statement.schema


@settings(max_examples=examples(100))
@given(tables())
def test_csv_is_taken_as_it_was_looked_at(rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    body = text.getvalue().encode()
    inferred = Inference().of_rows("csv", body)
    assert {c.name for c in inferred.columns} == set(rows[0]), "any text is a VARCHAR"
    head, _, records = body.partition(b"\n")
    schema = schema_of(inferred)
    decoded = read_carefully(records, schema, CsvLayout.named(head, schema, inferred.source.get("delimiter", ",")))
    assert (decoded.malformed, decoded.tuples.num_rows) == ((), len(rows))


@settings(max_examples=examples(100))
@given(tables())
def test_json_is_taken_as_it_was_looked_at(rows: list[dict[str, Any]]) -> None:
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    inferred = Inference().of_rows("json", body)
    decoded = decode_ndjson(body, schema_of(inferred))
    assert (decoded.malformed, decoded.tuples.num_rows) == ((), len(rows))


def mutated(body: bytes, places: list[tuple[int, int]]) -> bytes:
    """Return a body with some bytes replaced."""
    changed = bytearray(body)
    for at, byte in places:
        changed[at % len(changed)] = byte
    return bytes(changed)


SAMPLES: tuple[tuple[str, bytes], ...] = (
    ("csv", b'a,b,time\n1,"x,y",2024-01-31T12:00:00Z\n2,"z",2024-01-31T12:00:01Z\n'),
    ("json", b'{"a": [1, {"b": null}], "c": 1e5, "time": "2024-01-31T12:00:00Z"}\n{"a": 1, "time": "x"}\n'),
    ("json", b'[{"a": true, "time": "2024-01-31T12:00:00Z"}, {"a": 17000000000000000000000}]'),
)


@settings(max_examples=examples(200))
@given(st.sampled_from(SAMPLES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6))
def test_whatever_is_sent_is_inferred_or_refused(sample: tuple[str, bytes], places: list[tuple[int, int]]) -> None:
    form, body = sample
    with suppress(MalformedRequest, NotAllowed):
        schema_of(Inference().of_rows(form, mutated(body, places)))
