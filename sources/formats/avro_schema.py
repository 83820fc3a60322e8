"""What a writer's schema in Avro says: how its records are read, and which column each of its fields can be.

Times are read as the numbers they are and become columns at once, so their logical types are taken out of what the
reader sees. Records that contain themselves and arrays whose items take no bytes are refused: a few bytes of them could
take all memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import orjson
import pyarrow as pa

from braid.sources.core.errors import NotAllowed

LONGEST_SCHEMA = 1 << 20
_SIMPLE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_TIMES: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit)
        for local in ("", "local-")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}


@dataclass(frozen=True)
class AvroSchema:
    """``parsed`` is for the reader; ``columns`` maps fields to the Arrow types of their values.

    That is None where the values of a field, or what is in them, may be of several types.
    """

    parsed: Any
    columns: Mapping[str, pa.DataType | None]


def read_schema(text: str, referenced: Mapping[str, Any] | None = None) -> AvroSchema:
    """Read the JSON of a record's schema; NotAllowed when it is none, or one that cannot be read safely.

    ``referenced`` has the schemas that it refers to by name, as :func:`read_named` gives them.
    """
    named_types = dict(referenced or {})
    parsed = read_named(text, named_types)
    if not isinstance(parsed, dict) or parsed.get("type") not in ("record", "error"):
        raise NotAllowed("An Avro schema must be that of a record.")
    try:
        _least_size(parsed, named_types, {}, ())
        columns = {field["name"]: _arrow_type(field["type"], named_types) for field in parsed["fields"]}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as problem:  # the library lets much pass
        raise NotAllowed(f"An Avro schema must be well-formed: {_brief(problem)}.") from None
    return AvroSchema(parsed, columns)


def read_referring(text: str, referenced: Iterable[tuple[str, str]]) -> AvroSchema:
    """Read a schema as :func:`read_schema` does, given the texts of those that it refers to in their order."""
    named_types: dict[str, Any] = {}
    for _, other in referenced:
        read_named(other, named_types)
    return read_schema(text, named_types)


def read_named(text: str, named_types: dict[str, Any]) -> Any:
    """Parse a schema and add the types that it names to ``named_types``; NotAllowed when it is none."""
    if len(text) > LONGEST_SCHEMA:
        raise NotAllowed(f"An Avro schema must have at most {LONGEST_SCHEMA} characters.")
    try:
        return fastavro.parse_schema(_mark_times(orjson.loads(text)), named_schemas=named_types)
    except Exception as problem:  # what garbage makes the library raise is not documented
        raise NotAllowed(f"An Avro schema must be well-formed: {_brief(problem)}.") from None


_TIME = "braid.time"


def _mark_times(schema: Any) -> Any:
    """Return a schema whose times have no logical type, but a property that says what they are."""
    if isinstance(schema, list):
        return [_mark_times(variant) for variant in schema]
    if not isinstance(schema, dict):
        return schema
    marked = {key: _mark_times(value) if key in ("type", "items", "values") else value for key, value in schema.items()}
    if isinstance(schema.get("fields"), list):
        marked["fields"] = [_mark_times(field) for field in schema["fields"]]
    if schema.get("logicalType", "decimal") != "decimal":
        marked[_TIME] = marked.pop("logicalType")
    return marked


def _arrow_type(schema: Any, named_types: Mapping[str, Any]) -> pa.DataType | None:
    """Return the Arrow type of values, None where they, or what is in them, may be of several types."""
    if isinstance(schema, list):
        variants = [variant for variant in schema if variant != "null" and variant != {"type": "null"}]
        if len(variants) > 1:
            return None
        schema = variants[0] if variants else "null"
    schema = named_types.get(schema, schema) if isinstance(schema, str) else schema
    properties = schema if isinstance(schema, dict) else {"type": schema}
    kind = properties["type"]
    if properties.get("logicalType") == "decimal":
        precision, scale = properties.get("precision", 0), properties.get("scale", 0)
        is_simple = type(precision) is type(scale) is int and 0 <= scale <= precision and 1 <= precision <= 38
        return pa.decimal128(precision, scale) if is_simple else None
    if kind in ("record", "error"):
        members = [(field["name"], _arrow_type(field["type"], named_types)) for field in properties["fields"]]
        return None if any(member is None for _, member in members) else pa.struct(members)
    if kind in ("array", "map"):
        inner = _arrow_type(properties["items" if kind == "array" else "values"], named_types)
        return None if inner is None else pa.list_(inner) if kind == "array" else pa.map_(pa.string(), inner)
    time = properties.get(_TIME)
    return (_TIMES.get((kind, time)) if isinstance(time, str) else None) or _SIMPLE.get(kind)


def _least_size(schema: Any, named_types: Mapping[str, Any], sizes: dict[str, int], enclosing: tuple[str, ...]) -> int:
    """Return how many bytes a value takes at least; NotAllowed for what cannot be read safely."""
    if isinstance(schema, list):
        return 1 + min((_least_size(variant, named_types, sizes, enclosing) for variant in schema), default=0)
    if isinstance(schema, str) and schema not in _SIMPLE:
        if schema in enclosing:
            raise NotAllowed(f"Avro records must not contain themselves; {schema!r} does.")
        if schema not in sizes:
            sizes[schema] = _least_size(named_types[schema], named_types, sizes, enclosing)
        return sizes[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        inner = (*enclosing, schema["name"])
        return sum(_least_size(field["type"], named_types, sizes, inner) for field in schema["fields"])
    if kind == "array":
        if not _least_size(schema["items"], named_types, sizes, enclosing):
            raise NotAllowed("Items of Avro arrays must take a byte each at least; those of some array take none.")
        return 1
    if kind == "map":
        _least_size(schema["values"], named_types, sizes, enclosing)
        return 1
    if kind == "fixed":
        size = schema["size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise NotAllowed(f"The size of an Avro fixed must be a whole number of bytes; got {size!r}.")
        return size
    return {"null": 0, "float": 4, "double": 8}.get(kind, 1)


def _brief(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:300].rstrip(".")
