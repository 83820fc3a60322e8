"""Hypothesis strategies for scalar expressions and WHERE trees over the columns of a stream.

Left out, because engines differ and the contract does not decide: integer division, NaN, overflow, and
equality on computed DOUBLE values.
"""

from __future__ import annotations

import datetime as dt
import random

from hypothesis import strategies as st

from tests.oracle.model import SECOND, SEQUENCE, Column, Item, Kind, StreamSchema, Value, literal
from tests.oracle.tuples import draw_value

ORDERINGS = ("<", "<=", ">", ">=")
EQUALITIES = ("=", "<>")
PATTERNS = ("a%", "%b", "%a%", "_", "__", "a_%", "%", "", "A%", "%é%", "_%_")
RUN_SECONDS = 60


def constants(schema: StreamSchema, column: Column) -> st.SearchStrategy[Value]:
    """Constants worth comparing a column with: values of its own domain, sometimes just beside them."""
    if column.name == schema.event_time:
        steps = st.integers(-2 * RUN_SECONDS, 2 * RUN_SECONDS)
        return steps.map(lambda step: schema.base + dt.timedelta(microseconds=step * SECOND // 2))
    if column.name == SEQUENCE:
        return st.integers(0, 3000)
    return st.integers(0, 2**16).map(lambda seed: draw_value(column, random.Random(seed)))


def _literals(schema: StreamSchema, column: Column) -> st.SearchStrategy[str]:
    texts = constants(schema, column).map(literal)
    if column.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL):  # constants that no value of the column equals
        odd = st.sampled_from(("2.5", "-0.125", "3000000000", "-3000000000", "0"))
        return st.one_of(texts, texts, texts, odd)
    return texts


@st.composite
def atoms(draw: st.DrawFn, schema: StreamSchema) -> str:
    """Draw a predicate without AND, OR, NOT."""
    column = draw(st.sampled_from(schema.columns))
    name, kind = column.name, column.kind
    literals = _literals(schema, column)
    operators = EQUALITIES if kind is Kind.BOOLEAN else ORDERINGS + EQUALITIES
    styles = ["compare"] * 5 + ["in", "null", "columns", "case"]
    styles += ["between"] if kind is not Kind.BOOLEAN else []
    styles += ["like"] * 4 if kind is Kind.VARCHAR else []
    styles += ["arithmetic"] * 2 if kind.numeric else []
    styles += ["boolean"] * 3 if kind is Kind.BOOLEAN else []
    style = draw(st.sampled_from(styles))
    no = draw(st.sampled_from(("", "", "NOT ")))
    if style == "between":
        return f"{name} {no}BETWEEN {draw(literals)} AND {draw(literals)}"
    if style == "in":
        members = draw(st.lists(literals, min_size=1, max_size=5))
        members += draw(st.sampled_from(([], [], [], ["NULL"])))
        return f"{name} {no}IN ({', '.join(members)})"
    if style == "null":
        return f"{name} IS {no}NULL"
    if style == "like":
        return f"{name} {no}LIKE {literal(draw(st.sampled_from(PATTERNS)))}"
    if style == "boolean":
        return f"{no}{name}"
    if style == "columns":
        comparable_columns = [c for c in schema.columns if c.kind is kind or (c.kind.numeric and kind.numeric)]
        other = draw(st.sampled_from(comparable_columns)).name
        return f"{name} {draw(st.sampled_from(operators))} {other}"
    if style == "arithmetic":
        computed = draw(arithmetic(schema))
        return f"{computed.sql} {draw(st.sampled_from(ORDERINGS))} {draw(literals)}"
    if style == "case":
        other = draw(st.sampled_from(schema.columns)).name
        operator = draw(st.sampled_from(operators))
        return f"CASE WHEN {other} IS NULL THEN {name} IS NULL ELSE {name} {operator} {draw(literals)} END"
    operator = draw(st.sampled_from(operators))
    constant = draw(literals)
    return f"{constant} {operator} {name}" if draw(st.integers(0, 5)) == 0 else f"{name} {operator} {constant}"


@st.composite
def arithmetic(draw: st.DrawFn, schema: StreamSchema) -> Item:
    """Draw a computed numeric expression, with the type of its result and an empty name."""
    numeric = [column for column in schema.columns if column.kind.numeric]
    column = draw(st.sampled_from(numeric))
    name, kind = column.name, column.kind
    factor = draw(st.integers(2, 5))
    if kind is Kind.DOUBLE and column.domain == "wide":  # keep it positive: no cancellation in its sums
        return Item(draw(st.sampled_from((f"{name} * {factor}", f"{name} + {factor}"))), "", kind)
    same = [c for c in numeric if c.kind is kind and not (c.kind is Kind.DOUBLE and c.domain == "wide")]
    other = draw(st.sampled_from(same)).name
    forms = [f"{name} * {factor}", f"{name} + {factor}", f"{name} - {factor}", f"{name} + {other}"]
    forms += [f"({name} - {other}) * {factor}", f"-{name}", f"ABS({name})", f"COALESCE({name}, {factor})"]
    if kind in (Kind.INT, Kind.BIGINT):
        forms.append(f"{name} % {factor}")
    return Item(draw(st.sampled_from(forms)), "", kind)


def where_clauses(schema: StreamSchema) -> st.SearchStrategy[str | None]:
    """Draw a WHERE: often none, one atom or a conjunction of two or three, sometimes a deeper tree."""
    atom = atoms(schema)
    conjunction = st.lists(atom, min_size=2, max_size=3).map(" AND ".join)
    tree = st.recursive(
        atom,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(("AND", "OR")), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
            inner.map(lambda text: f"NOT ({text})"),
        ),
        max_leaves=5,
    )
    return st.one_of(st.none(), atom, atom, conjunction, tree)
