"""Whatever text comes in, the outcome is a statement or a refusal with status 400 or 422."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators.queries import query_from_json
from braid.session.sql.parser import parse_statement
from braid.session.sql.parsing.function_names import AGGREGATES, FUNCTION_NAMES
from braid.session.sql.statements import CreateQuery, Explain, Select
from braid.sources.core.errors import ServiceError
from tests.kit.examples import examples
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG
from tests.session.sql.test_plan_select import EVERY
from tests.session.sql.test_sql_statements import CONTRACT

TEXT = """
    SELECT FROM WHERE GROUP BY HAVING AND OR NOT IN IS NULL LIKE ILIKE ESCAPE BETWEEN CASE WHEN THEN ELSE END AS
    CAST INTERVAL SECOND MONTH DATE TIMESTAMP TRUE FALSE DISTINCT RANGE SLIDE TUMBLE HOP TABLE DESCRIPTOR EMIT
    AFTER WATERMARK CREATE STREAM QUERY DROP SHOW STREAMS EXPLAIN WITH LATENESS
    EXTRACT HOUR TRIM SUBSTRING FOR DELAY SESSION PARTITION gap STDDEV
    purchases user_id gem_pack price time name day amount ok p window_start window_end INT DECIMAL connector
    * ( ) [ ] , . ; + - / % < <= > >= = <> || :: => 0 1 2.5 1e3 9223372036854775808 'a' 'it''s' '2026-01-31' '%_'
"""
WORDS = [*TEXT.split(), '"price"', "'", '"', "--", "/*", "\n", "é", "\ud800", "\0", "5e999"]
SEEDS = [CONTRACT, *EVERY]


def check(text: str) -> None:
    """Plan a text; it must give a query that survives JSON, a statement, or a refusal."""
    error = outcome(text)
    if error is not None:
        assert error.status in (400, 422), error
        assert error.detail
        assert error.position is not None, error.detail
        assert error.position.line >= 1
        assert error.position.column >= 1


def outcome(text: str) -> ServiceError | None:
    """Parse and plan; return the refusal, if any."""
    try:
        statement = parse_statement(text)
        if not isinstance(statement, (Select, CreateQuery, Explain)):
            return None
        query = plan_select(statement, CATALOG)
    except ServiceError as error:
        return error
    assert query_from_json(json.loads(json.dumps(query.to_json()))) == query
    return None


@given(st.text(st.characters(), max_size=200))
@example("\ud800")
@example("SELECT '\ud800' FROM purchases")
@example("İ" * 50)
@example("SELECT ² FROM purchases")
@example("SELECT price FROM purchases WHERE price > ٣")
def test_any_text(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
@settings(max_examples=examples(300))
def test_any_sequence_of_words(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
@settings(max_examples=examples(300))
def test_any_words_where_an_expression_is_expected(text: str) -> None:
    check(f"SELECT {text} FROM purchases")
    check(f"SELECT COUNT(*) FROM purchases [RANGE 8 SECONDS] GROUP BY {text}")


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Return a good statement with some of its words removed, doubled, replaced or swapped."""
    words = draw(st.sampled_from(SEEDS)).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words) - 1))
        word = draw(st.sampled_from([*WORDS, *words]))
        words[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from([[], [word], [word, words[at]]]))
        words = words or [word]
    return " ".join(words)


@given(mutated())
@settings(max_examples=examples(500))
def test_mutated_statements(text: str) -> None:
    check(text)


OPERANDS = [
    *("price", "user_id", "gem_pack", "name", "time", "day", "amount", "ok", "NULL", "TRUE", "'a'", "'%'"),
    *("0", "-1", "2.5", "1e3", "'2026-01-31'", "DATE '2026-01-31'", "INTERVAL '1' DAY", "INTERVAL '1' MONTH"),
    "99999999999999999999999999999999999999",
]
OPERATORS = ["+", "-", "*", "/", "%", "||", "=", "<>", "<", ">=", "AND", "OR", "LIKE", "IS DISTINCT FROM"]
TYPES = [
    "BOOLEAN",
    "INT",
    "BIGINT",
    "DOUBLE",
    "DECIMAL(38, 10)",
    "DECIMAL(2, 2)",
    "VARCHAR",
    "DATE",
    "TIMESTAMP",
]
EXPRESSIONS = st.recursive(
    st.sampled_from(OPERANDS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(st.sampled_from(sorted({*FUNCTION_NAMES, *AGGREGATES})), st.lists(inner, max_size=3)).map(
            lambda t: f"{t[0]}({', '.join(t[1])})"
        ),
        st.tuples(inner, st.sampled_from(TYPES)).map(lambda t: f"CAST({t[0]} AS {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} BETWEEN {t[1]} AND {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} IN ({t[1]}, {t[2]}))"),
        st.tuples(inner, inner, inner).map(lambda t: f"CASE {t[0]} WHEN {t[1]} THEN {t[2]} END"),
        inner.map(lambda t: f"(NOT {t})"),
        inner.map(lambda t: f"(-{t})"),
        inner.map(lambda t: f"EXTRACT(EPOCH FROM {t})"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, EXPRESSIONS)
@settings(max_examples=examples(500), deadline=None)
def test_any_expression_has_a_type_or_is_refused(value: str, condition: str) -> None:
    check(f"SELECT {value} AS v FROM purchases WHERE {condition} IS NOT NULL")
    check(f"SELECT {value} AS v FROM purchases [RANGE 8 SECONDS] GROUP BY {condition} HAVING {value} IS NULL")
