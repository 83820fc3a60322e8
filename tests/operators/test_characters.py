"""ASCII, CHR, TRANSLATE, REPEAT, MD5 and SHA256 of any texts, as DuckDB has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.text import LONGEST_PADDED
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, VARCHAR, ColumnType
from tests.kit.duck import connected
from tests.kit.examples import examples

TEXT, OLD, NEW, COUNT = Column("t", VARCHAR), Column("o", VARCHAR), Column("n", VARCHAR), Column("c", BIGINT)
TYPES = {"t": pa.string(), "o": pa.string(), "n": pa.string(), "c": pa.int64()}
EXPRESSIONS: list[tuple[Expression, str]] = [
    (call("ascii", TEXT), "ascii(t)"),
    (call("md5", TEXT), "md5(t)"),
    (call("sha256", TEXT), "sha256(t)"),
    (call("translate", TEXT, OLD, NEW), "translate(t, o, n)"),
    (call("translate", TEXT, Literal("aéa", VARCHAR), Literal("x🎁y", VARCHAR)), "translate(t, 'aéa', 'x🎁y')"),
    (call("repeat", TEXT, COUNT), f"if(length(t) * c <= {LONGEST_PADDED}, repeat(t, c), NULL)"),
    (call("repeat", Literal("é-", VARCHAR), COUNT), f"if(2 * c <= {LONGEST_PADDED}, repeat('é-', c), NULL)"),
    (call("chr", COUNT), "if(c BETWEEN 0 AND 55295 OR c BETWEEN 57344 AND 1114111, chr(c::INT), NULL)"),
]
TEXTS = st.none() | st.text(max_size=6) | st.text("aéxy🎁", max_size=6)
COUNTS = st.none() | st.integers(-2, 1200) | st.sampled_from([55295, 55296, 57344, 1114111, 1114112, 2**31 - 1])
ROWS = st.lists(st.fixed_dictionaries({"t": TEXTS, "o": TEXTS, "n": TEXTS, "c": COUNTS}), min_size=1, max_size=6)


@given(ROWS)
@settings(max_examples=examples(150), deadline=None)
def test_texts_become_what_they_do_in_duckdb(rows: list[dict[str, Any]]) -> None:
    tuples = pa.Table.from_pylist(rows, pa.schema(list(TYPES.items())))
    columns = {name: tuples[name].combine_chunks() for name in TYPES}
    with connected() as duck:
        duck.register("r", tuples)
        expected = duck.execute(f"SELECT {', '.join(sql for _, sql in EXPRESSIONS)} FROM r").fetchall()
    for at, (expression, sql) in enumerate(EXPRESSIONS):
        assert evaluate(expression, columns, len(rows)).to_pylist() == [row[at] for row in expected], sql


@pytest.mark.parametrize(
    ("name", "kind", "values", "expected"),
    [
        ("chr", BIGINT, [0, -1, 0xD800, 0x110000, 2**63 - 1, -(2**63), None], ["\0", *[None] * 6]),
        ("ascii", VARCHAR, ["", "e\u0301", "\0", None], [0, 101, 0, None]),
    ],
)
def test_the_ends_of_unicode(name: str, kind: ColumnType, values: list[Any], expected: list[Any]) -> None:
    columns = {"x": pa.array(values, kind.arrow)}
    assert evaluate(call(name, Column("x", kind)), columns, len(values)).to_pylist() == expected


def test_what_is_repeated_too_often_is_null_however_often() -> None:
    counts = [LONGEST_PADDED, LONGEST_PADDED + 1, 2**63 - 1, -(2**63)]
    columns = {"t": pa.array(["a"] * 4), "c": pa.array(counts)}
    assert evaluate(call("repeat", TEXT, COUNT), columns, 4).to_pylist() == ["a" * LONGEST_PADDED, None, None, ""]
    empty = {"t": pa.array([""] * 4), "c": pa.array(counts)}
    assert evaluate(call("repeat", TEXT, COUNT), empty, 4).to_pylist() == [""] * 4
    with pytest.raises(NotAllowed, match="at most 1000 characters; got 1001"):
        call("repeat", TEXT, Literal(LONGEST_PADDED + 1, BIGINT))
