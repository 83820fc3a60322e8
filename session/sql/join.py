"""Plan a SELECT over several inputs: a windowed equi-join; over one, it gives the tuples of each window.

ON and WHERE are taken apart: conditions on one input go to it, equalities between two make them joined. All that are
equal to each other by inner conditions are one *attribute*. A LEFT JOIN stays one unless a condition after it, such as
``WHERE b.x > 5``, lets no row without a partner through. ``WHERE b.key IS NULL``, over what b is joined by, lets only
those through: an anti-join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from operators.evaluation import holds_for_nulls, is_null_for_nulls
from operators.expressions import Call, Expression, all_of, columns_of, conjuncts_of
from operators.functions import call
from operators.functions.coercion import in_one_type
from operators.joins.parts import without_alias
from operators.queries import Grouping, Join, JoinInput, Measure, Output
from operators.windows import EMIT_AFTER_WATERMARK, SessionWindow, Window
from session.sql.aggregates import AggregateBinder, has_aggregate
from session.sql.expressions import Binder
from session.sql.join_scope import JoinScope
from session.sql.scope import WINDOW_COLUMNS, Scope
from session.sql.select_list import aliases, group_keys, output_name, windowed_outputs, with_bounds
from session.sql.statements import Select, WindowedSource
from session.sql.syntax import Node, conjuncts

MAX_INPUTS = 10
_EQUALITIES = "A join of streams compares each input with others by equal columns, as in a.user_id = b.user_id"
_EARLY = " An aggregate or GROUP BY, such as SELECT COUNT(*) …, has early rows."


def plan_join(select: Select, scopes: Sequence[Scope]) -> Join:
    """Return the join that a SELECT asks for; SqlNotAllowed says what it may not do."""
    sources = (select.source, *(joined.source for joined in select.joins))
    if len(sources) > MAX_INPUTS:
        raise select.sql.not_allowed(f"A join must have at most {MAX_INPUTS} inputs.", sources[MAX_INPUTS].at)
    scope = JoinScope(select.sql, scopes, [source.at for source in sources])
    window = _common_window(select, sources)
    if select.emit is not None and select.emit.emit != EMIT_AFTER_WATERMARK:
        what, also = ("The rows of a join", "") if select.joins else ("The tuples of a window", _EARLY)
        raise select.sql.not_allowed(
            f"{what} come once, when they are final; leave EMIT out or write EMIT AFTER WATERMARK.{also}",
            select.emit.at,
        )
    conditions = _Conditions(select, scope)
    inputs, where = conditions.inputs(), conditions.over_rows
    if isinstance(window, SessionWindow):
        _check_sessions(select, inputs, scopes)
    having = () if select.having is None else (select.having,)
    aggregate = has_aggregate((*(item.node for item in select.items), *having))
    if aggregate is None and not select.group_by and select.having is None:
        return Join(inputs, window, _row_outputs(select, scope), None, where)
    grouping, outputs = _grouping(select, scope)
    return Join(inputs, window, outputs, grouping, where)


def _common_window(select: Select, sources: tuple[WindowedSource, ...]) -> Window | SessionWindow:
    example = "such as [RANGE 8 SECONDS], after each stream"
    windows = [source.window for source in sources]
    for source, window in zip(sources, windows, strict=True):
        if window is None:
            raise select.sql.not_allowed(
                f"All inputs of a join need the same window; {source.stream} has none. Write one, {example}.", source.at
            )
        if isinstance(window, SessionWindow) and len(sources) == 1:
            raise select.sql.not_allowed(
                "A session needs an aggregate or GROUP BY, such as SELECT COUNT(*) …; remove it to get the tuples.",
                source.window_at,
            )
        if window != windows[0]:
            raise select.sql.not_allowed(
                "All inputs of a join must have the same window; this one differs from the first.", source.window_at
            )
    assert windows[0] is not None
    return windows[0]


def _check_sessions(select: Select, inputs: Sequence[JoinInput], scopes: Sequence[Scope]) -> None:
    """Check that all inputs have sessions of the same keys."""
    sources = (select.source, *(joined.source for joined in select.joins))
    for source, each, scope in zip(sources, inputs, scopes, strict=True):
        if None in each.keys:
            raise select.sql.not_allowed(
                "Sessions of a join are of tuples that are equal in all that it compares, so each input must be"
                f" compared by all of it; {each.alias!r} is not.",
                source.window_at,
            )
        named = [Binder(scope, "PARTITION BY").value(node) for node in source.partition_by]
        compared = [list(_under_casts(key)) for key in each.keys if key is not None]
        if named and (
            any(all(name not in under for under in compared) for name in named)
            or any(all(name not in under for name in named) for under in compared)
        ):
            raise select.sql.not_allowed(
                "PARTITION BY of a join's sessions must have the columns that its input is joined by, or be left out.",
                source.partition_by[0].at,
            )


def _row_outputs(select: Select, scope: JoinScope) -> tuple[Output, ...]:
    binder = _RowBinder(scope, "SELECT")
    planned: list[tuple[str, Expression, int]] = []
    for item in select.items:
        if item.node.kind == "star":
            columns = scope.columns_of(item.node.value, item.node.at)
            planned += [(name, column, item.node.at) for name, column in columns]
        else:
            planned.append((output_name(item, scope), binder.value(item.node), item.node.at))
    return with_bounds(select, planned)


class _RowBinder(Binder):
    """Binds outputs over joined rows, which have the bounds of the window, too."""

    def column(self, node: Node) -> Expression:
        return self.scope.resolve(node.value, node.at)


def _grouping(select: Select, scope: JoinScope) -> tuple[Grouping, tuple[Output, ...]]:
    keys = group_keys(select, scope)
    measures: dict[Measure, None] = {}
    outputs = windowed_outputs(select, scope, AggregateBinder(scope, "SELECT", keys, measures).group_value)
    having = AggregateBinder(scope, "HAVING", keys, measures, aliases(select)).group_condition(select.having)
    return Grouping(keys, tuple(measures), having), outputs


def _inputs_of(scope: JoinScope, expression: Expression) -> set[int]:
    found = {scope.input_of(name) for name in columns_of(expression)}
    return {number for number in found if number is not None}


@dataclass(frozen=True)
class _Equality:
    """``left`` = ``right``, each over one input, given by their numbers."""

    left: int
    left_key: Expression
    right: int
    right_key: Expression

    @property
    def condition(self) -> Expression:
        """It as an expression."""
        return call("=", self.left_key, self.right_key)


@dataclass
class _Split:
    """Conditions: those on one input, each with its number and where it stands, equalities between two, and others."""

    filters: list[tuple[int, Expression, int]] = field(default_factory=list)
    equalities: list[_Equality] = field(default_factory=list)
    others: list[Expression] = field(default_factory=list)

    def keep_equalities(self, kept: list[_Equality]) -> None:
        """Take the equalities that are not kept for others."""
        self.others += [each.condition for each in self.equalities if each not in kept]
        self.equalities = kept


class _Conditions:
    """ON and WHERE of one SELECT, on their way to its inputs."""

    def __init__(self, select: Select, scope: JoinScope) -> None:
        self._select = select
        self._scope = scope
        self._inner = _Split()
        self._outer: dict[int, _Split] = {}
        self._anti: set[int] = set()
        self._names: list[str] = [each.name for each in scope.inputs]
        for number, joined in enumerate(select.joins, start=1):
            split = self._outer.setdefault(number, _Split()) if joined.left else self._inner
            if joined.on is not None:
                self._take(joined.on, split, "ON", number + 1)
        if select.where is not None:
            self._take(select.where, self._inner, "WHERE", len(self._names))
        self._make_inner()

    def inputs(self) -> tuple[JoinInput, ...]:
        """Return the inputs with their filters and keys."""
        attributes = _Attributes(len(self._names))
        where: list[list[Expression]] = [[] for _ in self._names]
        for number, condition, _ in self._inner.filters:
            where[number].append(condition)
        for equality in self._inner.equalities:
            attributes.unite(equality)
        outer_of: list[tuple[int, ...]] = [() for _ in self._names]
        for number, split in self._outer.items():
            where[number] += [condition for _, condition, _ in split.filters]
            outer_of[number] = tuple(sorted({equality.left for equality in split.equalities}))
        keys, also = attributes.keys([(n, e) for n, split in self._outer.items() for e in split.equalities])
        for number, condition in also:
            where[number].append(condition)
        self._check_connected(keys)
        return tuple(
            JoinInput(
                self._scope.inputs[number].definition.id,
                name,
                all_of([without_alias(condition, name) for condition in where[number]]),
                tuple(None if key is None else without_alias(key, name) for key in keys[number]),
                outer_of[number],
                number in self._anti,
                self._scope.inputs[number].lookups,
                all_of(self._outer[number].others) if number in self._outer else None,
            )
            for number, name in enumerate(self._names)
        )

    @property
    def over_rows(self) -> Expression | None:
        """What is left to be tested on joined rows."""
        return all_of(self._inner.others)

    # taking conditions apart

    def _take(self, node: Node, split: _Split, clause: str, inputs: int) -> None:
        """Sort the parts of a condition that may name the first ``inputs`` inputs."""
        binder = Binder(self._scope, clause)
        for part in conjuncts(node):
            if self._is_same_window(part):
                continue
            condition = binder.condition(part)
            for each in conjuncts_of(condition):
                beyond = [number for number in _inputs_of(self._scope, each) if number >= inputs]
                if beyond:
                    raise self._select.sql.not_allowed(
                        f"ON must not name {self._names[beyond[0]]!r}, which comes after it in FROM.", part.at
                    )
                self._add(each, split, part.at)

    def _is_same_window(self, node: Node) -> bool:
        """Return whether a condition says that the bounds of two inputs' windows are equal, which they are."""
        if node.kind != "call" or node.value != "=" or any(child.kind != "name" for child in node.children):
            return False
        left, right = (self._scope.resolve(child.value, child.at) for child in node.children)
        return left == right and left.name in WINDOW_COLUMNS

    def _add(self, condition: Expression, split: _Split, at: int) -> None:
        inputs = _inputs_of(self._scope, condition)
        if len(inputs) <= 1:
            split.filters.append((next(iter(inputs), self._first_of(split)), condition, at))
            return
        if isinstance(condition, Call) and condition.function == "=":
            sides = [_inputs_of(self._scope, argument) for argument in condition.arguments]
            if all(len(side) == 1 for side in sides):
                ((left,), (right,)) = sides
                first, second = condition.arguments
                if left > right:
                    left, first, right, second = right, second, left, first
                split.equalities.append(_Equality(left, first, right, second))
                return
        split.others.append(condition)

    def _first_of(self, split: _Split) -> int:
        """Return the input that a condition without columns goes to."""
        return next((number for number, other in self._outer.items() if other is split), 0)

    # LEFT JOIN

    def _make_inner(self) -> None:
        """Turn a LEFT JOIN into an inner one where later conditions let no row without a partner through."""
        while (number := self._not_outer()) is not None:
            split = self._outer.pop(number)
            self._inner.filters += split.filters
            self._inner.equalities += split.equalities
            self._inner.others += split.others
        # what is left of them holds for some rows without a partner, so it has to be tested on rows
        named = self._outer.keys()
        self._inner.keep_equalities([e for e in self._inner.equalities if not {e.left, e.right} & named])
        for number, split in self._outer.items():
            self._keep_its_own(number, split)
            if not split.equalities:
                self._refuse_unconnected(number)
        for number in self._outer:
            self._check_dependents(number)
        self._make_anti()

    def _keep_its_own(self, number: int, split: _Split) -> None:
        """Leave in the ON of a LEFT JOIN tests of its own input, and what that is compared with; all else is others.

        A key over another LEFT JOIN's input that is not NULL without a partner there, such as COALESCE(b.x, 1), is no
        key of that input's tuples.
        """
        split.others += [condition for other, condition, _ in split.filters if other != number]
        split.filters = [each for each in split.filters if each[0] == number]
        split.keep_equalities(
            [
                each
                for each in split.equalities
                if each.right == number and (each.left not in self._outer or is_null_for_nulls(each.left_key))
            ]
        )

    def _check_dependents(self, number: int) -> None:
        """Raise SqlNotAllowed where it takes more than equality to be a partner, and another LEFT JOIN looks at it."""
        if not self._outer[number].others:
            return
        for other, split in self._outer.items():
            named = {each for condition in split.others for each in _inputs_of(self._scope, condition)}
            named |= {equality.left for equality in split.equalities}
            if other != number and number in named:
                raise self._select.sql.not_allowed(
                    f"ON of a LEFT JOIN must not name {self._names[number]!r}, whose own ON has more than equal columns"
                    " and tests of it alone. Register the first join as a query of its own, or move the condition to"
                    " WHERE.",
                    self._select.joins[other - 1].source.at,
                )

    def _not_outer(self) -> int | None:
        for equality in self._inner.equalities:
            for number, key in ((equality.left, equality.left_key), (equality.right, equality.right_key)):
                if number in self._outer and is_null_for_nulls(key):
                    return number
        for number, condition, _ in self._inner.filters:
            if number in self._outer and not holds_for_nulls(condition):
                return number
        return None

    def _make_anti(self) -> None:
        """Take note of the LEFT JOINs of which only rows without a partner are wanted."""
        kept = []
        for number, condition, at in self._inner.filters:
            if number not in self._outer:
                kept.append((number, condition, at))
            elif not self._outer[number].others and self._is_no_partner(number, condition):
                self._anti.add(number)
            else:
                self._inner.others.append(condition)
        self._inner.filters = kept

    def _is_no_partner(self, number: int, condition: Expression) -> bool:
        """Return whether a condition holds just where an outer input has no partner."""
        if not isinstance(condition, Call) or condition.function != "is_null":
            return False
        return any(condition.arguments[0] in _under_casts(e.right_key) for e in self._outer[number].equalities)

    def _check_connected(self, keys: list[list[Expression | None]]) -> None:
        """Raise SqlNotAllowed when an input is not compared with those before it, directly or through others."""
        reached = {0}
        while True:
            attributes = {a for number in reached for a, key in enumerate(keys[number]) if key is not None}
            more = {n for n, mine in enumerate(keys) if any(mine[a] is not None for a in attributes)} - reached
            if not more:
                break
            reached |= more
        for number in range(len(self._names)):
            if number not in reached:
                self._refuse_unconnected(number)

    def _refuse_unconnected(self, number: int) -> NoReturn:
        raise self._select.sql.not_allowed(
            f"{_EQUALITIES}; {self._names[number]!r} is not compared with the others.",
            self._select.joins[number - 1].source.at,
        )


