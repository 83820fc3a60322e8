"""The kinds of shared operators: a new kind is a folder, and a line here."""

from __future__ import annotations

from braid.operators.aggregation.kind import AGGREGATIONS
from braid.operators.joins.kind import JOINS
from braid.operators.operator import OperatorKind
from braid.operators.queries import Query
from braid.operators.selection.kind import SELECTIONS
from braid.operators.sessions.kind import SESSION_AGGREGATIONS

KINDS: tuple[OperatorKind, ...] = (SELECTIONS, AGGREGATIONS, SESSION_AGGREGATIONS, JOINS)

_BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(query: Query) -> OperatorKind:
    """Return the kind of operator that runs a query."""
    return _BY_NAME[query.kind]


def operator_of(query: Query) -> str:
    """Return the id of the operator that runs a query, and so which queries share its work (thesis 4.2).

    AStream's assumption: operators can be shared as long as queries have the same streams, after the same lookups in
    static tables, and the same partitioning attributes. Windows, predicates and aggregates may differ.
    """
    return kind_of(query).operator_of(query)


def source_operators(query: Query) -> tuple[str, ...]:
    """Return the names of the operators that a query has in source tasks."""
    return kind_of(query).source_operators(query)
