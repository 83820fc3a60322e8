"""Parts of values: members of structs, elements of arrays, values of maps, and what JSON texts hold.

Elements are counted from 1, from the end with negative numbers, as in DuckDB; in JSON from 0, as in PostgreSQL. What is
not there is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.coercion import coerce, common_type, describe
from braid.operators.functions.comparison import compared
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, constant, kernel
from braid.sources.core.errors import NotAllowed
from braid.sources.core.json_paths import Path, read_steps
from braid.sources.core.names import did_you_mean
from braid.sources.core.schema import BIGINT, BOOLEAN, JSON, NULL, VARCHAR, ColumnType
from braid.sources.formats.coercion import UnfitError, json_text
from braid.sources.formats.json_rows import parse_json
from braid.sources.formats.nested import lists_of

_ABSENT = object()
_SURROGATES = re.compile("[\ud800-\udfff]")


def _bind_member(function: Function, arguments: Arguments) -> Expression:
    value, name = arguments
    if not isinstance(name, Literal):
        raise function.refuse(arguments)
    member = value.type.member(str(name.value))
    if member is not None:
        return Call(function.name, (value, Literal(member[0], VARCHAR)), member[1])
    if value.type.kind == "STRUCT":
        known = ", ".join(name for name, _ in value.type.members[:50])
        hint = did_you_mean(str(name.value), [name for name, _ in value.type.members])
        raise NotAllowed(f"{describe(value)} has no member {name.value!r}; it has {known}.{hint}")
    hint = {
        "ARRAY": "Write the number of an element first, as in items[1].price.",
        "MAP": "Write the key in brackets, as in labels['key'].",
        "JSON": f"Write ->> '{name.value}' for the text of a member, -> '{name.value}' for JSON.",
    }.get(value.type.kind, "Only a STRUCT has members.")
    raise NotAllowed(f"{describe(value)} has no members. {hint}")


def _member(_call: Call, arguments: Sequence[Datum]) -> Datum:
    value, name = arguments
    return kernel.struct_field(value, value.type.get_field_index(constant(name)))


def _bind_element(function: Function, arguments: Arguments) -> Expression:
    value, place = arguments
    if value.type.kind == "ARRAY" and (place.type.is_integer or place.type == NULL):
        return Call(function.name, (value, coerce(place, BIGINT)), value.type.members[0][1])
    if value.type.kind == "MAP" and place.type in (VARCHAR, NULL):
        return Call(function.name, (value, coerce(place, VARCHAR)), value.type.members[1][1])
    hint = "Of JSON, write -> or ->> and a key, or the number of an element from 0." if value.type == JSON else ""
    raise function.refuse(arguments, hint or "An ARRAY takes a whole number from 1 in brackets, a MAP a text.")


def _element(call: Call, arguments: Sequence[Datum]) -> Datum:
    value, place = arguments
    if not isinstance(value, pa.Array):
        value = pa.repeat(value, len(place))
    if pa.types.is_map(value.type):
        return _value_at(value, place, call.type)
    offsets = np.asarray(value.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    numbers = as_type(place, pa.int64())
    if isinstance(numbers, pa.Scalar):
        numbers = pa.repeat(numbers, len(value))
    is_there = ~np.asarray(value.is_null()) & ~np.asarray(numbers.is_null())
    at = np.asarray(numbers.fill_null(0))
    is_there &= (at != 0) & (at <= lengths) & (at >= -lengths)
    at = np.where(at > 0, offsets[:-1] + at - 1, offsets[1:] + at)
    return value.values.take(pa.array(np.where(is_there, at, 0), mask=~is_there))


def _value_at(maps: pa.Array, key: Datum, kind: ColumnType) -> pa.Array:
    """Return the values of keys in maps; of equal keys in a map the last one's."""
    lists = lists_of(maps)
    rows = np.repeat(np.arange(len(maps)), lists.lengths)
    wanted = key if isinstance(key, pa.Scalar) else key.take(pa.array(rows))
    is_equal = np.asarray(kernel.fill_null(kernel.equal(lists.keys, wanted), False))
    places = np.full(len(maps), -1)
    places[rows[is_equal]] = np.flatnonzero(is_equal)
    values = lists.values.take(pa.array(np.maximum(places, 0), mask=places < 0)) if len(lists.values) else None
    return pa.nulls(len(maps), kind.arrow) if values is None else values


def _bind_cardinality(function: Function, arguments: Arguments) -> Expression:
    if arguments[0].type.kind not in ("ARRAY", "MAP"):
        raise function.refuse(arguments, "LENGTH counts the characters of a text.")
    return Call(function.name, arguments, BIGINT)


def _cardinality(_call: Call, arguments: Sequence[Datum]) -> Datum:
    return pa.array(lists_of(arguments[0]).lengths, mask=np.asarray(arguments[0].is_null()))


