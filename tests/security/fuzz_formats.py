"""Decode mutations of good inputs in a process of its own: ``fuzz_formats FORMATS SEED A B FILE``.

Decodes the mutations A to B of each format. FILE says which one is under way, so that whoever waits can tell which one
ended the process; what is accepted is read to its end. The last line printed is a JSON object: how many were accepted
and refused of each format, and the most memory there was, in bytes.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.connectors.files.index import IndexedFile
from braid.sources.connectors.files.parquet import ParquetFormat
from braid.sources.connectors.segment import FrameHeader, SegmentFrame, encode_payload, read_tuples
from braid.sources.core.errors import ServiceError
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
    StreamSchema,
)
from braid.sources.formats.arrow_messages import decode_arrow_messages
from braid.sources.formats.avro_messages import decode_avro_messages
from braid.sources.formats.avro_schema import read_schema
from braid.sources.formats.csv_document import decode_csv
from braid.sources.formats.csv_messages import decode_csv_messages
from braid.sources.formats.csv_records import CsvLayout, read_carefully, read_fast
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.decoding import decode
from braid.sources.formats.encodings import unpack
from braid.sources.formats.json_lines import decode_json_lines
from braid.sources.formats.limits import DecodingLimits
from braid.sources.formats.ndjson import read_fast as read_fast_json
from braid.sources.formats.record_batches import match_columns
from braid.sources.formats.texts import is_utf8
from tests.security import fuzz_protobuf
from tests.security.mutations import mutated

SCHEMA = StreamSchema(
    (
        Field("b", BOOLEAN),
        Field("i", INT),
        Field("n", BIGINT),
        Field("d", DOUBLE),
        Field("m", ColumnType("DECIMAL", 6, 2)),
        Field("s", VARCHAR),
        Field("day", DATE),
        Field("time", TIMESTAMP),
    ),
    "time",
    0,
)
PLACE = struct.Struct("<24sq")
"""What FILE has: a format, and the number of a mutation, -1 for what mutations are made of."""
LIMITS = DecodingLimits(rows=20_000, unpacked_bytes=16 << 20, malformed=2_000)
NOON = datetime(2024, 1, 31, 12, 0, 0, 123456)
TIMES = pa.array([NOON, None, NOON], pa.timestamp("us"))
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "i", "type": "int"},
        {"name": "n", "type": "long"},
        {"name": "d", "type": "double"},
        {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 3}},
        {"name": "s", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "more", "type": {"type": "array", "items": "string"}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
    ],
}
WRITER = read_schema(json.dumps(AVRO))


def arrow_seeds(packed: bool = True) -> list[bytes]:
    """Return Arrow streams with every type that a stream takes, and some that none does."""
    views = pa.array(["x", None, "a text that is longer than twelve bytes"], pa.string_view())
    columns: list[dict[str, Any]] = [
        {
            "time": TIMES,
            "i": pa.array([1, 2, None], pa.int32()),
            "s": pa.array(["x", "", None]),
            "b": [True, None, False],
        },
        {
            "time": TIMES.cast(pa.timestamp("ns")),
            "n": pa.array([1, 2, 3], pa.uint64()),
            "d": pa.array([1.5, None, 2], pa.float16()),
            "m": pa.array([Decimal(1), None, Decimal("2.5")], pa.decimal256(50, 10)),
            "day": pa.array([date(2024, 1, 31), None, date(1, 1, 1)], pa.date64()),
            "list": [["a"], None, []],
            "struct": [{"a": 1}, None, {"a": None}],
        },
        {"time": TIMES, "s": views, "other": views, "m": pa.array([1.25, None, 3.0])},
        {"time": TIMES, "s": views.cast(pa.large_string()), "d": pa.array([1, 2, 3], pa.int8())},
        {
            "time": TIMES,
            "s": pa.array(["x", None, "x"]).dictionary_encode(),
            "i": pa.array([7, 7, 8]).dictionary_encode(),
        },
        {"time": TIMES, "s": pa.DictionaryArray.from_arrays(pa.array([0, 2, 1], pa.uint8()), views)},
        {"time": ["2024-01-31T12:00:00Z", "x", None], "day": ["2024-01-31", None, "x"], "m": ["1.5", "x", None]},
        {"time": TIMES, "run": pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([1], pa.int32()))},
        {"time": pa.array([1, 2, 3], pa.timestamp("s", "Europe/Berlin")), "m": pa.array([1, 2, 3], pa.decimal32(7, 2))},
        {"time": TIMES, "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), "s": pa.nulls(3)},
    ]
    streams = []
    for compression in (None, "zstd", "lz4") if packed else (None,):
        for named in columns:
            batch = pa.record_batch(named)
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=compression)
            with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
                writer.write_batch(batch)
                writer.write_batch(batch.slice(1))
            streams.append(sink.getvalue().to_pybytes())
    return streams


JSON_SEEDS = [
    b'{"b":true,"i":1,"n":2,"d":3.5,"m":1.25,"s":"x","day":"2024-01-31","time":"2024-01-31T12:00:00Z"}',
    b'{"time":"2024-01-31 12:00:00.123456","s":"\\ud83d\\ude00 \xc3\xa9","m":"1e1","more":[1,{"a":[null]}]}',
    b'{"TIME":"2024-01-31T12:00:00+01:00","i":-2147483648,"n":9223372036854775807,"d":1e308}',
    b'{"time":"0001-01-01T00:00:00Z","d":-0.0,"s":null,"i":null}',
]
CSV_SEEDS = [
    b"b,i,n,d,m,s,day,time\ntrue,1,2,3.5,1.25,x,2024-01-31,2024-01-31T12:00:00Z\n,,,,,,,2024-01-31 12:00:00\n",
    b'b,i,n,d,m,s,day,time\r\nfalse,-1,9,1e3,"1.5","a ""b"", c\nd",,2024-01-31T12:00:00+01:00\r\n',
]


def avro_seeds() -> list[bytes]:
    """Return records of Avro."""
    seeds = []
    for s in (None, "x" * 40):
        row = {
            "b": True,
            "i": 1,
            "n": -(2**62),
            "d": 1.5,
            "m": Decimal("1.25"),
            "s": s,
            "day": 19753,
            "time": 1706702400123,
        }
        sink = BytesIO()
        schema = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
        fastavro.schemaless_writer(sink, schema, {**row, "more": ["a", "b"], "map": {"k": 1}})
        seeds.append(sink.getvalue())
    return seeds


def schema_seeds() -> list[bytes]:
    """Return schemas of Avro, each with a record that was written with it."""
    named = {"type": "enum", "name": "e", "symbols": ["x", "y"]}
    fields: list[dict[str, Any]] = [
        {"name": "s", "type": named},
        {"name": "time", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "m", "type": {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "precision": 4}},
        {"name": "more", "type": {"type": "array", "items": ["e", "f"]}},
    ]
    other = {"type": "record", "name": "a.r", "namespace": "n", "fields": fields}
    schemas = [json.dumps(AVRO), json.dumps(other)]
    records = [avro_seeds()[1], b"\x02\x02\x80\x80\x80\xb0\x80\x80\xab\x06\x01\x02\x02\x00\x02\x00"]
    return [schema.encode() + b"\n" + record for schema, record in zip(schemas, records, strict=True)]


def parquet_seeds() -> list[bytes]:
    """Return small files of Parquet of several ways of writing."""
    columns = {
        "b": pa.array([True, None, False]),
        "i": pa.array([1, 2, None], pa.int32()),
        "n": pa.array([1, 2, 3]),
        "d": pa.array([1.5, None, 2.0]),
        "m": pa.array([Decimal("1.5"), None, Decimal(2)], pa.decimal128(6, 2)),
        "s": pa.array(["x", "x", None]),
        "day": pa.array([date(2024, 1, 31), None, date(1, 1, 1)]),
        "time": pa.array([NOON, NOON, None], pa.timestamp("us")),
        "more": [["a"], None, []],
    }
    options: list[dict[str, Any]] = [
        {"compression": "snappy"},
        {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "zstd", "use_deprecated_int96_timestamps": True, "row_group_size": 2},
        {"compression": "gzip", "use_dictionary": False, "column_encoding": {"i": "DELTA_BINARY_PACKED"}},
    ]
    seeds = []
    for chosen in options:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, **chosen)
        seeds.append(sink.getvalue().to_pybytes())
    return seeds


def _push(kind: str, schema: StreamSchema = SCHEMA) -> Callable[[bytes], Iterable[Decoded]]:
    return lambda body: [decode(body, kind, schema, LIMITS)]


def _flight(body: bytes, schema: StreamSchema) -> Iterable[Decoded]:
    """Decode as batches of a Flight server are, which pyarrow has read before anything else looks at them."""
    options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
    try:
        with pa.ipc.open_stream(body, options=options) as reader:
            batches = [batch for batch in reader if batch.num_rows <= LIMITS.rows]
            columns = match_columns(reader.schema, schema)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return []
    return [columns.decode(batch) for batch in batches]


def _parquet(body: bytes, schema: StreamSchema) -> Iterable[Decoded]:
    form = ParquetFormat(schema)
    source = pa.BufferReader(body)
    scan = form.scan(source, len(body))
    file = IndexedFile("p", "p", "", len(body), 0, 0, 0, max(scan.records, 1))
    return (piece.decoded for piece in form.read(source, file, 0, min(scan.records, LIMITS.rows)))


def _avro_schema(body: bytes) -> Iterable[Decoded]:
    schema, _, record = body.partition(b"\n")
    return [decode_avro_messages([record, None], SCHEMA, read_schema(schema.decode(errors="replace")))]


def _csv(body: bytes) -> Iterable[Decoded]:
    names, _, rest = body.partition(b"\n")
    try:
        yield decode_csv(body, SCHEMA)
    except ServiceError:
        pass
    except UnicodeDecodeError:  # whoever calls it has looked at that
        assert not body.isascii()
    yield decode_csv_messages([body, names, rest, None], SCHEMA, ",")
    layout = CsvLayout.declared(SCHEMA, ",")
    tuples = read_fast(rest, SCHEMA, layout)
    yield Decoded(tuples, ()) if tuples is not None else read_carefully(rest, SCHEMA, layout)


def as_people_have_it() -> StreamSchema:
    """Return columns from paths and names of others, times that are numbers, and a computed event time."""
    statement = parse_statement(
        "CREATE STREAM s (id BIGINT NOT NULL FROM '$.user.id', name VARCHAR FROM '$.user[\"full name\"]',"
        " ms TIMESTAMP FROM '$.at', n INT FROM '$.list[1]', s VARCHAR FROM 'S T', half AS id / 2,"
        " t AS ms - INTERVAL '1' DAY LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'push', 'timestamp.format' = 'epoch-millis')"
    )
    assert isinstance(statement, CreateStream)
    return statement.schema


PEOPLES = as_people_have_it()
STRUCTS = StreamSchema(tuple(f for f in PEOPLES.fields if f.name != "n"), "t", 0)
NESTED_SEEDS = [
    b'{"user":{"id":1,"full name":"x","more":[{"a":1}]},"at":1706702400123,"list":[1,2],"S T":"y"}',
    b'{"user":{"id":2.0,"full name":null},"at":1.5,"list":null}',
    b'{"user":null,"at":"1706702400123","s t":"\\u00e9"}',
]


def struct_seeds() -> list[bytes]:
    """Return Arrow streams whose columns are structs."""
    views = pa.array(["x", None, "a text that is longer than twelve bytes"], pa.string_view())
    users = [
        pa.array([{"id": 1, "full name": "x"}, None, {"id": 3, "full name": None}]),
        pa.StructArray.from_arrays([pa.array([1.0, 2.0, None]), views], ["id", "full name"]),
        pa.StructArray.from_arrays([pa.array([1, 2, 3], pa.int8()), views.cast(pa.string()).dictionary_encode()],
                                   ["id", "full name"]),
    ]  # fmt: skip
    streams = []
    for user in users:
        batch = pa.record_batch({"user": user, "at": pa.array([1706702400123, None, 5]), "other": user})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
            writer.write_batch(batch.slice(1))
        streams.append(sink.getvalue().to_pybytes())
    return streams


def with_parts() -> StreamSchema:
    """Return columns whose values have parts."""
    statement = parse_statement(
        "CREATE STREAM s (v STRUCT<id INT, name VARCHAR, more ARRAY<DOUBLE>>, items ARRAY<STRUCT<s VARCHAR, n INT>>,"
        " labels MAP<VARCHAR, TIMESTAMP>, j JSON, deep STRUCT<m MAP<VARCHAR, BOOLEAN[]>>,"
        " time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    assert isinstance(statement, CreateStream)
    return statement.schema


PARTS = with_parts()
PARTS_SEEDS = [
    b'{"v":{"id":1,"name":"x","more":[1,null,2.5]},"items":[{"s":"a","n":1},null,{}],"time":"2024-01-31T12:00:00Z"}',
    b'{"V":{"ID":1.0},"labels":{"a":"2024-01-31","b":null},"j":{"a":[1,{"b":"c"}]},"time":"2024-01-31T12:00:00Z"}',
    b'{"v":null,"items":[],"labels":{},"j":1e5,"deep":{"m":{"k":[true,null]}},"time":"2024-01-31T12:00:00Z"}',
]


def parts_seeds() -> list[pa.RecordBatch]:
    """Return batches with parts in every layout that is read."""
    views = pa.array(["x", None, "a text that is longer than twelve bytes"], pa.string_view())
    numbers = pa.array([[1.5, None], None, []], pa.large_list(pa.float32()))
    members = [pa.array([1, None, 3], pa.int8()), views, numbers]
    item = pa.struct([("s", pa.dictionary(pa.int8(), pa.string())), ("n", pa.int64()), ("more", pa.binary())])
    time = pa.map_(pa.string(), pa.timestamp("ns"))
    return [
        _with_all(named)
        for named in (
            {
                "time": TIMES,
                "v": pa.StructArray.from_arrays(members, ["id", "name", "more"], mask=pa.array([False, True, False])),
                "items": pa.array([[{"s": "a", "n": 1}, None], None, []], pa.list_(item)),
            },
            {
                "time": TIMES,
                "labels": pa.array([[("a", NOON), ("b", None)], None, []], time),
                "j": pa.array(['{"a": [1]}', None, "x"]),
                "deep": pa.array([{"m": [("k", [True])]}, None, {"m": None}], PARTS.field("deep").type.arrow),
            },
            {
                "time": TIMES,
                "v": pa.array(
                    [{"more": [1, 2]}, None, {"more": [3, 4]}], pa.struct([("more", pa.list_(pa.int16(), 2))])
                ),
                "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]", None, "{}"])),
            },
        )
    ]


def _with_all(named: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a batch that has all columns, NULL those that are not named."""
    nulls = {field.name: pa.nulls(3, field.type.arrow) for field in PARTS.fields if field.name not in named}
    return pa.record_batch({**named, **nulls})