class _Attributes:
    """What is equal to what: attributes, and the key of each input in each of them."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self._members: list[list[tuple[int, Expression]]] = []

    def unite(self, equality: _Equality) -> None:
        """Put both sides of an inner equality into one attribute."""
        left, right = (equality.left, equality.left_key), (equality.right, equality.right_key)
        touched = [members for members in self._members if left in members or right in members]
        joined = list(dict.fromkeys([*(member for members in touched for member in members), left, right]))
        self._members = [members for members in self._members if members not in touched] + [joined]

    def keys(
        self, outer: list[tuple[int, _Equality]]
    ) -> tuple[list[list[Expression | None]], list[tuple[int, Expression]]]:
        """Return the key of each input in each attribute, and conditions where an input has two in one.

        The equalities of LEFT JOINs extend attributes by their right side only: they say nothing of the left ones.
        """
        attributes: list[dict[int, Expression]] = []
        also: list[tuple[int, Expression]] = []
        of: dict[tuple[int, Expression], int] = {}
        for number, members in enumerate(self._members):
            chosen: dict[int, Expression] = {}
            for member, key in members:
                of[member, key] = number
                if member in chosen:
                    also.append((member, call("=", chosen[member], key)))
                else:
                    chosen[member] = key
            attributes.append(chosen)
        for number, equality in outer:
            left = equality.left, equality.left_key
            if left not in of:
                of[left] = len(attributes)
                attributes.append(dict([left]))
            attribute = of[left]
            known = attributes[attribute].setdefault(number, equality.right_key)
            of.setdefault((number, equality.right_key), attribute)
            if known != equality.right_key:
                also.append((number, call("=", known, equality.right_key)))
        keys: list[list[Expression | None]] = [[] for _ in range(self._inputs)]
        # in one order whatever that of the conditions, so that more queries are alike
        for chosen in sorted(attributes, key=lambda each: min((number, str(key)) for number, key in each.items())):
            unified = _unified(chosen)
            for number, mine in enumerate(keys):
                mine.append(unified.get(number))
        return keys, also


def _unified(keys: Mapping[int, Expression]) -> dict[int, Expression]:
    """Return keys that are compared with each other in one type."""
    return dict(zip(keys, in_one_type(tuple(keys.values())), strict=True))


def _under_casts(key: Expression) -> Iterator[Expression]:
    """Yield a key and what its casts are of: where it is not NULL, none of them is."""
    yield key
    if isinstance(key, Call) and key.function == "cast":
        yield from _under_casts(key.arguments[0])
