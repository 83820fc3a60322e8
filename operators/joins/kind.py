"""Joins of streams as a kind of operator."""

from __future__ import annotations

from braid.operators.expressions import Column
from braid.operators.functions.sql_text import sql_text
from braid.operators.joins.inputs import attributes_of, operators_of
from braid.operators.joins.partition import JoinPartition
from braid.operators.joins.query import Join
from braid.operators.joins.reading import JoinReader
from braid.operators.joins.source import JoinSource
from braid.operators.operator import OperatorKind
from braid.operators.predicates.analysis import analyse
from braid.operators.query_parts import JOIN
from braid.operators.tuple_bytes import bytes_a_tuple, bytes_again


def operator_of(query: Join) -> str:
    """Return the id of the operator that runs a join.

    Joins with the same inputs in the same order share one; each input is shared with all joins that compare it by the
    same attributes.
    """
    compared = ";".join(",".join(map(str, attributes)) for attributes in attributes_of(query))
    return f"join:{' '.join(operators_of(query))} on {compared}"


def partitioned_by(query: Join) -> tuple[str, ...]:
    """Return what inputs are compared by, as SQL: a column with the alias of its input before it."""
    return tuple(
        f"{source.alias}.{sql_text(key)}" if isinstance(key, Column) else f"{sql_text(key)} of {source.alias}"
        for source in query.inputs
        for key in source.keys
        if key is not None
    )


def rule(streams: str, _: str) -> str:
    """Return which joins share an operator."""
    return f"all joins of {streams} by the same attributes share one operator, whatever their windows and predicates"


def _evaluation(query: Join) -> dict[str, str]:
    if query.has_sessions:
        return {"form": "rows", "why": "sessions are of all inputs together: rows are formed when a session is over"}
    if not query.is_factorised:
        why = "a condition, a key or an aggregate is across inputs: rows are formed and tested when a window is over"
        return {"form": "rows", "why": why}
    formed = "rows are" if query.grouping is None else "groups are computed from what is counted by key, and no row is"
    return {"form": "factorised", "why": f"rows are counted by key, input by input; {formed} formed when read"}


def _bytes_a_tuple(query: Join) -> int:
    """Return how many bytes a join takes for a tuple of each input, and for a row."""
    keys = [key for source in query.inputs for key in source.keys if key is not None]
    wheres = [source.where for source in query.inputs] + [query.where, *query.ons.values()]
    residuals = [condition for where in wheres for condition in analyse(where).residuals.values()]
    if query.grouping is None:
        return bytes_a_tuple(keys, (), residuals)
    return bytes_a_tuple([*keys, *query.keys], query.measures, residuals) + bytes_again(query.keys, query.measures)


JOINS = OperatorKind(
    name=JOIN,
    shown_as="join",
    has_emit=False,
    operator_of=operator_of,
    source_operators=operators_of,
    partitioned_by=partitioned_by,
    evaluation=_evaluation,
    rule=rule,
    bytes_a_tuple=_bytes_a_tuple,
    source_side=JoinSource,
    partition_side=JoinPartition,
    reader=JoinReader,
)
