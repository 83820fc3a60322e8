"""Static tables: files of every format give the same rows, and what does not fit is said."""

from __future__ import annotations

import gzip
import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.sources.connectors import static_table
from braid.sources.connectors.static_table import TableDefinition, TableReader, format_of, validate_table
from braid.sources.core.errors import NotAllowed
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

SCHEMA = Schema(
    (
        Field("id", BIGINT),
        Field("name", VARCHAR),
        Field("small", INT),
        Field("x", DOUBLE),
        Field("price", ColumnType("DECIMAL", 8, 2)),
        Field("ok", BOOLEAN),
        Field("day", DATE),
        Field("at", TIMESTAMP),
    )
)
ROWS = [
    (2**62 + 1, "Red, or not", -5, 2.5, Decimal("9.99"), True, date(2026, 2, 28), datetime(2026, 2, 28, 1, 2, 3, 4)),
    (None, "", None, None, None, None, None, None),
    (3, None, 0, -1e300, Decimal("-0.10"), False, date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59)),
]
CSV = """Name,id,small,x,price,ok,day,at,unused
"Red, or not",4611686018427387905,-5,2.5,9.99,true,2026-02-28,2026-02-28T01:02:03.000004Z,1
"",,,,,,,,2
,3,0,-1e300,-0.1,False,1969-12-31,1969-12-31 23:59:59,3
"""
OBJECTS = [
    '{"id": 4611686018427387905, "name": "Red, or not", "small": -5, "x": 2.5, "price": 9.99, "ok": true,'
    ' "day": "2026-02-28", "at": "2026-02-28T01:02:03.000004Z"}',
    '{"name": ""}',
    '{"id": 3, "small": 0, "x": -1e300, "price": "-0.1", "ok": false, "day": "1969-12-31",'
    ' "at": "1969-12-31T23:59:59Z", "more": 1}',
]


def table(path: Path | str, form: str, **options: str) -> TableDefinition:
    return TableDefinition("t-1", "packs", SCHEMA, form, {"path": str(path), **options})


def rows_of(definition: TableDefinition, folder: str = "") -> list[tuple[Any, ...]]:
    table = TableReader(folder).read(definition).rows
    assert table.schema == SCHEMA.arrow
    return [tuple(row.values()) for row in table.to_pylist()]


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\ufeff" + CSV)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (tmp_path / "t.ndjson").write_text("\n".join(OBJECTS) + "\n\n")
    (tmp_path / "t.json").write_text(f" [{','.join(OBJECTS)}]")
    columns = pa.table({f.name: pa.array([row[i] for row in ROWS], f.type.arrow) for i, f in enumerate(SCHEMA.fields)})
    pq.write_table(columns.select(SCHEMA.names[::-1]), tmp_path / "t.parquet")
    wide = columns.set_column(2, "small", columns.column("small").cast(pa.int64()))
    pq.write_table(wide, tmp_path / "wide.parquet")
    for name in ("t.csv", "t.csv.gz", "t.ndjson", "t.json", "t.parquet", "wide.parquet"):
        assert rows_of(table(tmp_path / name, format_of(name))) == ROWS, name
    assert rows_of(table((tmp_path / "t.csv").as_uri(), "csv")) == ROWS
    assert rows_of(table("t.csv", "csv"), str(tmp_path)) == ROWS


def test_the_delimiter_of_csv_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id|name\n1|a,b\n")
    definition = TableDefinition(
        "t-1", "t", Schema(SCHEMA.fields[:2]), "csv", {"path": str(tmp_path / "t.csv"), "delimiter": "|"}
    )
    assert TableReader().read(definition).rows.to_pylist() == [{"id": 1, "name": "a,b"}]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("csv", "id,name\n1,a\n", "The first line lacks column 'small'; it has 'id', 'name'."),
        ("csv", "", "CSV with a row of names"),
        ("csv", CSV.replace(",3,0", ",3,zero"), "row 3: column 'small' must be an INT, got 'zero'"),
        ("csv", CSV.replace(",3,0", ",3,3000000000"), "it must lie in -2147483648..2147483647"),
        ("csv", CSV.replace("9.99", "9.999"), "row 1: column 'price' must be a DECIMAL(8,2)"),
        ("csv", CSV.replace("-1e300", "inf"), "row 3: column 'x' must be a DOUBLE, got 'inf'"),
        ("csv", CSV.replace("2026-02-28,", "2026-02-30,"), "row 1: column 'day' must be a DATE"),
        ("json", "[1]", "element 1 must be a JSON object"),
        ("json", '{"id": 1}\n{"id": "x"}\n{"id": 1.5}\n{"id": []}\n{"id": {}}\n', "and 1 more"),
        ("json", "[{]", "must be a JSON object or an array"),
        ("parquet", "PAR1", "It must be Parquet"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, form: str, text: str, message: str) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    with pytest.raises(NotAllowed) as caught:
        TableReader().read(table(path, form))
    assert message in caught.value.detail
    assert "table 'packs'" in caught.value.detail


