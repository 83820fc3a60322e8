"""The statement that is inferred from a sample: accepted as it is, and with reasons."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.session.commands.inference import Inference, InferredStream
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream, CreateTable
from braid.sources.connectors.registry import CONNECTORS
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.formats.csv_document import decode_csv
from braid.sources.formats.ndjson import decode_ndjson

CSV = b"user_id,order,price,when it was,time\n1,3,9.5,2024-01-30T00:00:00Z,2024-01-31T12:00:00Z\n"
PLAIN = b"user_id,price,time\n1,9.5,2024-01-31T12:00:00Z\n2,3,2024-01-31T11:59:30Z\n"
UTC = pa.timestamp("us", "UTC")
NOW_US = 1_800_000_000_000_000


@pytest.fixture
def inference() -> Inference:
    """It may read what it likes."""
    return Inference(now_us=lambda: NOW_US)


def types_of(inferred: InferredStream) -> dict[str, str]:
    return {column["name"]: column["type"] for column in inferred.to_json()["columns"]}


def statement_of(inferred: InferredStream) -> CreateStream:
    statement = parse_statement(inferred.sql)
    assert isinstance(statement, CreateStream)
    return statement


def test_csv_that_is_pushed_gets_a_statement_that_takes_its_rows(inference: Inference) -> None:
    inferred = inference.of_rows("csv", PLAIN, "purchases")
    statement = statement_of(inferred)
    assert (statement.name, statement.connector) == ("purchases", "push")
    assert types_of(inferred) == {"user_id": "INT", "price": "DOUBLE", "time": "TIMESTAMP"}
    assert (statement.schema.event_time, statement.schema.lateness_us) == ("time", 30_000_000)
    decoded = decode_csv(PLAIN, statement.schema)
    assert (decoded.tuples.num_rows, decoded.malformed) == (2, ())
    assert inferred.to_json()["event_time"] == "time"
    assert inferred.to_json()["lateness_seconds"] == 30.0
    assert "INTERVAL '30' SECOND, since 1 row(s) come after later ones, by up to INTERVAL '30' SECOND" in inferred.sql
    assert all(f"-- {comment}" in inferred.sql for comment in inferred.comments)


@pytest.mark.parametrize("day", ["2006-12-16", "16/12/2006"])
def test_a_day_and_a_time_of_day_are_one_event_time(inference: Inference, day: str) -> None:
    text = f"Day,event_time,Power\n{day},17:24:00,4.2\n{day},17:23:00,5.3\n{day},?,5.3\n".encode()
    inferred = inference.of_rows("csv", text, "power")
    statement = statement_of(inferred)
    assert (statement.schema.event_time, statement.schema.lateness_us) == ("event_time_2", 60_000_000)
    assert "since 'Day' has its day, and 'event_time' its time of day" in inferred.sql
    assert any(comment.startswith("Its times are read as UTC: convert local ones") for comment in inferred.comments)
    assert "1 row(s) have no time there" in inferred.sql
    decoded = decode_csv(text, statement.schema)
    assert [row["event_time_2"].isoformat() for row in decoded.tuples.to_pylist()] == [
        "2006-12-16T17:24:00",
        "2006-12-16T17:23:00",
    ]
    assert [fault.line for fault in decoded.malformed] == [3]


def test_a_whole_time_goes_before_a_day_beside_a_time_of_day(inference: Inference) -> None:
    text = b"day,clock,at\n2006-12-16,17:24:00,2006-12-16T17:24:00Z\n"
    assert statement_of(inference.of_rows("csv", text, "power")).schema.event_time == "at"


def test_lines_above_the_names_are_told_of(inference: Inference) -> None:
    with pytest.raises(MalformedRequest, match=r"'Export of March', has 1 field.*Take away the lines before them"):
        inference.of_rows("csv", b"Export of March\n" + PLAIN)


def test_json_that_is_pushed_gets_a_statement_that_takes_its_rows(inference: Inference) -> None:
    lines = (
        b'{"id": 1, "gift": true, "day": "2024-01-31", "t": "2024-01-31T12:00:00Z"}\n{"id": 3000000000, "tags": [1]}\n'
    )
    inferred = inference.of_rows("json", lines)
    statement = statement_of(inferred)
    assert (statement.name, statement.format) == ("events", "json")
    assert types_of(inferred) == {
        "id": "BIGINT",
        "gift": "BOOLEAN",
        "day": "DATE",
        "t": "TIMESTAMP",
        "tags": "ARRAY<INT>",
    }
    assert inferred.to_json()["left_out"] == []
    assert "1 row(s) have no time there: they are malformed" in inferred.sql
    assert len(decode_ndjson(lines, statement.schema).malformed) == 1


def test_words_of_sql_are_quoted(inference: Inference) -> None:
    body = b"order,primary,Group,time\n1,2,3,2024-01-31T12:00:00Z\n"
    statement = statement_of(inference.of_rows("csv", body))
    assert statement.schema.names == ("order", "primary", "Group", "time")
    assert decode_csv(body, statement.schema).tuples.num_rows == 1


def test_names_may_have_any_characters(inference: Inference) -> None:
    inferred = inference.of_rows("csv", b'when it was,"a ""b"" -- c",time\n1,2,2024-01-31T12:00:00Z\n')
    assert statement_of(inferred).schema.names == ("when it was", 'a "b" -- c', "time")


def test_names_that_no_column_can_have_are_left_out(inference: Inference) -> None:
    body = b",_id,window_start,a,A,b,b,time\n1,2,3,4,5,6,7,2024-01-31T12:00:00Z\n"
    inferred = inference.of_rows("csv", body)
    assert list(types_of(inferred)) == ["a", "time"]
    assert [entry["why"] for entry in inferred.to_json()["left_out"]] == [
        "no name",
        "a reserved name",
        "a reserved name",
        "a name that several columns have",
        "a name that several columns have",
        "a name that several columns have",
    ]
    assert "Left out: '' (no name), '_id'" in inferred.sql


def test_a_name_in_half_a_surrogate_pair_is_left_out(inference: Inference) -> None:
    inferred = inference.of_rows("json", b'{"\\ud800": 1, "t": "2024-01-31T12:00:00Z"}')
    assert list(types_of(inferred)) == ["t"]
    assert "\\ud800" in inferred.to_json()["left_out"][0]["name"]


def test_an_epoch_number_is_the_event_time_where_nothing_else_is(inference: Inference) -> None:
    body = b'{"ms": 1700000000123, "updated": 1700000000124, "at": null}\n'
    body += b'{"ms": 1700000000123, "updated": 1700000000124, "at": "2024-01-31T12:00:00Z"}\n'
    inferred = inference.of_rows("json", body)
    assert inferred.event_time == "ms"
    assert "'timestamp.format' = 'epoch-millis'" in inferred.sql
    assert types_of(inferred) == {"ms": "TIMESTAMP", "updated": "BIGINT", "at": "VARCHAR"}
    decoded = decode_ndjson(body, statement_of(inferred).schema)
    assert [us.timestamp() for us in decoded.tuples.column("ms").cast(UTC).to_pylist()] == [1700000000.123] * 2


def test_times_in_a_local_notation_are_the_event_time_where_nothing_else_is(inference: Inference) -> None:
    body = b'Artikel;"Datum / Uhrzeit";Preis\nTee;31.01.2026 14:05;1,50\nBrot;31.01.2026 14:06;2\n'
    inferred = inference.of_rows("csv", body, "orders")
    assert inferred.source["timestamp.format"] == "dd.MM.yyyy HH:mm"
    assert types_of(inferred) == {"Artikel": "VARCHAR", "Datum / Uhrzeit": "TIMESTAMP", "Preis": "VARCHAR"}
    assert "since it has times in the pattern 'dd.MM.yyyy HH:mm'" in inferred.sql
    assert "-- numbers with a decimal comma: CAST(REPLACE(…, ',', '.') AS DOUBLE)" in inferred.sql
    decoded = decode_csv(body.replace(b";", b",").replace(b"1,50", b'"1,50"'), statement_of(inferred).schema)
    assert (decoded.tuples.num_rows, decoded.malformed) == (2, ())
    beside = inference.of_rows("csv", b"day,time\n31.01.2026 14:05,2024-01-31T12:00:00Z\n", "orders")
    assert types_of(beside) == {"day": "VARCHAR", "time": "TIMESTAMP"}


def test_a_time_in_an_object_is_the_event_time_where_no_column_is(inference: Inference) -> None:
    rows = [{"meta": {"sent at": 1_767_268_800_000 + n, "day": "2026-01-01", "ok": True}, "k": n} for n in range(30)]
    inferred = inference.of_rows("json", b"\n".join(map(orjson.dumps, rows)), "s")
    assert (inferred.event_time, inferred.candidates) == ("sent at", ("sent at", "day"))
    assert """"sent at" TIMESTAMP FROM '$.meta["sent at"]' LATENESS INTERVAL '1' SECOND""" in inferred.sql
    assert 'meta STRUCT<"sent at" BIGINT, day DATE, ok BOOLEAN>' in inferred.sql
    taken = [{"ts": "no time", "meta": {"ts": "2026-01-01T12:00:00Z"}}]
    inferred = inference.of_rows("json", b"\n".join(map(orjson.dumps, taken)), "s")
    assert "ts_2 TIMESTAMP FROM '$.meta.ts' LATENESS" in inferred.sql


def test_times_in_objects_are_text_beside_epoch_numbers(inference: Inference) -> None:
    rows = [{"ms": 1_767_268_800_000 + n, "meta": {"at": "2026-01-01T12:00:00Z"}} for n in range(3)]
    inferred = inference.of_rows("json", b"\n".join(map(orjson.dumps, rows)), "s")
    assert "meta STRUCT<at VARCHAR>" in inferred.sql
    assert "'timestamp.format' = 'epoch-millis'" in inferred.sql


def test_other_candidates_are_told(inference: Inference) -> None:
    body = b"a,created_at,n\n2024-01-31T12:00:00Z,2024-01-31T12:00:00Z,1700000000123\n"
    inferred = inference.of_rows("csv", body)
    assert inferred.event_time == "a"
    assert inferred.to_json()["event_time_candidates"] == ["a", "created_at", "n"]
    assert "Others: 'created_at', 'n'." in inferred.sql


def test_times_beyond_now_switch_max_future_off(inference: Inference) -> None:
    inferred = inference.of_rows("csv", b"a,time\n1,2040-01-01T00:00:00Z\n")
    assert statement_of(inferred).watermark.max_future_us is None
    assert "max_future is off" in inferred.sql
    assert statement_of(inference.of_rows("csv", PLAIN)).watermark.max_future_us is not None


@pytest.mark.parametrize("body", [b"a,b\n1,2\n", b"a,day,at\n1,Monday,12:30\n"])
def test_rows_without_a_time_are_refused_with_advice(inference: Inference, body: bytes) -> None:
    with pytest.raises(NotAllowed, match="CREATE TABLE") as refused:
        inference.of_rows("csv", body)
    advice = "One of these would do in such a form: 'day' has 'Monday' (row 1), 'at' has '12:30' (row 1)."
    assert (advice in refused.value.detail) == (b"day" in body)
    table = refused.value.detail.partition("CREATE TABLE")[1] + refused.value.detail.partition("CREATE TABLE")[2]
    assert isinstance(parse_statement(table.rstrip(".")), CreateTable), "what it advises is a statement"


def test_pushed_csv_needs_names(inference: Inference) -> None:
    with pytest.raises(NotAllowed, match="names of its columns"):
        inference.of_rows("csv", b"1,2024-01-31T12:00:00Z\n")


def test_a_stream_is_called_after_its_file_and_by_a_name_that_is_free() -> None:
    inference = Inference(taken=lambda: ["Flights", "flights_2"])
    for name, file, called in (
        (None, "", "events"),
        (None, "Flights.csv", "flights_3"),
        (None, "2024-trips (1).csv", "s_2024_trips_1"),
        ("mine", "flights.csv", "mine"),
    ):
        inferred = inference.of_rows("csv", PLAIN, name, file)
        assert inferred.name == called
        assert ("The name flights is taken." in inferred.comments) == (file == "Flights.csv")


def test_points_that_may_stand_between_thousands_are_said_where_semicolons_part_the_fields() -> None:
    rows = [("01.02.2026 10:00", "2.350"), ("02.02.2026 11:00", "1.200")]
    for delimiter, doubt in ((";", True), (",", False)):
        body = "\n".join(map(delimiter.join, [("Wann", "Preis"), *rows])).encode()
        inferred = Inference().of_rows("csv", body)
        assert types_of(inferred)["Preis"] == "DOUBLE"
        assert ("-- if 2.350 is meant to be 2350" in inferred.sql) == doubt
        assert any(comment.startswith("Its times are read as UTC: convert local ones") for comment in inferred.comments)
    assert "2350" not in Inference().of_rows("csv", b"Wann;Preis\n01.02.2026 10:00;2.350\n01.02.2026 10:01;0.5\n").sql


def test_columns_of_one_name_are_said_where_no_other_has_times(inference: Inference) -> None:
    with pytest.raises(NotAllowed, match=r"Left out: 'Datum' \(a name that several columns have\)"):
        inference.of_rows("csv", b"Datum,Datum,n\n2026-01-31T12:00:00Z,2026-01-31T12:00:00Z,1\n")


def test_a_wrong_time_is_said_once(inference: Inference) -> None:
    inferred = inference.of_rows("csv", b"at,n\n2026-01-31T12:00:00Z,1\n2026-01-31T12:00:01Z,2\nsoon,3\n")
    assert "1 row(s) have no time there, such as 'soon' (row 3): they are malformed, and dead letters." in inferred.sql
    assert inferred.sql.count("soon") == 1


def test_parquet_is_pushed_as_arrow(inference: Inference) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1], "t": pa.array([1], pa.timestamp("ms"))}), sink)
    inferred = inference.of_rows("parquet", sink.getvalue().to_pybytes())
    assert types_of(inferred) == {"a": "BIGINT", "t": "TIMESTAMP"}
    assert statement_of(inferred).format == "arrow"


def put(folder: Path, name: str, content: bytes, age: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return path


def test_a_folder_is_read_as_its_stream_reads_it(inference: Inference, tmp_path: Path) -> None:
    folder = tmp_path / "purchases"
    put(folder, "new.csv", PLAIN.replace(b",", b";").replace(b"9.5", b"1e5"), age=1)
    put(folder, "old.csv", PLAIN.replace(b",", b";"), age=2)
    put(folder, "_hidden", b"x")
    inferred = inference.of_place("file", {"path": str(folder)})
    statement = statement_of(inferred)
    assert (statement.name, statement.connector, statement.format) == ("purchases", "file", "csv")
    assert statement.options == {"path": str(folder), "delimiter": ";"}
    assert inferred.rows == 4
    assert inferred.lateness_us == 30_000_000
    assert "its 2 files" in inferred.sql
    assert "Add bounded" in inferred.sql
    ending = inference.of_place("file", {"path": str(folder), "bounded": "true"})
    assert statement_of(ending).options["bounded"] == "true"
    assert "Add bounded" not in ending.sql


def test_a_file_is_its_folder_if_it_is_alone_there(inference: Inference, tmp_path: Path) -> None:
    path = put(tmp_path / "in", "a.csv", PLAIN)
    assert statement_of(inference.of_place("file", {"path": str(path)})).options["path"] == str(path.parent)
    put(tmp_path / "in", "b.csv", PLAIN)
    with pytest.raises(NotAllowed, match="1 file"):
        inference.of_place("file", {"path": str(path)})


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "must have a file"),
        ({"a.csv": PLAIN, "b.json": b'{"a": 1}'}, "one format"),
        ({"a.csv": PLAIN, "b.csv": b"x,y\n1,2\n"}, "same columns"),
        ({"a.json": b'[{"a": 1}]'}, "an object a line|object a line"),
        ({"a.gz": b"\x1f\x8b\x08"}, "gzip"),
    ],
)
def test_a_folder_that_no_stream_can_read_is_refused(
    inference: Inference, tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files.items():
        put(folder, name, content)
    with pytest.raises(NotAllowed, match=why):
        inference.of_place("file", {"path": str(folder)})


def test_only_what_a_stream_may_read_is_looked_at(tmp_path: Path) -> None:
    put(tmp_path / "open", "a.csv", PLAIN)
    put(tmp_path / "secret", "a.csv", PLAIN)
    inference = Inference(Confinement(str(tmp_path / "open"), data_folder=str(tmp_path / "data")))
    for path in (tmp_path / "secret", tmp_path / "secret" / "a.csv", tmp_path / "data", Path("../secret")):
        with pytest.raises(NotAllowed):
            inference.of_place("file", {"path": str(path)})
    with pytest.raises(NotAllowed, match="no password"):
        inference.of_place("file", {"path": "s3://key:secret@bucket/folder"})


def test_what_cannot_be_looked_at_is_refused(inference: Inference, tmp_path: Path) -> None:
    for connector in set(CONNECTORS) - {"file", "kafka"}:
        with pytest.raises(NotAllowed, match="'file', 'kafka'"):
            inference.of_place(connector, {})
    with pytest.raises(NotAllowed, match="must be a folder"):
        inference.of_place("file", {"path": str(tmp_path / "nothing")})
    with pytest.raises(NotAllowed, match="'path'"):
        inference.of_place("file", {"path": str(tmp_path), "speed": "1"})
    with pytest.raises(NotAllowed, match="brokers"):
        inference.of_place("kafka", {"topic": "t"})
    with pytest.raises(MalformedRequest):
        inference.of_rows("csv", b"")
