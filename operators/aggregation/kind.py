"""Windowed aggregations as a kind of operator."""

from __future__ import annotations

from braid.operators.aggregation.partition import AggregationPartition
from braid.operators.aggregation.shared_aggregation import distinct_operator
from braid.operators.aggregation.source import AggregationSource
from braid.operators.functions.sql_text import sql_text
from braid.operators.operator import OperatorKind
from braid.operators.predicates.analysis import analyse
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.queries import Aggregation
from braid.operators.query_parts import AGGREGATION
from braid.operators.tuple_bytes import aggregation_bytes
from braid.operators.windowing.reading import WindowReader


def operator_of(query: Aggregation) -> str:
    """Return the id of the operator that runs an aggregation: by its kind, its input and what it groups by."""
    return f"{query.kind}:{query.input}:{','.join(str(key) for key in query.keys)}"


def source_operators(query: Aggregation) -> tuple[str, ...]:
    """Return the names of the operators that an aggregation has in source tasks."""
    name = operator_of(query)
    distinct_arguments = (str(argument) for measure in query.measures for argument in measure.by_value)
    return (name, *(distinct_operator(name, text) for text in dict.fromkeys(distinct_arguments)))


def partitioned_by(query: Aggregation) -> tuple[str, ...]:
    """Return what an aggregation groups by, as SQL."""
    return tuple(sql_text(key) for key in query.keys)


def rule(streams: str, partitioning: str) -> str:
    """Return which aggregations share an operator."""
    by = partitioning or "nothing (one group)"
    return f"all aggregations over {streams} partitioned by {by} share one operator, whatever their windows"


def cells(query: Aggregation) -> SpaceKey:
    """Return the cell space of an aggregation that shares its cells."""
    return SpaceKey.of(query, analyse(query.where))


def _evaluation(query: Aggregation) -> dict[str, str]:
    """Say in which form tuples are added up: how many things the predicate tests decides it."""
    predicate = analyse(query.where)
    names = ", ".join(predicate.dimensions)
    space = SpaceKey.of(query, predicate)
    if space.has_sets:
        tested = f"{names} are tested" if len(predicate.dimensions) > 1 else f"{names} is tested for many values"
        why = f"{tested}: rows with the same query-set are added up once, or each query alone where such"
        return {"form": "query-set groups", "why": f"{why} groups have about one row"}
    why = f"only {names} is tested: each row is added to one cell of its values" if names else "no column is tested"
    return {"form": "cells" if names else "one total", "why": why}


AGGREGATIONS = OperatorKind(
    name=AGGREGATION,
    shown_as="aggregation",
    has_emit=True,
    operator_of=operator_of,
    source_operators=source_operators,
    partitioned_by=partitioned_by,
    evaluation=_evaluation,
    rule=rule,
    bytes_a_tuple=aggregation_bytes,
    source_side=AggregationSource,
    partition_side=AggregationPartition,
    reader=WindowReader,
    cells=cells,
)
