"""The select list and GROUP BY of a SELECT: names of output columns, and what grouping entries stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions.coercion import check_plain
from braid.operators.query_parts import CHANGES, WINDOW_END, WINDOW_START, Output
from braid.session.sql.expressions import Binder
from braid.session.sql.scope import WINDOW_COLUMNS, Names, column_of, column_parts
from braid.session.sql.statements import Select, SelectItem
from braid.session.sql.syntax import Node
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import NULL, TIMESTAMP


def group_keys(select: Select, scope: Names) -> tuple[Expression, ...]:
    """Return the GROUP BY expressions besides the window's bounds, each once."""
    binder = Binder(scope, "GROUP BY")
    keys: dict[Expression, None] = {}
    for entry in select.group_by:
        node = _grouped_node(select, scope, entry)
        if node.kind == "name":
            column = column_of(scope, node)
            if column.name in WINDOW_COLUMNS:
                continue
        key = binder.value(node)
        try:
            check_plain((key,), "grouped by")
        except NotAllowed as error:
            raise select.sql.not_allowed(error.detail, entry.at) from None
        keys.setdefault(key)
    return tuple(keys)


def _grouped_node(select: Select, scope: Names, node: Node) -> Node:
    """Return what an entry of GROUP BY stands for: an ordinal or an alias means an entry of the select list."""
    if node.kind == "literal" and isinstance(node.value, Literal) and node.value.type.is_integer:
        ordinal = node.value.value
        if not isinstance(ordinal, int) or not 1 <= ordinal <= len(select.items):
            raise select.sql.not_allowed(
                f"GROUP BY {ordinal} must count an entry of the select list, 1 to {len(select.items)}.",
                node.at,
            )
        return select.items[ordinal - 1].node
    if node.kind == "name" and len(node.value) == 1 and scope.find(node.value) is None:
        return aliases(select).get(node.value[0].lower(), node)
    return node


def aliases(select: Select) -> dict[str, Node]:
    """Return the entries of the select list by their aliases in lower case; of equal aliases the first entry."""
    return {item.alias.lower(): item.node for item in reversed(select.items) if item.alias is not None}


def output_name(item: SelectItem, scope: Names) -> str:
    """Return the alias, the column's name as declared, or the text with its function in lower case."""
    if item.alias is not None:
        return item.alias
    node = item.node
    if node.kind == "name":
        count = column_parts(scope, node.value)
        return scope.shown_name(node.value, node.at) if count == len(node.value) else node.value[-1]
    function, parenthesis, rest = item.text.partition("(")
    return function.lower() + parenthesis + rest if parenthesis and function.isidentifier() else item.text


class Outputs:
    """The columns of a result; their names differ and are not reserved."""

    def __init__(self, select: Select) -> None:
        self._sql = select.sql
        self._outputs: list[Output] = []
        self._names: set[str] = set()
        self._stars = {item.node.at for item in select.items if item.node.kind == "star"}

    def add(self, name: str, expression: Expression, at: int) -> None:
        """Append a column; SqlNotAllowed when its name is taken or reserved."""
        if name.startswith("_") and expression != Column(name, CHANGES.get(name, NULL)):
            raise self._sql.not_allowed(f"Names starting with '_' are reserved; give {name!r} another alias.", at)
        if name.lower() in self._names:
            is_bound = name.lower() in (WINDOW_START, WINDOW_END)
            reason = "every result of a window has it" if is_bound else "two columns have it"
            raise self._sql.not_allowed(
                f"The output name {name!r} is taken: {reason};"
                + (" list the columns instead of *, and" if at in self._stars else "")
                + " write AS and another alias.",
                at,
            )
        self._names.add(name.lower())
        self._outputs.append(Output(name, expression))

    def all(self) -> tuple[Output, ...]:
        """Return the columns in order."""
        return tuple(self._outputs)


def windowed_outputs(select: Select, scope: Names, bind: Callable[[Node], Expression]) -> tuple[Output, ...]:
    """Return the outputs of a windowed SELECT, after the bounds of the window unless it lists them itself."""
    planned = []
    for item in select.items:
        if item.node.kind == "star":
            raise select.sql.not_allowed(
                "A windowed SELECT cannot have *; name columns of GROUP BY and aggregates.", item.node.at
            )
        planned.append((output_name(item, scope), bind(item.node), item.node.at))
    return with_bounds(select, planned)


def with_bounds(select: Select, planned: Sequence[tuple[str, Expression, int]]) -> tuple[Output, ...]:
    """Return outputs, given as name, expression and offset, with the bounds of the window that are not among them.

    These come first, an end after the start that is listed.
    """
    outputs = Outputs(select)
    listed = {name for name, expression, _ in planned if name in WINDOW_COLUMNS and _is_bound(expression, name, select)}
    missing = [bound for bound in WINDOW_COLUMNS if bound not in listed]
    if missing != [WINDOW_END]:
        for bound in missing:
            outputs.add(bound, Column(bound, TIMESTAMP), select.start)
    for name, expression, at in planned:
        outputs.add(name, expression, at)
        if missing == [WINDOW_END] and name == WINDOW_START:
            outputs.add(WINDOW_END, Column(WINDOW_END, TIMESTAMP), select.start)
    return outputs.all()


def _is_bound(expression: Expression, bound: str, select: Select) -> bool:
    """Whether an output called like a bound is that; where the window is implied, it is that of the subquery's rows."""
    return select.source.is_implied or (isinstance(expression, Column) and expression.name == bound)
