"""Members, elements, values of keys and parts of JSON, as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    INT,
    JSON,
    VARCHAR,
    ColumnType,
    array_of,
    map_of,
)
from tests.kit.duck import connected

ITEM = ColumnType("STRUCT", members=(("sku", VARCHAR), ("qty", INT)))
KINDS = {
    "s": ITEM,
    "a": array_of(INT),
    "i": array_of(ITEM),
    "m": map_of(VARCHAR, INT),
    "j": JSON,
    "n": INT,
    "k": VARCHAR,
}
DUCK = "STRUCT(s STRUCT(sku VARCHAR, qty INT), a INT[], i STRUCT(sku VARCHAR, qty INT)[], m MAP(VARCHAR, INT), j JSON, n INT, k VARCHAR)"  # noqa: E501
numbers = st.none() | st.integers(-4, 4)
texts = st.none() | st.sampled_from("xyz")
items = st.none() | st.fixed_dictionaries({"sku": texts, "qty": numbers})
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=5,
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "s": items,
            "a": st.none() | st.lists(numbers, max_size=3),
            "i": st.none() | st.lists(items, max_size=3),
            "m": st.none() | st.dictionaries(st.sampled_from("xyz"), numbers, max_size=3),
            "j": st.none() | st.dictionaries(st.sampled_from("xyz"), documents, min_size=1, max_size=3),
            "n": numbers,
            "k": texts,
        }
    ),
    min_size=1,
    max_size=6,
)


def column(name: str) -> Column:
    return Column(name, KINDS[name])


def text(value: str) -> Literal:
    return Literal(value, VARCHAR)


def number(value: int) -> Literal:
    return Literal(value, BIGINT)


SAME: list[tuple[Expression, str]] = [
    (call("member", column("s"), text("QTY")), "s.qty"),
    (call("element", column("a"), number(2)), "a[2]"),
    (call("element", column("a"), number(-1)), "a[-1]"),
    (call("element", column("a"), number(0)), "a[0]"),
    (call("element", column("a"), column("n")), "a[n]"),
    (call("member", call("element", column("i"), number(1)), text("sku")), "i[1].sku"),
    (call("element", column("m"), text("x")), "m['x']"),
    (call("element", column("m"), column("k")), "m[k]"),
    (call("cardinality", column("a")), "len(a)"),
    (call("cardinality", column("m")), "cardinality(m)"),
    (call("array_contains", column("a"), number(2)), "list_contains(a, 2)"),
    (call("array_contains", column("a"), column("n")), "list_contains(a, n)"),
    (call("json_extract_string", column("j"), text("x")), "j ->> 'x'"),
    (call("json_extract_string", column("j"), text("$.x.y")), "j ->> '$.x.y'"),
    (call("json_extract_string", column("j"), text("$.x[1]")), "j ->> '$.x[1]'"),
    (call("json_exists", column("j"), text("$.x.z")), "json_exists(j, '$.x.z')"),
    (call("is_null", column("s")), "s IS NULL"),
    (call("coalesce", column("a"), call("case", call(">", column("n"), number(0)), column("a"), Literal(None, array_of(INT)))), "a"),  # noqa: E501
]  # fmt: skip


@given(rows)
def test_parts_are_those_of_duckdb(values: list[dict[str, Any]]) -> None:
    columns = columns_of(values)
    with connected() as duck:
        lines = [orjson.dumps(row).decode() for row in values]
        duck.execute(f"CREATE OR REPLACE TEMP TABLE t AS SELECT unnest(CAST(j AS {DUCK})) FROM (SELECT unnest($1)::JSON AS j)", [lines])  # noqa: E501  # fmt: skip
        expected = duck.execute(f"SELECT {', '.join(f'({sql}) AS c{n}' for n, (_, sql) in enumerate(SAME))} FROM t")
        rows_of_duckdb = expected.fetchall()
    for position, (expression, sql) in enumerate(SAME):
        got = evaluate(expression, columns, len(values)).to_pylist()
        assert got == [row[position] for row in rows_of_duckdb], sql


def columns_of(values: Sequence[dict[str, Any]], before: int = 2) -> dict[str, pa.Array]:
    """Return columns that are slices of longer ones."""
    padded = [*values[:1] * before, *values, *values[-1:]]

    def as_arrow(name: str, value: Any) -> Any:
        if value is None:
            return None
        if name == "m":
            return list(value.items())
        return orjson.dumps(value).decode() if name == "j" else value

    return {
        name: pa.array([as_arrow(name, row[name]) for row in padded], kind.arrow).slice(before, len(values))
        for name, kind in KINDS.items()
    }


@given(rows)
def test_json_of_parts_is_read_back(values: list[dict[str, Any]]) -> None:
    columns = columns_of(values)
    for name in "sai":
        written = evaluate(cast_to(column(name), JSON), columns, len(values)).to_pylist()
        assert [None if each is None else orjson.loads(each) for each in written] == [row[name] for row in values]
    extracted = evaluate(call("json_extract", column("j"), text("x")), columns, len(values)).to_pylist()
    expected = [
        None if row["j"] is None or "x" not in row["j"] else orjson.dumps(row["j"]["x"]).decode() for row in values
    ]
    assert extracted == expected
    scalars = evaluate(call("json_value", column("j"), text("$.x")), columns, len(values)).to_pylist()
    containers = evaluate(call("json_query", column("j"), text("$.x")), columns, len(values)).to_pylist()
    for row, scalar, container in zip(values, scalars, containers, strict=True):
        value = (row["j"] or {}).get("x")
        assert (container is None) == (not isinstance(value, (dict, list)))
        assert (scalar is None) == (value is None or isinstance(value, (dict, list)))


def test_texts_that_are_no_json_have_no_parts() -> None:
    columns = {"k": pa.array(["{", '{"x": 1}', None])}
    assert evaluate(call("json_extract_string", column("k"), text("x")), columns, 3).to_pylist() == [None, "1", None]
    assert evaluate(cast_to(column("k"), JSON), columns, 3).to_pylist() == [None, '{"x":1}', None]


def test_numbers_of_json_keep_their_digits_and_harm_no_other_member() -> None:
    document = '{"big":123456789012345678901234567890,"far":1E+400,"x":1.5,"text":"\\ud800"}'
    columns = {"j": pa.array([document]), "k": pa.array([document.replace("+", "")])}

    def got(name: str, path: str) -> Any:
        return evaluate(call(name, column("j"), text(path)), columns, 1).to_pylist()[0]

    assert got("json_extract_string", "big") == got("json_extract", "big") == "123456789012345678901234567890"
    assert got("json_extract_string", "far") == "1E+400"
    assert got("json_value", "x") == "1.5"
    assert got("json_extract_string", "text") is None  # half of a character
    assert got("json_extract", "$") is None
    whole = evaluate(cast_to(Literal("[123456789012345678901234567890, 1e400]", VARCHAR), JSON), {}, 1)
    assert whole.to_pylist() == ["[123456789012345678901234567890,1E+400]"]


def test_json_that_cannot_be_written_again_is_null() -> None:
    columns = {"k": pa.array(["[" * depth + "]" * depth for depth in (2, 300, 2000)])}
    assert evaluate(cast_to(column("k"), JSON), columns, 3).to_pylist() == ["[[]]", None, None]
    assert evaluate(call("json_extract", column("k"), text("$")), columns, 3).to_pylist() == ["[[]]", None, None]


def test_calls_of_constants_are_folded() -> None:
    document = Literal('{"a": [1, 2]}', VARCHAR)
    assert evaluate(call("json_value", document, text("$.a[1]")), {}, 1).to_pylist() == ["2"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("member", (column("s"), text("nothing")), "has no member 'nothing'; it has sku, qty"),
        ("member", (column("a"), text("x")), "Write the number of an element first"),
        ("member", (column("m"), text("x")), "Write the key in brackets"),
        ("member", (column("j"), text("x")), "Write ->> 'x'"),
        ("element", (column("a"), text("x")), "An ARRAY takes a whole number"),
        ("element", (column("m"), number(1)), "a MAP a text"),
        ("element", (column("j"), number(1)), "Of JSON, write ->"),
        ("cardinality", (column("k"),), "LENGTH counts the characters"),
        ("array_contains", (column("a"), text("x")), r"Write CAST\(… AS INT\) around the value"),
        ("array_contains", (column("i"), column("s")), "does not fit"),
        ("json_value", (column("s"), text("$.x")), "Members of a STRUCT are written with dots"),
        ("json_value", (column("j"), column("k")), "The path must be a constant"),
        ("json_value", (column("j"), text("$.")), "A path must name a member"),
        ("=", (column("s"), column("s")), "cannot be compared: it has parts. Name a member"),
        ("in", (column("j"), column("j"), column("j")), "Write JSON_VALUE"),
        ("greatest", (column("a"), column("a")), "cannot be compared"),
        ("nullif", (column("m"), column("m")), "Name a value"),
    ],
)
def test_refusals_say_what_to_write(name: str, arguments: tuple[Expression, ...], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        call(name, *arguments)


def test_casts_between_types_with_parts_are_refused() -> None:
    for value, target in (
        (column("a"), array_of(BIGINT)),
        (column("s"), VARCHAR),
        (column("j"), INT),
        (column("k"), ITEM),
    ):
        with pytest.raises(NotAllowed, match="Cannot cast"):
            cast_to(value, target)
    assert cast_to(column("a"), array_of(INT)) == column("a")
    assert cast_to(column("j"), VARCHAR).type == VARCHAR
    assert call("json_exists", column("j"), text("x")).type == BOOLEAN