def _parts_streams() -> list[bytes]:
    streams = []
    for batch in parts_seeds():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
            writer.write_batch(batch.slice(1))
        streams.append(sink.getvalue().to_pybytes())
    return streams


def _parts_files() -> list[bytes]:
    files = []
    for batch in parts_seeds():
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_batches([batch]), sink)
        files.append(sink.getvalue().to_pybytes())
    return files


def _peoples(body: bytes) -> Iterable[Decoded]:
    yield decode(body, "application/x-ndjson", PEOPLES, LIMITS)
    tuples = read_fast_json(body, PEOPLES, LIMITS) if is_utf8(body) else None
    if tuples is not None:
        assert tuples.equals(decode(body, "application/x-ndjson", PEOPLES, LIMITS).tuples)
        yield Decoded(tuples, ())


def _packed(codec: str) -> tuple[Callable[[], Sequence[bytes]], Callable[[bytes], Iterable[Decoded]]]:
    kind = "application/x-ndjson"
    return (
        lambda: [pa.compress(body, codec=codec, asbytes=True) for body in (*JSON_SEEDS, b"\n".join(JSON_SEEDS) * 50)],
        lambda body: [decode(unpack(body, codec, LIMITS), kind, SCHEMA, LIMITS)],
    )


SMALL = StreamSchema((Field("s", VARCHAR), Field("time", TIMESTAMP)), "time", 0)

