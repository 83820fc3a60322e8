"""ON and WHERE of a join, taken apart.

A condition on one input becomes a filter of that input, an equality between two inputs makes them joined. All keys that
inner conditions make equal to each other are one *attribute*. A LEFT JOIN becomes an inner join where a condition after
it, such as ``WHERE b.x > 5``, lets no row without a partner through. ``WHERE b.key IS NULL``, over a key that b is
joined by, lets only rows without a partner through: an anti-join.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from braid.operators.evaluation import holds_for_nulls, is_null_for_nulls
from braid.operators.expressions import Call, Expression, all_of, columns_of, conjuncts_of
from braid.operators.functions import call
from braid.operators.functions.coercion import in_one_type
from braid.operators.joins.inputs import without_alias
from braid.operators.joins.query import JoinInput
from braid.session.sql.expressions import Binder
from braid.session.sql.join_scope import JoinScope
from braid.session.sql.scope import WINDOW_COLUMNS, column_of
from braid.session.sql.statements import Select
from braid.session.sql.syntax import Node, conjuncts

_EQUALITIES = "A join of streams compares each input with others by equal columns, as in a.user_id = b.user_id"


def _inputs_of(scope: JoinScope, expression: Expression) -> set[int]:
    numbers = {scope.input_of(name) for name in columns_of(expression)}
    return {number for number in numbers if number is not None}


@dataclass(frozen=True)
class _Equality:
    """An equality of two keys, each over one input; ``left`` and ``right`` are the numbers of the inputs."""

    left: int
    left_key: Expression
    right: int
    right_key: Expression

    @property
    def condition(self) -> Expression:
        """The equality as an expression."""
        return call("=", self.left_key, self.right_key)


@dataclass
class _Split:
    """Conditions: ``filters`` on one input, each with its number and offset, equalities between two, and the rest."""

    filters: list[tuple[int, Expression, int]] = field(default_factory=list)
    equalities: list[_Equality] = field(default_factory=list)
    residual: list[Expression] = field(default_factory=list)

    def keep_equalities(self, equalities: list[_Equality]) -> None:
        """Keep these equalities only; the others become residual."""
        self.residual += [equality.condition for equality in self.equalities if equality not in equalities]
        self.equalities = equalities


class JoinConditions:
    """ON and WHERE of one SELECT, on their way to its inputs."""

    def __init__(self, select: Select, scope: JoinScope) -> None:
        self._select = select
        self._scope = scope
        self._inner = _Split()
        self._outer: dict[int, _Split] = {}
        self._anti: set[int] = set()
        self._names: list[str] = [input_scope.name for input_scope in scope.inputs]
        for number, joined in enumerate(select.joins, start=1):
            split = self._outer.setdefault(number, _Split()) if joined.left else self._inner
            if joined.on is not None:
                self._sort_conjuncts(joined.on, split, "ON", number + 1)
        if select.where is not None:
            self._sort_conjuncts(select.where, self._inner, "WHERE", len(self._names))
        self._make_inner()

    def inputs(self) -> tuple[JoinInput, ...]:
        """Return the inputs with their filters and keys."""
        attributes = _Attributes(len(self._names))
        filters: list[list[Expression]] = [[] for _ in self._names]
        for number, condition, _ in self._inner.filters:
            filters[number].append(condition)
        for equality in self._inner.equalities:
            attributes.unite(equality)
        outer_of: list[tuple[int, ...]] = [() for _ in self._names]
        for number, split in self._outer.items():
            filters[number] += [condition for _, condition, _ in split.filters]
            outer_of[number] = tuple(sorted({equality.left for equality in split.equalities}))
        keys, more_filters = attributes.keys([(n, e) for n, split in self._outer.items() for e in split.equalities])
        for number, condition in more_filters:
            filters[number].append(condition)
        self._check_connected(keys)
        return tuple(
            JoinInput(
                self._scope.inputs[number].stream.id,
                name,
                all_of([without_alias(condition, name) for condition in filters[number]]),
                tuple(None if key is None else without_alias(key, name) for key in keys[number]),
                outer_of[number],
                number in self._anti,
                self._scope.inputs[number].lookups,
                all_of(self._outer[number].residual) if number in self._outer else None,
            )
            for number, name in enumerate(self._names)
        )

    @property
    def over_rows(self) -> Expression | None:
        """The conditions that must be tested on joined rows."""
        return all_of(self._inner.residual)

    # taking conditions apart

    def _sort_conjuncts(self, node: Node, split: _Split, clause: str, input_count: int) -> None:
        """Sort the parts of a condition into ``split``; they may name the first ``input_count`` inputs only."""
        binder = Binder(self._scope, clause)
        for part in conjuncts(node):
            if self._is_same_window(part):
                continue
            condition = binder.condition(part)
            for conjunct in conjuncts_of(condition):
                later_inputs = [number for number in _inputs_of(self._scope, conjunct) if number >= input_count]
                if later_inputs:
                    raise self._select.sql.not_allowed(
                        f"ON must not name {self._names[later_inputs[0]]!r}, which comes after it in FROM.", part.at
                    )
                self._add(conjunct, split, part.at)

    def _is_same_window(self, node: Node) -> bool:
        """Return whether a condition says that the bounds of two inputs' windows are equal, which they are."""
        if node.kind != "call" or node.value != "=" or any(child.kind != "name" for child in node.children):
            return False
        left, right = (column_of(self._scope, child) for child in node.children)
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
        split.residual.append(condition)

    def _first_of(self, split: _Split) -> int:
        """Return the input that a condition without columns goes to."""
        return next((number for number, other in self._outer.items() if other is split), 0)

    # LEFT JOIN

    def _make_inner(self) -> None:
        """Turn a LEFT JOIN into an inner one where later conditions let no row without a partner through."""
        while (number := self._find_inner()) is not None:
            split = self._outer.pop(number)
            self._inner.filters += split.filters
            self._inner.equalities += split.equalities
            self._inner.residual += split.residual
        # an equality with an input that is still outer holds for some rows without a partner: it is tested on rows
        outer_inputs = self._outer.keys()
        self._inner.keep_equalities(
            [equality for equality in self._inner.equalities if not {equality.left, equality.right} & outer_inputs]
        )
        for number, split in self._outer.items():
            self._reduce_on(number, split)
            if not split.equalities:
                self._refuse_unconnected(number)
        for number in self._outer:
            self._check_dependents(number)
        self._make_anti()

    def _reduce_on(self, number: int, split: _Split) -> None:
        """Keep in the ON of a LEFT JOIN the filters and the keys of its own input; all else becomes residual.

        A key over the input of another LEFT JOIN that is not NULL where that found no partner, such as COALESCE(b.x,
        1), cannot be computed from that input's tuples alone.
        """
        split.residual += [condition for filtered, condition, _ in split.filters if filtered != number]
        split.filters = [own_filter for own_filter in split.filters if own_filter[0] == number]
        split.keep_equalities(
            [
                equality
                for equality in split.equalities
                if equality.right == number
                and (equality.left not in self._outer or is_null_for_nulls(equality.left_key))
            ]
        )

    def _check_dependents(self, number: int) -> None:
        """Raise SqlNotAllowed when a LEFT JOIN has residual conditions and another one's ON names its input."""
        if not self._outer[number].residual:
            return
        for other, split in self._outer.items():
            named_inputs = {equality.left for equality in split.equalities}
            named_inputs.update(*(_inputs_of(self._scope, condition) for condition in split.residual))
            if other != number and number in named_inputs:
                raise self._select.sql.not_allowed(
                    f"ON of a LEFT JOIN must not name {self._names[number]!r}, whose own ON has more than equal columns"
                    " and tests of it alone. Move that condition to WHERE.",
                    self._select.joins[other - 1].source.at,
                )

    def _find_inner(self) -> int | None:
        """Return the input of a LEFT JOIN whose rows without a partner an inner condition drops anyway."""
        for equality in self._inner.equalities:
            for number, key in ((equality.left, equality.left_key), (equality.right, equality.right_key)):
                if number in self._outer and is_null_for_nulls(key):
                    return number
        for number, condition, _ in self._inner.filters:
            if number in self._outer and not holds_for_nulls(condition):
                return number
        return None

    def _make_anti(self) -> None:
        """Note the LEFT JOINs of which only rows without a partner are wanted."""
        filters = []
        for number, condition, at in self._inner.filters:
            if number not in self._outer:
                filters.append((number, condition, at))
            elif not self._outer[number].residual and self._is_no_partner(number, condition):
                self._anti.add(number)
            else:
                self._inner.residual.append(condition)
        self._inner.filters = filters

    def _is_no_partner(self, number: int, condition: Expression) -> bool:
        """Return whether a condition holds just where an outer input has no partner."""
        if not isinstance(condition, Call) or condition.function != "is_null":
            return False
        return any(condition.arguments[0] in under_casts(e.right_key) for e in self._outer[number].equalities)

    def _check_connected(self, keys: list[list[Expression | None]]) -> None:
        """Raise SqlNotAllowed when an input is not compared with those before it, directly or through others."""
        reached = {0}
        while True:
            attributes = {a for number in reached for a, key in enumerate(keys[number]) if key is not None}
            linked = {n for n, input_keys in enumerate(keys) if any(input_keys[a] is not None for a in attributes)}
            if linked <= reached:
                break
            reached |= linked
        for number in range(len(self._names)):
            if number not in reached:
                self._refuse_unconnected(number)

    def _refuse_unconnected(self, number: int) -> NoReturn:
        raise self._select.sql.not_allowed(
            f"{_EQUALITIES}; {self._names[number]!r} is not compared with the others.",
            self._select.joins[number - 1].source.at,
        )


