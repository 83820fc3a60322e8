"""UNNEST in source tasks: each element once, in order, whatever the pieces that tuples come in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Column
from braid.operators.live_queries import LiveQueries
from braid.operators.lookup import unnest as module
from braid.operators.lookup.lookups import tuple_join_from_json
from braid.operators.lookup.unnest import Unnest, unnested
from braid.operators.stream_operators import StreamOperators
from braid.operators.tuples import Tuples
from braid.sources.core.schema import INT, VARCHAR, ColumnType, array_of, map_of
from braid.sources.formats.nested import row_bytes
from tests.kit.plans import plan_select
from tests.operators.pipeline import changelog
from tests.session.sql.catalog import define

ITEM = ColumnType("STRUCT", members=(("sku", VARCHAR), ("qty", INT)))
KINDS = {
    "i": (array_of(ITEM), ("sku", "qty")),
    "a": (array_of(INT), ("element",)),
    "m": (map_of(VARCHAR, INT), ("key", "value")),
}
items = st.none() | st.fixed_dictionaries({"sku": st.sampled_from("ab"), "qty": st.none() | st.integers(0, 3)})
rows = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.lists(items, max_size=3),
            "a": st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3),
            "m": st.none() | st.lists(st.tuples(st.text(max_size=2), st.integers(0, 3)), max_size=3),
        }
    ),
    max_size=8,
)


@given(rows, st.sampled_from("iam"), st.booleans(), st.booleans(), st.integers(1, 9), st.integers(0, 2))
def test_each_element_comes_once(
    values: list[dict[str, Any]], name: str, left: bool, ordinality: bool, at_once: int, before: int
) -> None:
    kind, columns = KINDS[name]
    unnest = Unnest("u", Column(name, kind), columns + ("ordinality",) * ordinality, ordinality, left)
    padded = [*values[:1] * before, *values]
    array = pa.array([row[name] for row in padded], kind.arrow).slice(len(padded) - len(values))
    tuples = Tuples({"id": pa.array(range(len(values)))}, len(values))
    needed = {"id", *(f"u.{column}" for column in unnest.columns)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_AT_ONCE", at_once)
        pieces = list(unnested(tuples, array, unnest, needed))
    got = [tuple(row[c] for c in ("id", *(f"u.{c}" for c in unnest.columns))) for p in pieces for row in p.to_pylist()]
    assert got == list(expected(values, name, left, ordinality))
    assert all(piece.num_rows <= at_once for piece in pieces)


def expected(values: list[dict[str, Any]], name: str, left: bool, ordinality: bool) -> Any:
    width = 1 if name == "a" else 2
    for row_id, row in enumerate(values):
        elements = row[name] or []
        if left and not elements:
            yield (row_id, *[None] * (width + ordinality))
        for number, element in enumerate(elements, 1):
            if name == "i":
                parts = (None, None) if element is None else (element["sku"], element["qty"])
            else:
                parts = element if name == "m" else (element,)
            yield (row_id, *parts, *((number,) if ordinality else ()))


@given(rows, st.lists(st.integers(0, 9), min_size=8, max_size=8), st.integers(1, 30), st.booleans())
def test_pieces_have_no_more_bytes_than_may_be(
    values: list[dict[str, Any]], lengths: list[int], max_bytes: int, left: bool
) -> None:
    kind, columns = KINDS["a"]
    unnest = Unnest("u", Column("a", kind), columns, left=left)
    texts = pa.array(
        [str(n % 10) * length for n, length in zip(range(len(values)), lengths, strict=False)], pa.string()
    )
    tuples = Tuples({"text": texts}, len(values))
    array = pa.array([row["a"] for row in values], kind.arrow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_BYTES", max_bytes)
        pieces = list(unnested(tuples, array, unnest, {"text", "u.element"}))
    assert all(p.num_rows == 1 or sum(map(len, p.column("text").to_pylist())) <= max_bytes for p in pieces)
    got = [(row["text"], row["u.element"]) for piece in pieces for row in piece.to_pylist()]
    assert got == [(texts[n].as_py(), *parts) for n, *parts in expected(values, "a", left, False)]


def test_values_with_parts_count_with_all_that_is_in_them() -> None:
    kind = array_of(map_of(VARCHAR, ITEM)).arrow
    array = pa.array([[[("k", {"sku": "four", "qty": 1})], None], [], None], kind)
    sizes = row_bytes(array)
    assert sizes.tolist() == [1 + 4 + 8 * 5, 0, 0]
    assert row_bytes(pa.array([1, None])).tolist() == [0, 0]
    assert row_bytes(array.slice(1)).tolist() == [0, 0]


def test_only_columns_that_are_needed_are_formed() -> None:
    kind, columns = KINDS["i"]
    unnest = Unnest("u", Column("i", kind), columns)
    tuples = Tuples({"id": pa.array([1]), "other": pa.array([2])}, 1)
    array = pa.array([[{"sku": "a", "qty": 1}]], kind.arrow)
    (piece,) = unnested(tuples, array, unnest, {"id", "u.qty"})
    assert piece.to_pylist() == [{"id": 1, "u.qty": 1}]


def test_json_gives_the_same_unnest() -> None:
    kind, columns = KINDS["m"]
    unnest = Unnest("u", Column("m", kind), (*columns, "ordinality"), True, True)
    assert tuple_join_from_json(unnest.to_json()) == unnest
    assert str(unnest) == "left unnest m with ordinality as u(key, value, ordinality)"
    assert unnest.reads == {"m"}


def test_queries_are_known_by_the_columns_of_an_input_that_they_read() -> None:
    stream = define(
        "CREATE STREAM s (id INT, text VARCHAR, a INT[], t TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'push')",
        "s-1",
    )
    window = "s [RANGE 4 SECONDS]"
    queries = [
        plan_select(sql, {"s": stream})
        for sql in (
            "SELECT id, text FROM s, UNNEST(a) AS x",
            "SELECT id FROM s, UNNEST(a) AS x WHERE text > 'b'",
            "SELECT id, x FROM s, UNNEST(a) AS x",
            f"SELECT MAX(text) AS m FROM {window}, UNNEST(a) AS x",
            f"SELECT COUNT(*) AS n FROM {window}, UNNEST(a) AS x",
            f"SELECT o.text, x FROM {window} o, UNNEST(o.a) AS x JOIN {window} p ON o.id = p.id",
            f"SELECT o.id, x FROM {window} o, UNNEST(o.a) AS x JOIN {window} p ON o.id = p.id",
        )
    ]
    created = [(f"q{n}", n, query) for n, query in enumerate(queries) if query.kind != "join"]
    record = changelog(1, created, streams=[stream])
    record["created"] += [
        record["created"][0] | {"id": f"q{n}", "slot": n, "operator": "join", "query": query.to_json()}
        for n, query in enumerate(queries)
        if query.kind == "join"
    ]
    live = LiveQueries()
    live.apply(record, {stream.id: None})
    source = queries[0].inputs[0]
    operators = StreamOperators(live, stream, 1, name=queries[0].input, lookups=source.lookups)
    assert operators.queries_reading({"text"}) == {"q0", "q1", "q3", "q5"}
    assert operators.queries_reading({"unnest.element"}) == {"q2", "q5", "q6"}
