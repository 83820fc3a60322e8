"""WHERE clauses as bitmaps: which tuples of a chunk satisfy each, with what they have in common worked out once.

A clause is taken apart by AND, OR and NOT. What is left, its *atoms*, are compared in the same way for all queries:
equal atoms, and equal expressions in them, are evaluated once a chunk. Bits of 64 tuples are combined in one step, in
three-valued logic: an atom has the tuples at which it is true, and those at which it is false. Where the texts of a
column repeat, what reads that column alone is evaluated once for each of its values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from operators import kernels
from operators.arrays import Numbers, Places
from operators.evaluation import evaluate
from operators.expressions import Call, Column, Expression, columns_of, text_of, typed_columns_of
from operators.predicates.analysis import COMPARISONS, NotIndexable, Predicate, keeps_values, outcomes
from operators.predicates.dimension import Dimension, numeric
from operators.predicates.query_set import Words
from operators.predicates.truth_set import TruthSet
from operators.tuples import Tuples
from sources.core.decimals import WORD_DIGITS
from sources.core.schema import VARCHAR

_BITS = 64
# a truth set of so many stretches is looked up, one with fewer compares with each
_FEW_STRETCHES = 24
# texts repeat where so many in a sample have at most half as many values
_SAMPLE, _REPEATED = 1024, 2
_INDEXED = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP")

Outcome = tuple[Words, Words]
"""The tuples at which a condition is true, and those at which it is false; at the rest it is NULL."""


class Conditions:
    """The tuples of a chunk that satisfy conditions, as bitmaps of shape (words,), 64 tuples a word."""

    def __init__(self, tuples: Tuples) -> None:
        self._tuples = tuples
        self._words = -(-tuples.length // _BITS)
        self._outcomes: dict[str, Outcome] = {}
        self._truths: dict[tuple[str, TruthSet], Words] = {}
        self._numbers: dict[str, tuple[Numbers, Words | None]] = {}
        self._texts: dict[str, tuple[pa.Array, Places] | None] = {}

    @cached_property
    def every(self) -> Words:
        """The bitmap of all tuples."""
        return self._packed(np.ones(self._tuples.length, dtype=np.bool_))

    def holds(self, predicate: Predicate) -> Words:
        """Return the tuples that satisfy a WHERE clause; what cannot be evaluated is told by the tuples' failures."""
        parts = [
            self._residual(predicate.residuals[name])
            if name in predicate.residuals
            else self._column(name, predicate.kinds[name], truth)
            for name, truth in predicate.truths.items()
        ]
        return reduce(np.bitwise_and, parts) if parts else self.every

    def _column(self, name: str, kind: str, truth: TruthSet) -> Words:
        """Return the tuples whose value of a column is in a truth set."""
        if kind in _INDEXED:
            return self._in_truth(name, truth, lambda: self._tuples.columns[name])
        key = name, truth
        if key not in self._truths:
            self._truths[key] = self._texts_in(name, truth)
        return self._truths[key]

    def _residual(self, conjunct: Expression) -> Words:
        """Return the tuples at which a conjunct is true; if a part of it fails, it is evaluated, and fails, whole."""
        try:
            return self._outcome(conjunct)[0]
        except Exception:
            return self._evaluated(self._tuples.value(conjunct))[0]

    def _outcome(self, condition: Expression) -> Outcome:
        text = text_of(condition)
        if text not in self._outcomes:
            self._outcomes[text] = self._work_out(condition)
        return self._outcomes[text]

    def _work_out(self, condition: Expression) -> Outcome:
        function = condition.function if isinstance(condition, Call) else ""
        if isinstance(condition, Call) and function in ("and", "or"):
            parts = [self._outcome(argument) for argument in condition.arguments]
            all_of, any_of = (np.bitwise_and, np.bitwise_or) if function == "and" else (np.bitwise_or, np.bitwise_and)
            return reduce(all_of, (true for true, _ in parts)), reduce(any_of, (false for _, false in parts))
        if isinstance(condition, Call) and function == "not":
            true, false = self._outcome(condition.arguments[0])
            return false, true
        try:
            return self._compared(condition)
        except NotIndexable:
            return self._evaluated(self._value(condition))

    def _compared(self, atom: Expression) -> Outcome:
        """Return the outcome of an expression compared with constants; NotIndexable for any other atom."""
        value = _compared_value(atom)
        true, false = outcomes(_with_stand_in(atom, value), value.type)
        text = text_of(value)
        first, second = (self._in_truth(text, truth, lambda: self._value(value)) for truth in (true, false))
        return first, second

    def _evaluated(self, values: pa.Array) -> Outcome:
        values = values.cast(pa.bool_())  # the literal NULL has a type of its own
        true, is_known = self._bitmap(values, 1), self._known(values)
        if is_known is None:
            return true, ~true & self.every
        return true & is_known, ~true & is_known

    def _value(self, expression: Expression) -> pa.Array:
        """Return the value of an expression for each tuple; what reads one column of repeated texts, by these."""
        columns = set(typed_columns_of(expression))
        (column,) = columns if len(columns) == 1 else (None,)
        coded = None if column is None or column.type.kind != "VARCHAR" else self._coded(column)
        if column is None or coded is None:
            return evaluate(expression, self._tuples.columns, self._tuples.length)
        texts, codes = coded
        values = evaluate(expression, {column.name: texts}, len(texts))
        return values.take(pa.array(codes))

    def _in_truth(self, text: str, truth: TruthSet, value: Callable[[], pa.Array]) -> Words:
        """Return the tuples at which numbers, known by their text, are in a truth set."""
        key = text, truth
        if key not in self._truths:
            if text not in self._numbers:
                array = value()
                self._numbers[text] = numeric(array), self._known(array)
            numbers, is_known = self._numbers[text]
            words = self._in_stretches(numbers, truth)
            if is_known is not None:
                words = words & is_known | (~is_known & self.every if truth.null else np.uint64(0))
            self._truths[key] = words
        return self._truths[key]

    def _in_stretches(self, numbers: Numbers, truth: TruthSet) -> Words:
        stretches = _stretches(truth)
        if stretches == [(None, None)]:
            return self.every
        if len(stretches) > _FEW_STRETCHES:
            kind = np.float64 if numbers.dtype.kind == "f" else np.int64
            cell = np.searchsorted(np.asarray(truth.boundaries, dtype=kind), numbers, side="right").astype(np.int32)
            return self._looked_up(cell, np.array(truth.truths, dtype=np.uint8))
        words = np.zeros(self._words, dtype=np.uint64)
        for low, high in stretches:
            if numbers.dtype.kind == "f":
                kernels.add_double_range(words, numbers, -np.inf if low is None else low, high or 0.0, high is None)
                continue
            limits = np.iinfo(numbers.dtype)
            first = limits.min if low is None else max(low, limits.min)
            last = limits.max if high is None else min(high - 1, limits.max)
            if first <= last:
                kernels.add_range(words, numbers, numbers.dtype.type(first), numbers.dtype.type(last))
        return words

    def _texts_in(self, name: str, truth: TruthSet) -> Words:
        """Return the tuples whose text in a column is in a truth set."""
        dimension = Dimension(name, VARCHAR.kind, truth.boundaries)
        table = truth.mask_over(truth.boundaries).view(np.uint8)
        coded = self._coded(Column(name, VARCHAR))
        if coded is None:
            return self._looked_up(dimension.cells_of(self._tuples), table)
        texts, codes = coded
        return self._looked_up(codes, table[dimension.cells_of(Tuples({name: texts}, len(texts)))])

    def _coded(self, column: Column) -> tuple[pa.Array, Places] | None:
        """Return the different texts of a column and the number of each tuple's; None where they hardly repeat."""
        if column.name not in self._texts:
            self._texts[column.name] = self._code(column)
        return self._texts[column.name]

    def _code(self, column: Column) -> tuple[pa.Array, Places] | None:
        array = self._tuples.columns[column.name]
        if pa.types.is_dictionary(array.type) or len(array) < 2 * _SAMPLE:
            return None
        step = len(array) // _SAMPLE
        sample = array.take(pa.array(np.arange(_SAMPLE) * step))
        if _REPEATED * len(sample.unique()) > _SAMPLE:
            return None
        digits = self._tuples.key(column).digits
        if digits.dictionary is None or _REPEATED * digits.span > len(array):
            return None
        return digits.dictionary.values, digits.numbers.astype(np.int32, copy=False)

    def _looked_up(self, numbers: Places, table: Numbers) -> Words:
        words = np.empty(self._words, dtype=np.uint64)
        kernels.bits_of_table(words, numbers, table)
        return words

    def _known(self, array: pa.Array) -> Words | None:
        """Return the tuples at which a column is not NULL; None for all."""
        return self._bitmap(array, 0) if array.null_count else None

    def _bitmap(self, array: pa.Array, buffer: int) -> Words:
        """Return a bitmap of Arrow's: of truth values, which may be anything at NULL, or of those that are no NULL."""
        if array.offset % 8:
            array = pa.concat_arrays([array, array[:0]])
        first, count = array.offset // 8, -(-len(array) // 8)
        words = np.zeros(self._words, dtype=np.uint64)
        words.view(np.uint8)[:count] = np.frombuffer(array.buffers()[buffer], dtype=np.uint8)[first : first + count]
        return words & self.every

    def _packed(self, holds: Numbers) -> Words:
        bits = np.packbits(holds, bitorder="little")
        return np.frombuffer(bits.tobytes() + bytes(-len(bits) % 8), dtype=np.uint64)


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


def _stretches(truth: TruthSet) -> list[tuple[Any, Any]]:
    """Return the stretches ``low <= v < high`` at which a truth set is true; None stands for no bound."""
    bounds = [None, *truth.boundaries, None]
    return [(low, high) for low, high, holds in zip(bounds, bounds[1:], truth.truths, strict=False) if holds]
