"""Bind the expressions that a windowed SELECT computes once a group: over keys, window bounds and aggregates."""

from __future__ import annotations

from collections.abc import Mapping

from braid.operators.evaluation import fold
from braid.operators.expressions import Call, Column, Expression, Literal, columns_of
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.operators.functions.coercion import UNTYPED_NULL, check_plain, describe
from braid.operators.functions.sql_text import advised_text, sql_text
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.session.sql.changes import weighted
from braid.session.sql.expressions import Binder
from braid.session.sql.parsing.function_names import shown_aggregate
from braid.session.sql.scope import WINDOW_COLUMNS, Names
from braid.session.sql.syntax import Node, walk
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, JSON, NULL, TIMESTAMP, VARCHAR

# no column of a stream has such a name, but one may be called key0
_KEY = "(key)"
_POPULATION_AGGREGATES = ("stddev_pop", "var_pop")
_NUMBER_AGGREGATES = ("sum", "avg", "stddev_samp", "var_samp", *_POPULATION_AGGREGATES)
_CONDITION_AGGREGATES = ("bool_and", "bool_or", "count_if")
_ONE = Literal(1, INT)
_USAGE = {"count": "COUNT(*) or COUNT(value)", "count_distinct": "COUNT(DISTINCT value) with one value"}
_ORDERED_TYPES = (VARCHAR, DATE, TIMESTAMP)


class AggregateBinder(Binder):
    """Binds outputs and HAVING; collects the measures they need.

    ``keys`` are the GROUP BY expressions: where one occurs, the column ``key{i}`` takes its place. Names that are those
    of no column may be ``aliases`` of the select list, in lower case. With ``are_weighted`` what is aggregated are
    changes of rows.
    """

    def __init__(
        self,
        scope: Names,
        clause: str,
        keys: tuple[Expression, ...],
        measures: dict[Measure, None],
        aliases: Mapping[str, Node] | None = None,
        are_weighted: bool = False,
    ) -> None:
        super().__init__(scope, clause)
        self._are_weighted = are_weighted
        self._aliases = dict(aliases or {})
        self._bound_aliases: dict[str, Expression] = {}
        self._keys = keys
        self._has_calls = any(isinstance(key, Call) for key in keys)
        self._measures = measures
        self._names_at: dict[str, int] = {}
        # by the expression that stands for an aggregate: its function and its argument
        self._aggregates: dict[Expression, tuple[str, Expression | None]] = {}

    def bind(self, node: Node) -> Expression:
        """Return the expression over the columns of the group, window bounds and measures."""
        if self._has_calls and node.kind in ("call", "cast") and not self._is_of_groups(node):
            key = self._key(AggregateArgument(self.scope, self.clause).bind(node))
            if key is not None:  # otherwise a part of it may be one
                return key
        expression = super().bind(node)
        return self._key(expression) or expression

    def _is_of_groups(self, node: Node) -> bool:
        """Return whether an aggregate or an alias occurs, which single tuples do not have."""
        if first_aggregate((node,)) is not None:
            return True
        names = (part for part in walk(node) if part.kind == "name") if self._aliases or self._bound_aliases else ()
        return any(self._alias(name) is not None for name in names)

    def _alias(self, node: Node) -> Expression | None:
        """Return the select list entry that a name is the alias of, bound once; within the entry it is no alias."""
        name = node.value[0].lower()
        if len(node.value) > 1 or self.scope.find(node.value) is not None:
            return None
        if name in self._aliases:
            self._bound_aliases[name] = self.bind(self._aliases.pop(name))
        return self._bound_aliases.get(name)

    def _key(self, expression: Expression) -> Column | None:
        if expression not in self._keys:
            return None
        return Column(f"{_KEY}{self._keys.index(expression)}", expression.type)

    def group_value(self, node: Node) -> Expression:
        """Return an output; SqlNotAllowed names a column that is neither grouped by nor aggregated."""
        return self._grouped(self.value(node), node)

    def group_condition(self, node: Node | None) -> Expression | None:
        """Return HAVING; SqlNotAllowed as for outputs."""
        condition = self.condition(node)
        return condition if condition is None or node is None else self._grouped(condition, node)

    def _grouped(self, expression: Expression, node: Node) -> Expression:
        group_columns = {*WINDOW_COLUMNS, *(m.name for m in self._measures)}
        for name in columns_of(expression):
            if name not in group_columns and not name.startswith(_KEY):
                raise self.sql.not_allowed(
                    f"Column {name!r} must stand in GROUP BY or inside an aggregate such as MAX({name}).",
                    self._names_at.get(name, node.at),
                )
        return _rename_keys(expression)

    def column(self, node: Node) -> Expression:
        """Return the column that a name means, remembering where it stands, or what an alias stands for."""
        aliased = self._alias(node)
        if aliased is not None:
            return aliased
        column = self.scope.resolve(node.value, node.at)
        self._names_at.setdefault(column.name, node.at)
        return column

    def aggregate(self, node: Node) -> Expression:
        """Return the column of a measure, or an expression over several, as for AVG."""
        name = node.value
        if len(node.children) != 1:
            raise self.sql.not_allowed(f"Write {_USAGE.get(name, f'{name.upper()}(value)')}.", node.at)
        child = node.children[0]
        if child.kind == "star":
            return self._measure(COUNT_ALL)
        argument = AggregateArgument(self.scope, shown_aggregate(name)).bind(child)
        if argument.type == NULL:
            return _aggregate_of_nulls(name)
        if any(c in WINDOW_COLUMNS for c in columns_of(argument)):
            return self._aggregate_of_bound(name, argument, child)
        return self._aggregate_of(name, argument, child)

    def _aggregate_of_bound(self, name: str, argument: Expression, child: Node) -> Expression:
        """Return MIN or MAX of a window bound: the bound itself, as all tuples of the window share it."""
        if name in ("min", "max") and all(c in WINDOW_COLUMNS for c in columns_of(argument)):
            return argument
        raise self.sql.not_allowed(f"{shown_aggregate(name)} cannot use the bounds of the window.", child.at)

    def _aggregate_of(self, name: str, argument: Expression, child: Node) -> Expression:
        kind = argument.type
        if name == "count":
            constant = isinstance(argument, Literal) and argument.value is not None
            return self._measure(COUNT_ALL if constant else Measure("count", argument))
        if name == "count_distinct":
            self._check_plain(argument, child)
        if name in _NUMBER_AGGREGATES and not kind.is_numeric:
            text = advised_text(argument)
            if kind == VARCHAR:
                hint = f" Write CAST({text} AS DOUBLE): NULL for what is no number. Of texts such as '12,50' it is"
                hint += f" CAST(REPLACE({text}, ',', '.') AS DOUBLE), where some are like '1.234,50'"
                hint += f" CAST(REPLACE(REPLACE({text}, '.', ''), ',', '.') AS DOUBLE)."
            else:
                hint = f" Write CAST(JSON_VALUE({text}, '$') AS DOUBLE)." if kind == JSON else ""
            raise self.sql.not_allowed(f"{name.upper()} needs a number; got {describe(argument)}.{hint}", child.at)
        if name in ("min", "max") and not (kind.is_numeric or kind in _ORDERED_TYPES):
            raise self.sql.not_allowed(
                f"{name.upper()} needs a number, text, date or timestamp; got {describe(argument)}."
                + (" Write CAST(… AS INT)." if kind == BOOLEAN else ""),
                child.at,
            )
        if name in _CONDITION_AGGREGATES and kind != BOOLEAN:
            raise self.sql.not_allowed(f"{name.upper()} needs a condition; got {describe(argument)}.", child.at)
        if name == "count_if":
            return self._aggregate_of("count", fold(call("case", argument, _ONE, UNTYPED_NULL)), child)
        derived = self._derived_aggregate(name, argument)
        if derived is None:
            return self._measure(Measure(name, argument))
        self._aggregates[derived] = name, argument
        return derived

    def _check_plain(self, argument: Expression, child: Node) -> None:
        try:
            check_plain((argument,), "counted by its values")
        except NotAllowed as error:
            raise self.sql.not_allowed(error.detail, child.at) from None

    def _derived_aggregate(self, name: str, argument: Expression) -> Expression | None:
        """Return an aggregate that is computed from measures; None for one that is a measure itself."""
        if name in ("bool_and", "bool_or"):
            extreme = "min" if name == "bool_and" else "max"
            return call("=", self._measure(Measure(extreme, cast_to(argument, INT))), _ONE)
        if name != "avg" and name not in _POPULATION_AGGREGATES:
            return None
        total = cast_to(self._measure(Measure("sum", argument)), DOUBLE)
        count = cast_to(self._measure(Measure("count", argument)), DOUBLE)
        if name == "avg":
            return call("/", total, count)
        share = call("/", call("-", count, _ONE), count)
        # 0 for a single value, or NaN where it is infinite or NaN
        variance_of_one = call("-", total, total)
        variance = call("coalesce", call("*", self._measure(Measure("var_samp", argument)), share), variance_of_one)
        return variance if name == "var_pop" else call("sqrt", variance)

    def _measure(self, measure: Measure) -> Expression:
        value, measures = weighted(measure) if self._are_weighted else (measure.column, (measure,))
        self._measures |= dict.fromkeys(measures)
        self._aggregates[value] = measure.function, measure.argument
        return value

    def shown(self, expression: Expression) -> Expression:
        """Return an expression for messages, its keys and aggregates as SQL writes them."""
        if expression in self._aggregates:
            return Column(_shown_call(*self._aggregates[expression]), expression.type)
        if isinstance(expression, Column) and expression.name.startswith(_KEY):
            return Column(sql_text(self._keys[int(expression.name.removeprefix(_KEY))]), expression.type)
        if isinstance(expression, Call):
            return Call(expression.function, tuple(map(self.shown, expression.arguments)), expression.type)
        return expression