def test_text_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id\n\xff\n")
    with pytest.raises(NotAllowed, match="UTF-8; byte 4 is not"):
        TableReader().read(table(tmp_path / "t.csv", "csv"))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="must exist where the service runs"):
        TableReader().read(table(tmp_path / "none.csv", "csv"))
    with pytest.raises(NotAllowed, match="must exist where the service runs"):
        TableReader().read(table(tmp_path, "csv"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../t.csv", "sub/../../t.csv", "file:///etc/passwd"])
def test_files_must_lie_below_the_folder_of_tables(tmp_path: Path, path: str) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "t.csv").write_text(CSV)
    with pytest.raises(NotAllowed, match="setting table_folder"):
        TableReader(str(tmp_path / "below")).read(table(path, "csv"))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "t.csv").write_text(CSV)
    (tmp_path / "below" / "t.csv").symlink_to(tmp_path / "t.csv")
    for path in ("t.csv", (tmp_path / "below" / "t.csv").as_uri()):
        with pytest.raises(NotAllowed, match="setting table_folder"):
            TableReader(str(tmp_path / "below")).read(table(path, "csv"))


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    reader = TableReader()
    first = reader.read(table(path, "csv"))
    assert reader.read(table(path, "csv")) is first
    path.write_text(CSV.replace("Red", "Green"))
    second = reader.read(table(path, "csv"))
    assert second.id != first.id
    path.write_text(CSV)
    assert reader.read(table(path, "csv")).id == first.id


def test_a_file_that_took_the_place_of_another_is_read(tmp_path: Path) -> None:
    path, new = tmp_path / "t.csv", tmp_path / "other.csv"
    path.write_text(CSV)
    new.write_text(CSV.replace("Red", "Ned"))
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    reader = TableReader()
    first = reader.read(table(path, "csv"))
    new.replace(path)
    assert reader.read(table(path, "csv")).id != first.id


def test_rows_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV.replace("Red", "R" * 5_000_000))
    assert len(rows_of(table(path, "csv"))[0][1]) == 5_000_000 + len(", or not")


def test_links_in_a_circle_are_said(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(NotAllowed, match="must be a file or a URI"):
        TableReader().read(table(tmp_path / "a", "csv"))


def test_parquet_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    long = {f.name: pa.array(["x" * 200_000] if f.type == VARCHAR else [None], f.type.arrow) for f in SCHEMA.fields}
    pq.write_table(pa.table(long), path)
    assert len(rows_of(table(path, "parquet"))) == 1
    monkeypatch.setattr(static_table, "MAX_BYTES", 100_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(NotAllowed, match="unpack to at most"):
        TableReader().read(table(path, "parquet"))


def test_a_definition_is_read_as_it_was_written() -> None:
    definition = table("t.csv", "csv", delimiter=";")
    assert TableDefinition.from_json(definition.to_json()) == definition


@pytest.mark.parametrize(
    ("connector", "form", "options", "message"),
    [
        ("kafka", "csv", {"path": "x"}, "must be 'file'; got 'kafka'"),
        ("file", "xml", {"path": "x"}, "one of 'csv', 'json', 'parquet'; got 'xml'"),
        ("file", "csv", {}, "path = 'packs.csv'"),
        ("file", "json", {"path": "x", "delimiter": ";"}, "has no option 'delimiter'. It has 'path'"),
        ("file", "csv", {"path": "x", "delimiter": ";;"}, "no end of a line; got ';;'"),
        ("file", "csv", {"path": "x", "delimiter": "é"}, "one ASCII character"),
        ("file", "csv", {"path": "x", "delimiter": "\n"}, "no end of a line"),
    ],
)
def test_bad_options_are_refused(connector: str, form: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        validate_table(connector, form, options)
    assert message in caught.value.detail