FORMATS: dict[str, tuple[Callable[[], Sequence[bytes]], Callable[[bytes], Iterable[Decoded]]]] = {
    "arrow": (arrow_seeds, _push("application/vnd.apache.arrow.stream")),
    "arrow-messages": (arrow_seeds, lambda body: [decode_arrow_messages([body, None, body], SCHEMA)]),
    "flight": (lambda: [arrow_seeds(packed=False)[i] for i in (0, 2, 3, 4, 5)], partial(_flight, schema=SMALL)),
    "ndjson": (lambda: [b"\n".join(JSON_SEEDS), *JSON_SEEDS], _push("application/x-ndjson")),
    "json-lines": (lambda: [b"\n".join(JSON_SEEDS)], lambda body: [decode_json_lines(body, SCHEMA)]),
    "json": (lambda: [b"[" + b",".join(JSON_SEEDS) + b"]", *JSON_SEEDS], _push("application/json")),
    "csv": (lambda: CSV_SEEDS, _csv),
    "avro": (avro_seeds, lambda body: [decode_avro_messages([body, None], SCHEMA, WRITER)]),
    "avro-schema": (schema_seeds, _avro_schema),
    "protobuf": (fuzz_protobuf.message_seeds, partial(fuzz_protobuf.decode_messages, schema=SCHEMA)),
    "protobuf-schema": (fuzz_protobuf.schema_seeds, partial(fuzz_protobuf.decode_schemas, schema=SCHEMA)),
    "parquet": (parquet_seeds, partial(_parquet, schema=SCHEMA)),
    "parts": (lambda: [b"\n".join(PARTS_SEEDS), *PARTS_SEEDS], _push("application/x-ndjson", PARTS)),
    "arrow-parts": (_parts_streams, _push("application/vnd.apache.arrow.stream", PARTS)),
    "flight-parts": (_parts_streams, partial(_flight, schema=PARTS)),
    "parquet-parts": (_parts_files, partial(_parquet, schema=PARTS)),
    "csv-body": (lambda: CSV_SEEDS, _push("text/csv")),
    "nested": (lambda: [b"\n".join(NESTED_SEEDS), *NESTED_SEEDS], _peoples),
    "structs": (
        struct_seeds,
        lambda body: [decode(body, "application/vnd.apache.arrow.stream", STRUCTS, LIMITS)],
    ),
    "gzip": _packed("gzip"),
    "zstd": _packed("zstd"),
}


