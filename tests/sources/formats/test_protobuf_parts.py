"""Messages, repeated fields and maps of Protobuf as columns whose values have parts."""

from __future__ import annotations

from datetime import datetime

from google.protobuf import message_factory
from google.protobuf.json_format import ParseDict

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.formats.protobuf_messages import decode_protobuf_messages, plain_messages
from braid.sources.formats.protobuf_schema import read_proto

PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  message Item { string sku = 1; int32 qty = 2; repeated double prices = 3; }
  enum State { OPEN = 0; DONE = 1; }
  int64 id = 1;
  Item first = 2;
  repeated Item items = 3;
  map<string, int64> counts = 4;
  repeated string tags = 5;
  map<string, Item> by_name = 6;
  State state = 7;
  google.protobuf.Timestamp time = 8;
}
"""
STREAM = (
    "CREATE STREAM s (id BIGINT, first STRUCT<sku VARCHAR, qty BIGINT>, items ARRAY<STRUCT<qty INT, prices DOUBLE[]>>,"
    " counts MAP<VARCHAR, BIGINT>, tags VARCHAR[], names MAP<VARCHAR, STRUCT<sku VARCHAR>> FROM 'by_name',"
    " all_of_it JSON FROM 'items', time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
)


def test_messages_are_structs_repeated_fields_arrays_and_maps_maps() -> None:
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    descriptor = read_proto(PROTO).named("Order")
    kind = message_factory.GetMessageClass(descriptor)
    whole = ParseDict(
        {
            "id": 1,
            "first": {"sku": "a"},
            "items": [{"sku": "b", "qty": 2, "prices": [1.5, 2]}, {}],
            "counts": {"k": 7},
            "tags": ["x", ""],
            "byName": {"n": {"sku": "c"}},
            "time": "2026-01-01T12:00:00Z",
        },
        kind(),
    )
    least = ParseDict({"time": "2026-01-01T12:00:00Z"}, kind())
    bodies = [whole.SerializeToString(), least.SerializeToString()]
    decoded = decode_protobuf_messages(bodies, statement.schema, plain_messages(statement.schema, descriptor))
    assert not decoded.malformed
    decoded.tuples.validate(full=True)
    assert decoded.tuples.to_pylist() == [
        {
            "id": 1,
            "first": {"sku": "a", "qty": 0},
            "items": [{"qty": 2, "prices": [1.5, 2.0]}, {"qty": 0, "prices": []}],
            "counts": [("k", 7)],
            "tags": ["x", ""],
            "names": [("n", {"sku": "c"})],
            "all_of_it": '[{"sku":"b","qty":2,"prices":[1.5,2.0]},{"sku":"","qty":0,"prices":[]}]',
            "time": datetime(2026, 1, 1, 12),
        },
        {
            "id": 0,
            "first": None,
            "items": [],
            "counts": [],
            "tags": [],
            "names": [],
            "all_of_it": "[]",
            "time": datetime(2026, 1, 1, 12),
        },
    ]
