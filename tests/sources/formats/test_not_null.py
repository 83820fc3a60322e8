"""NOT NULL: a tuple without the value is malformed, in every format, and says which column lacks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.formats.avro_messages import decode_avro_messages
from braid.sources.formats.avro_schema import read_schema
from tests.sources.formats.every_format import FORMATS, JSON_FORMATS, Decode
from tests.sources.formats.test_avro_messages import encoded

TIME = "2026-01-01T00:00:00Z"
SCHEMA = StreamSchema(
    (Field("k", BIGINT, not_null=True), Field("s", VARCHAR), Field("t", TIMESTAMP)),
    "t",
    0,
)
RULE = "column 'k' is NOT NULL, and must not be NULL or missing"


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_null_makes_a_tuple_malformed(decode: Decode) -> None:
    rows: list[dict[str, Any]] = [
        {"k": 1, "s": "a", "t": TIME},
        {"k": None, "s": "b", "t": TIME},
        {"k": 3, "s": None, "t": TIME},
    ]
    decoded = decode(rows, SCHEMA)
    assert decoded.tuples.column("k").to_pylist() == [1, 3]
    (fault,) = decoded.malformed
    assert fault.line == 2
    assert fault.detail.endswith(f" 2: {RULE}")
    assert "b" in fault.raw


@pytest.mark.parametrize("decode", JSON_FORMATS.values(), ids=JSON_FORMATS)
def test_a_value_that_is_absent_makes_a_tuple_malformed(decode: Decode) -> None:
    decoded = decode([{"k": 1, "t": TIME}, {"s": "b", "t": TIME}], SCHEMA)
    assert decoded.tuples.num_rows == 1
    assert decoded.malformed[0].detail.endswith(RULE)


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
def test_tuples_that_have_the_value_are_taken(decode: Decode) -> None:
    rows = [{"k": number, "s": None if number % 2 else "", "t": TIME} for number in range(10)]
    decoded = decode(rows, SCHEMA)
    assert decoded.malformed == ()
    assert decoded.tuples.column("k").to_pylist() == list(range(10))


def test_null_makes_a_record_of_avro_malformed() -> None:
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "k", "type": ["null", "long"]}, {"name": "t", "type": "string"}],
    }
    written = [encoded(avro, {"k": k, "t": TIME}) for k in (1, None)]
    decoded = decode_avro_messages(written, SCHEMA, read_schema(json.dumps(avro)))
    assert decoded.tuples.column("k").to_pylist() == [1]
    assert decoded.malformed[0].detail == f"line 2: {RULE}"


def test_what_is_wrong_with_a_value_is_told_before_that_it_is_null() -> None:
    decoded = FORMATS["ndjson"]([{"k": "x", "t": TIME}], SCHEMA)
    assert "must be a BIGINT, got 'x'" in decoded.malformed[0].detail
