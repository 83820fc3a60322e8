"""WHERE clauses as expressions over bitmaps, in which equal parts of all clauses are one object.

A clause is taken apart by AND, OR and NOT. What is left, its *atoms*, are compared in the same way for all queries, so
:class:`Bitmaps` makes each of them once (hash-consing). Logic is three-valued: every condition has a bitmap of the
tuples at which it is true, and one of those at which it is false; at the rest it is NULL. A clause selects the former.

What the bitmaps of a chunk of tuples are is worked out by :class:`braid.operators.predicates.conditions.Conditions`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from braid.operators.arrays import Numbers, TupleBits
from braid.operators.expressions import Call, Column, Expression, columns_of, text_of, typed_columns_of
from braid.operators.predicates.analysis import COMPARISONS, NotIndexable, Predicate, keeps_values, outcomes
from braid.operators.predicates.dimension import Dimension
from braid.operators.predicates.truth_set import TruthSet
from braid.sources.core.decimals import WORD_DIGITS
from braid.sources.core.schema import VARCHAR

if TYPE_CHECKING:
    from braid.operators.predicates.conditions import Conditions

_INDEXED = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP")


class Bitmap(Protocol):
    """Some tuples of every chunk; equal ones of the same :class:`Bitmaps` are one object."""

    def of(self, chunk: Conditions) -> TupleBits:
        """Return the bitmap for a chunk of tuples, shape (words,), 64 tuples a word."""


class Atom:
    """A bitmap that is worked out once a chunk."""

    def of(self, chunk: Conditions) -> TupleBits:
        """Return the bitmap for a chunk of tuples."""
        words = chunk.bits.get(self)
        if words is None:
            words = chunk.bits[self] = self.evaluate(chunk)
        return words

    def evaluate(self, chunk: Conditions) -> TupleBits:
        """Work the bitmap out."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Value:
    """What atoms compare with constants, or are: an expression, or the column ``name`` where that is None.

    ``atoms`` are those that compare it, as long as some clause has them.
    """

    name: str
    expression: Expression | None = None
    atoms: WeakSet[InTruth] = field(default_factory=WeakSet)

    @cached_property
    def text(self) -> str | None:
        """The column of texts that is all it reads, if it is an expression over one."""
        columns = set() if self.expression is None else set(typed_columns_of(self.expression))
        (column,) = columns if len(columns) == 1 else (None,)
        return None if column is None or column.type != VARCHAR else column.name


@dataclass(frozen=True, eq=False)
class InTruth(Atom):
    """The tuples at which a value, a number of any kind, is in a truth set."""

    value: Value
    truth: TruthSet

    def __post_init__(self) -> None:
        self.value.atoms.add(self)

    @cached_property
    def stretches(self) -> list[tuple[Any, Any]]:
        """The stretches ``low <= v < high`` at which the truth set is true; None stands for no bound."""
        bounds = [None, *self.truth.boundaries, None]
        return [(low, high) for low, high, holds in zip(bounds, bounds[1:], self.truth.truths, strict=False) if holds]

    def evaluate(self, chunk: Conditions) -> TupleBits:
        """Compare the value with the ends of stretches."""
        return chunk.in_truth(self)


@dataclass(frozen=True, eq=False)
class TextsIn(Atom):
    """The tuples whose text in a column is in a truth set."""

    column: str
    truth: TruthSet

    @cached_property
    def dimension(self) -> Dimension:
        """The cells into which the truth set cuts texts."""
        return Dimension(self.column, VARCHAR.kind, self.truth.boundaries)

    @cached_property
    def table(self) -> Numbers:
        """Whether the texts of each cell are in the truth set, 0 or 1; shape (cells,), uint8."""
        return self.truth.mask_over(self.truth.boundaries).view(np.uint8)

    def evaluate(self, chunk: Conditions) -> TupleBits:
        """Look texts up, each different one once where they repeat."""
        return chunk.texts_in(self)


@dataclass(frozen=True, eq=False)
class TruthBits(Atom):
    """The tuples at which any other expression is true, or false."""

    value: Value
    is_true: bool

    def evaluate(self, chunk: Conditions) -> TupleBits:
        """Evaluate the expression."""
        true, false = chunk.outcomes_of(self.value)
        return true if self.is_true else false