class _Attributes:
    """The attributes of a join, and the key of each input in each of them."""

    def __init__(self, input_count: int) -> None:
        self._input_count = input_count
        self._members: dict[int, list[tuple[int, Expression]]] = {}
        self._attribute_of: dict[tuple[int, Expression], int] = {}
        self._united = 0

    def unite(self, equality: _Equality) -> None:
        """Put both sides of an inner equality into one attribute."""
        left, right = (equality.left, equality.left_key), (equality.right, equality.right_key)
        numbers = sorted({self._attribute_of[side] for side in (left, right) if side in self._attribute_of})
        merged = [member for number in numbers for member in self._members.pop(number)]
        self._united += 1
        self._members[self._united] = list(dict.fromkeys([*merged, left, right]))
        self._attribute_of.update(dict.fromkeys(self._members[self._united], self._united))

    def keys(
        self, outer: list[tuple[int, _Equality]]
    ) -> tuple[list[list[Expression | None]], list[tuple[int, Expression]]]:
        """Return each input's key in each attribute, and conditions that make equal the keys an input has in one.

        The equalities of LEFT JOINs add only their right sides to attributes: they do not filter the left tuples.
        """
        attributes: list[dict[int, Expression]] = []
        conditions: list[tuple[int, Expression]] = []
        attribute_of: dict[tuple[int, Expression], int] = {}
        for number, members in enumerate(self._members.values()):
            chosen_keys: dict[int, Expression] = {}
            for member, key in members:
                attribute_of[member, key] = number
                if member in chosen_keys:
                    conditions.append((member, call("=", chosen_keys[member], key)))
                else:
                    chosen_keys[member] = key
            attributes.append(chosen_keys)
        for number, equality in outer:
            left = equality.left, equality.left_key
            if left not in attribute_of:
                attribute_of[left] = len(attributes)
                attributes.append(dict([left]))
            attribute = attribute_of[left]
            key_of_input = attributes[attribute].setdefault(number, equality.right_key)
            attribute_of.setdefault((number, equality.right_key), attribute)
            if key_of_input != equality.right_key:
                conditions.append((number, call("=", key_of_input, equality.right_key)))
        keys: list[list[Expression | None]] = [[] for _ in range(self._input_count)]
        # in an order that does not depend on that of the conditions, so that more queries are alike
        for chosen_keys in sorted(attributes, key=_first_key):
            unified = _unified(chosen_keys)
            for number, input_keys in enumerate(keys):
                input_keys.append(unified.get(number))
        return keys, conditions


def _first_key(attribute: Mapping[int, Expression]) -> tuple[int, str]:
    """Return the first input of an attribute, and its key as text."""
    return min((number, str(key)) for number, key in attribute.items())


def _unified(keys: Mapping[int, Expression]) -> dict[int, Expression]:
    """Return keys that are compared with each other in one type."""
    return dict(zip(keys, in_one_type(tuple(keys.values())), strict=True))


def under_casts(key: Expression) -> Iterator[Expression]:
    """Yield a key and the expressions below its casts, none of which is NULL where the key is not."""
    yield key
    if isinstance(key, Call) and key.function == "cast":
        yield from under_casts(key.arguments[0])