def _shown_call(function: str, argument: Expression | None) -> str:
    shown = "*" if argument is None else sql_text(argument)
    return f"COUNT(DISTINCT {shown})" if function == "count_distinct" else f"{function.upper()}({shown})"


def _aggregate_of_nulls(name: str) -> Literal:
    """Return what an aggregate of an untyped NULL is in every group."""
    if name in ("count", "count_distinct", "count_if"):
        return Literal(0, BIGINT)
    if name in _CONDITION_AGGREGATES:
        return Literal(None, BOOLEAN)
    if name in ("min", "max"):
        return UNTYPED_NULL
    return Literal(None, BIGINT if name == "sum" else DOUBLE)


def _rename_keys(expression: Expression) -> Expression:
    """Give the key columns the names they have in results."""
    if isinstance(expression, Column) and expression.name.startswith(_KEY):
        return Column(f"key{expression.name.removeprefix(_KEY)}", expression.type)
    if isinstance(expression, Call):
        return Call(expression.function, tuple(map(_rename_keys, expression.arguments)), expression.type)
    return expression


class AggregateArgument(Binder):
    """Binds what stands inside an aggregate: expressions over single tuples, and window bounds."""

    def column(self, node: Node) -> Expression:
        """Return the column that a name means."""
        return self.scope.resolve(node.value, node.at)


def first_aggregate(nodes: tuple[Node, ...]) -> Node | None:
    """Return the first aggregate in some expressions, None when there is none; without recursion."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        if node.kind == "aggregate":
            return node
        pending.extend(reversed(node.children))
    return None