def _bind_contains(function: Function, arguments: Arguments) -> Expression:
    array, value = arguments
    if array.type.kind != "ARRAY":
        raise function.refuse(arguments, "CONTAINS(text, part) looks in texts.")
    element = array.type.members[0][1]
    # a stand-in of the element's type says what both widen to
    kind = common_type((Call("element", (array, Literal(1, BIGINT)), element), value))
    if kind is None or not element.is_plain:
        raise function.refuse(arguments, f"Write CAST(… AS {element}) around the value." if element.is_plain else "")
    return Call(function.name, (array, coerce(value, element if kind == NULL else kind)), BOOLEAN)


def _contains(_call: Call, arguments: Sequence[Datum]) -> Datum:
    array, value = arguments
    if not isinstance(array, pa.Array):
        array = pa.repeat(array, len(value))
    lists = lists_of(array)
    rows = np.repeat(np.arange(len(array)), lists.lengths)
    wanted = value if isinstance(value, pa.Scalar) else value.take(pa.array(rows))
    elements = (
        as_type(lists.values, pa.int64()) if pa.types.is_integer(value.type) else as_type(lists.values, value.type)
    )
    is_equal = np.asarray(kernel.fill_null(compared("=", elements, wanted), False))
    found = np.bincount(rows[is_equal], minlength=len(array)) > 0
    is_unknown = kernel.or_(kernel.is_null(array), kernel.is_null(value))
    return kernel.if_else(is_unknown, pa.scalar(None, pa.bool_()), pa.array(found))


# JSON


def _bind_json(result: ColumnType) -> Callable[[Function, Arguments], Expression]:
    """Return the rule for a JSON text, or a text that may be one, and a constant path."""

    def bind(function: Function, arguments: Arguments) -> Expression:
        document, path = arguments
        if document.type not in (JSON, VARCHAR, NULL):
            raise function.refuse(arguments, "Members of a STRUCT are written with dots, as in a.b.")
        if not isinstance(path, Literal) or not (path.type == VARCHAR or path.type.is_integer):
            raise function.refuse(
                arguments, "The path must be a constant: a key, '$.user.id', or the number of an element."
            )
        read_steps(path.value)
        return Call(function.name, (document, path), result)

    return bind


def _json(read: Callable[[Any], Any], target: pa.DataType = pa.string()) -> Callable[[Call, Sequence[Datum]], Datum]:  # noqa: B008
    """Return what reads a value of each document."""

    def evaluate(_call: Call, arguments: Sequence[Datum]) -> Datum:
        documents, path = arguments
        steps = read_steps(constant(path))
        return pa.array([None if text is None else read(_found(text, steps)) for text in documents.to_pylist()], target)

    return evaluate


def _found(text: str, steps: Path) -> Any:
    """Return what a path leads to; _ABSENT where it leads to nothing, or the text is no JSON."""
    try:
        value = parse_json(text.encode(), exact=False)
    except ValueError:
        return _ABSENT
    for step in steps:
        if isinstance(step, str):
            value = value.get(step, _ABSENT) if type(value) is dict else _ABSENT
        else:
            is_there = type(value) is list and -len(value) <= step < len(value)
            value = value[step] if is_there else _ABSENT
    return value


def _as_json(value: Any) -> str | None:
    return None if value is _ABSENT else _written(value)


def _as_text(value: Any) -> str | None:
    if value is _ABSENT or value is None:
        return None
    return value if isinstance(value, str) and _is_text(value) else _written(value)


def _is_text(value: str) -> bool:
    """Whether a string has no half of a surrogate pair, which JSON may have and no text has."""
    return value.isascii() or not _SURROGATES.search(value)


def _as_scalar(value: Any) -> str | None:
    return None if isinstance(value, (dict, list)) else _as_text(value)


def _as_container(value: Any) -> str | None:
    return _written(value) if isinstance(value, (dict, list)) else None


def _written(value: Any) -> str | None:
    try:
        return json_text(value)
    except UnfitError:
        return None


NESTED = (
    Function("member", "STRUCT.member", _bind_member, _member, 2, 2),
    Function("element", "value[place]", _bind_element, _element, 2, 2),
    Function("cardinality", "CARDINALITY(array)", _bind_cardinality, _cardinality),
    Function("array_contains", "ARRAY_CONTAINS(array, value)", _bind_contains, _contains, 2, 2),
    Function("json_extract", "json -> path", _bind_json(JSON), _json(_as_json), 2, 2),
    Function("json_extract_string", "json ->> path", _bind_json(VARCHAR), _json(_as_text), 2, 2),
    Function("json_value", "JSON_VALUE(json, path)", _bind_json(VARCHAR), _json(_as_scalar), 2, 2),
    Function("json_query", "JSON_QUERY(json, path)", _bind_json(JSON), _json(_as_container), 2, 2),
    Function(
        "json_exists",
        "JSON_EXISTS(json, path)",
        _bind_json(BOOLEAN),
        _json(lambda value: value is not _ABSENT, pa.bool_()),
        2,
        2,
    ),
)
