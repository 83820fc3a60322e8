"""Values of each type in each spelling: what is taken is what DuckDB reads from the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    Schema,
)
from braid.sources.formats import decode
from braid.sources.formats.csv_records import CsvLayout, read_carefully
from tests.kit.duck import connected

DECIMAL = ColumnType("DECIMAL", 10, 2)
NUMBERS = ("0", "-7", "517", "517.0", "-3.00", "5e2", "51.70e1", "1.25", ".5", "5.", "2147483647", "2147483648.0")
SPELLINGS: dict[ColumnType, tuple[str, ...]] = {
    BOOLEAN: ("true", "false", "TRUE", "False"),
    INT: NUMBERS,
    BIGINT: (*NUMBERS, "9223372036854775807", "-9223372036854775808", "9223372036854775808"),
    DOUBLE: (*NUMBERS, "1e300", "-0.1"),
    DECIMAL: (*NUMBERS, "0.01", "12345678.90"),
    VARCHAR: ("a", "NULL", "NaN", "517.0", "ü", '"quoted"'),
    DATE: ("2026-02-28", "0001-01-01", "9999-12-31"),
    TIMESTAMP: (
        "2026-02-28 01:02:03",
        "2026-02-28T01:02:03.5",
        "2026-02-28T01:02:03.123456Z",
        "2026-02-28T01:02:03+05:30",
    ),
}
WHOLE = (INT, BIGINT)
CASES = [(kind, text) for kind, texts in SPELLINGS.items() for text in texts]


def _column(kind: ColumnType) -> str:
    """Return the texts of DuckDB, numbers by way of DECIMAL: a cast of a text to an integer rounds."""
    return "v::DECIMAL(38, 6)" if kind in (*WHOLE, DECIMAL) else "v"


def of_duckdb(query: str) -> Any:
    with connected() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        return duck.execute(query).fetchone()[0]  # type: ignore[index]


@pytest.mark.parametrize(("kind", "text"), [*CASES, *((kind, "") for kind in SPELLINGS)], ids=str)
def test_fields_of_csv(kind: ColumnType, text: str, tmp_path: Path) -> None:
    schema = Schema((Field("k", INT), Field("v", kind)))
    line = f"1,{text}\n".encode()
    decoded = read_carefully(line, schema, CsvLayout.declared(schema, ","))
    path = tmp_path / "a.csv"
    path.write_bytes(line)
    column = _column(kind)
    source = f"read_csv('{path}', header = false, columns = {{'k': 'INT', 'v': 'VARCHAR'}})"
    if decoded.malformed:
        assert kind in WHOLE or kind == DECIMAL
        fits = of_duckdb(f"SELECT {column} = TRY_CAST({column} AS {kind}) FROM {source}")
        assert not fits, "what is malformed is not whole, or out of range"
        return
    (value,) = decoded.tuples.column("v").to_pylist()
    target = "TIMESTAMPTZ" if kind == TIMESTAMP and text[19:20] in ("+", "Z") else str(kind)
    expected = of_duckdb(f"SELECT CAST({column} AS {target}) FROM {source}")
    assert value == (expected.replace(tzinfo=None) if kind == TIMESTAMP and expected else expected)


@pytest.mark.parametrize(("kind", "text"), [*CASES, *((kind, "null") for kind in SPELLINGS)], ids=str)
def test_members_of_json(kind: ColumnType, text: str, tmp_path: Path) -> None:
    is_number = kind.is_numeric or kind == BOOLEAN
    written = text.lower() if is_number or text == "null" else orjson.dumps(text).decode()
    body = f'{{"v": {written}}}'.encode()
    decoded = decode(body, "application/x-ndjson", Schema((Field("v", kind),)))
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        assert "must be JSON" in decoded.malformed[0].detail
        return
    path = tmp_path / "a.json"
    path.write_bytes(body)
    source = f"read_json('{path}', format = 'newline_delimited', columns = {{'v': 'VARCHAR'}})"
    column = _column(kind)
    if decoded.malformed:
        assert kind in WHOLE or kind == DECIMAL
        assert not of_duckdb(f"SELECT {column} = TRY_CAST({column} AS {kind}) FROM {source}")
        return
    (value,) = decoded.tuples.column("v").to_pylist()
    target = "TIMESTAMPTZ" if kind == TIMESTAMP and text[19:20] in ("+", "Z") else str(kind)
    expected = of_duckdb(f"SELECT CAST({column} AS {target}) FROM {source}")
    assert value == (expected.replace(tzinfo=None) if kind == TIMESTAMP and expected else expected)