@dataclass(frozen=True, eq=False)
class Combined:
    """The tuples of all of some bitmaps, or of any; of all of none, every tuple."""

    parts: Sequence[Bitmap]
    is_all: bool

    def of(self, chunk: Conditions) -> TupleBits:
        """Combine the bitmaps, 64 tuples in one step."""
        if not self.parts:
            return chunk.every
        combine = np.bitwise_and if self.is_all else np.bitwise_or
        return reduce(combine, [part.of(chunk) for part in self.parts])


@dataclass(frozen=True, eq=False)
class Guarded:
    """The tuples at which a conjunct is true; if a part of it fails, it is evaluated, and fails, whole."""

    part: Bitmap
    conjunct: Expression

    def of(self, chunk: Conditions) -> TupleBits:
        """Combine what its atoms are."""
        try:
            return self.part.of(chunk)
        except Exception:
            return chunk.true_of(self.conjunct)


class Bitmaps:
    """Makes bitmaps of WHERE clauses; those that no clause has any more are forgotten."""

    def __init__(self) -> None:
        self._made: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()

    def of(self, predicate: Predicate) -> Bitmap:
        """Return the bitmap of the tuples that satisfy a WHERE clause."""
        parts: list[Bitmap] = []
        for name, truth in predicate.truths.items():
            if name in predicate.residuals:
                conjunct = predicate.residuals[name]
                parts.append(Guarded(self._outcome(conjunct)[0], conjunct))
            elif predicate.kinds[name] in _INDEXED:
                parts.append(self._once(InTruth, self._once(Value, name), truth))
            else:
                parts.append(self._once(TextsIn, name, truth))
        return parts[0] if len(parts) == 1 else Combined(parts, is_all=True)

    def _once(self, kind: Callable[..., Any], *parts: Hashable) -> Any:
        """Return the object of a kind with these parts, the same one each time."""
        key = kind, *parts
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = kind(*parts)
        return made

    def _value(self, expression: Expression) -> Value:
        if isinstance(expression, Column):
            return self._once(Value, expression.name)
        return self._once(Value, text_of(expression), expression)

    def _outcome(self, condition: Expression) -> tuple[Bitmap, Bitmap]:
        """Return where a condition is true, and where it is false."""
        function = condition.function if isinstance(condition, Call) else ""
        if isinstance(condition, Call) and function in ("and", "or"):
            parts = [self._outcome(argument) for argument in condition.arguments]
            is_and = function == "and"
            return Combined([true for true, _ in parts], is_and), Combined([false for _, false in parts], not is_and)
        if isinstance(condition, Call) and function == "not":
            was_true, was_false = self._outcome(condition.arguments[0])
            return was_false, was_true
        with contextlib.suppress(NotIndexable):
            compared = _compared_value(condition)
            true, false = outcomes(_with_stand_in(condition, compared), compared.type)
            value = self._value(compared)
            return self._once(InTruth, value, true), self._once(InTruth, value, false)
        value = self._value(condition)
        return self._once(TruthBits, value, True), self._once(TruthBits, value, False)


def compared_values(condition: Expression) -> Iterator[Expression]:
    """Yield what the atoms of a condition compare with constants, where that is more than a column."""
    if isinstance(condition, Call) and condition.function in ("and", "or", "not"):
        for argument in condition.arguments:
            yield from compared_values(argument)
        return
    with contextlib.suppress(NotIndexable):
        value = _compared_value(condition)
        if isinstance(value, Call):
            yield value


def _compared_value(atom: Expression) -> Expression:
    """Return what an atom compares with constants, without a cast that keeps every value; NotIndexable for none."""
    if not isinstance(atom, Call) or atom.function not in (*COMPARISONS, "in", "is_null"):
        raise NotIndexable
    values = [argument for argument in atom.arguments if next(columns_of(argument), None) is not None]
    if len(values) != 1:
        raise NotIndexable
    (value,) = values
    if isinstance(value, Call) and value.function == "cast" and keeps_values(value.arguments[0].type, value.type):
        value = value.arguments[0]
    if value.type.kind not in _INDEXED or value.type.precision > WORD_DIGITS:
        raise NotIndexable
    return value


def _with_stand_in(expression: Expression, value: Expression) -> Expression:
    """Return an expression with a column in place of a value in it."""
    if expression == value:
        return Column("", value.type)
    if isinstance(expression, Call):
        arguments = tuple(_with_stand_in(argument, value) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type)
    return expression