def read_to_the_end(decoded: Decoded) -> None:
    """Read all that was accepted, as it is kept and read back."""
    tuples = decoded.tuples
    tuples.validate(full=True)
    payload = encode_payload(tuples, decoded.malformed)
    kept = pa.py_buffer(b"".join(payload.parts))
    header = FrameHeader(0, tuples.num_rows, 0, 0, 0, None, None, None, payload.tuple_bytes, 0)
    again = read_tuples(kept, SegmentFrame(header, 0, 0, payload.size, payload.crc), tuples.schema)
    assert again.equals(tuples)
    for column in again.columns:
        if pa.types.is_timestamp(column.type):
            assert not len(column) or abs(np.asarray(column.view(pa.int64()).fill_null(0))).max() < 2**60
        column.to_pylist()
    for fault in decoded.malformed:
        (fault.detail + fault.raw).encode()


def max_memory() -> int:
    """Return the most memory that this process had, in bytes; what the system counts includes who started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main(forms: str, seed: str, first: int, end: int, told: Path) -> None:
    """Decode mutations of formats, given with commas between them; see the module."""
    told.write_bytes(bytes(PLACE.size))
    counts: dict[str, dict[str, int]] = {}
    with told.open("r+b") as file, mmap.mmap(file.fileno(), PLACE.size) as place:
        for form in forms.split(","):
            counts[form] = _decode_mutations(form, seed, range(first, end), place)
    print(orjson.dumps({"counts": counts, "memory": max_memory()}).decode())


def _decode_mutations(form: str, seed: str, numbers: range, place: mmap.mmap) -> dict[str, int]:
    make_seeds, decode_all = FORMATS[form]
    seeds, counts = make_seeds(), Counter[str]()
    PLACE.pack_into(place, 0, form.encode(), -1)
    for body in seeds:
        for decoded in decode_all(body):
            read_to_the_end(decoded)
    for number in numbers:
        PLACE.pack_into(place, 0, form.encode(), number)
        body = mutated(seeds, Random(f"{form} {seed} {number}"))
        try:
            for decoded in decode_all(body):
                read_to_the_end(decoded)
            counts["accepted"] += 1
        except ServiceError as problem:
            problem.detail.encode()
            counts["refused"] += 1
    return counts


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
