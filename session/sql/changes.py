"""Rows that change, as an input: each insertion counts +1, each retraction -1 (the weights of Z-sets).

The rows of EMIT STREAM are such, and those that are selected of them. A SELECT that names ``_op``, ``_ptime`` or
``_ver`` takes them for rows of their own, which never change.
"""

from __future__ import annotations

from collections.abc import Sequence

from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.query_parts import CHANGES, OP, RETRACT, Measure, Output
from braid.session.sql.scope import Scope
from braid.session.sql.statements import Select
from braid.session.sql.syntax import walk
from braid.sources.core.schema import BIGINT, VARCHAR, StreamDefinition

_RETRACTED = call("=", Column(OP, VARCHAR), Literal(RETRACT, VARCHAR))
_NO_ROW = Literal(0, BIGINT)

WEIGHT = call("case", _RETRACTED, Literal(-1, BIGINT), Literal(1, BIGINT))
"""The weight of a change."""

ROWS = Measure("sum", WEIGHT)
"""How many rows there are after some changes."""

HAS_ROWS = call("<>", ROWS.column, _NO_ROW)
"""There is no group where no row is left."""


def takes_changes(select: Select, scope: Scope) -> bool:
    """Whether rows of an input change for a SELECT: they are changes, and it does not name their columns."""
    if not _has_changes(scope):
        return False
    nodes = (*(item.node for item in select.items), select.where, select.having, *select.group_by)
    nodes += tuple(joined.on for joined in select.joins)
    names = (part for node in nodes if node is not None for part in walk(node) if part.kind == "name")
    return not any(name.value[-1].lower() in CHANGES and scope.find(name.value[-2:]) is not None for name in names)


def _has_changes(scope: Scope) -> bool:
    definition = scope.definition
    return isinstance(definition, StreamDefinition) and any(field.name == OP for field in definition.schema.fields)


def check_final(select: Select, scopes: Sequence[Scope], ats: Sequence[int]) -> None:
    """Raise SqlNotAllowed where an input of a join, or of rows by window, has rows that change."""
    for scope, at in zip(scopes, ats, strict=True):
        if not takes_changes(select, scope):
            continue
        if select.joins:
            raise select.sql.not_allowed(
                f"A join takes rows that are final, and those of {scope.name!r} change (EMIT STREAM). Its own rows come"
                " when their window is final, so write the input as a subquery without EMIT.",
                at,
            )
        raise select.sql.not_allowed(
            f"Rows of {scope.name!r} change (EMIT STREAM): leave the window out to get each change, or write an"
            " aggregate or GROUP BY.",
            at,
        )


def change_outputs() -> tuple[Output, ...]:
    """Return the columns by which selected rows say what they change."""
    return tuple(Output(name, Column(name, kind)) for name, kind in CHANGES.items())


def weighted(measure: Measure) -> tuple[Expression, tuple[Measure, ...]]:
    """Return what an aggregate is of rows that change, over the measures that it needs of the changes.

    Sums are weighted; where sums are not enough, the changes are counted by value.
    """
    argument = measure.argument
    if argument is None:
        return ROWS.column, (ROWS,)
    if measure.function not in ("count", "sum"):
        nothing = Literal(None, argument.type)
        inserted, retracted = call("case", _RETRACTED, nothing, argument), call("case", _RETRACTED, argument, nothing)
        of_changes = Measure(measure.function, inserted, retracted)
        return of_changes.column, (of_changes,)
    count = Measure("sum", call("case", call("is_null", argument), _NO_ROW, WEIGHT))
    if measure.function == "count":
        return count.column, (count,)
    total = Measure("sum", call("case", _RETRACTED, call("negate", argument), argument))
    has_none = call("=", count.column, _NO_ROW)
    return call("case", has_none, Literal(None, total.type), total.column), (count, total)
