"""The bitmaps of conditions for a chunk of tuples, each worked out once, whichever queries ask for it.

Equal expressions that atoms compare are evaluated once. Where the texts of a column repeat, what reads that column
alone is evaluated once for each of its values.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Numbers, Places, TupleBits
from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression
from braid.operators.predicates.bitmaps import Atom, InTruth, TextsIn, Value
from braid.operators.predicates.dimension import numeric
from braid.operators.tuples import Tuples
from braid.sources.core.schema import VARCHAR

_BITS = 64
# a truth set of so many stretches is looked up, one with fewer compares with each
_FEW_STRETCHES = 24
# texts repeat where so many in a sample have at most half as many values
_SAMPLE, _REPEATED = 1024, 2
_LIMITS = {np.dtype(kind): np.iinfo(kind) for kind in (np.int8, np.int16, np.int32, np.int64)}


class Conditions:
    """The bitmaps of a chunk of tuples, of shape (words,), 64 tuples a word; ``bits`` has those of atoms."""

    def __init__(self, tuples: Tuples) -> None:
        self.bits: dict[Atom, TupleBits] = {}
        self._tuples = tuples
        self._words = -(-tuples.length // _BITS)
        self._outcomes: dict[Value, tuple[TupleBits, TupleBits]] = {}
        self._columns: dict[Value, tuple[Numbers, TupleBits | None]] = {}
        self._texts: dict[str, tuple[pa.Array, Places] | None] = {}

    @cached_property
    def every(self) -> TupleBits:
        """The bitmap of all tuples."""
        bits = np.packbits(np.ones(self._tuples.length, dtype=np.bool_), bitorder="little")
        return np.frombuffer(bits.tobytes() + bytes(-len(bits) % 8), dtype=np.uint64)

    def true_of(self, conjunct: Expression) -> TupleBits:
        """Return the tuples at which a conjunct is true; tuples' ``failures`` tell if it cannot be evaluated."""
        return self._evaluated(self._tuples.value(conjunct))[0]

    def outcomes_of(self, condition: Value) -> tuple[TupleBits, TupleBits]:
        """Return the tuples at which a condition is true, and those at which it is false; at the rest it is NULL."""
        if condition not in self._outcomes:
            self._outcomes[condition] = self._evaluated(self._value(condition))
        return self._outcomes[condition]

    def in_truth(self, atom: InTruth) -> TupleBits:
        """Return the tuples at which a number is in a truth set.

        A column is there anyway. Any other value is compared by all its atoms at once, and not kept: its memory, which
        is in the cache still, is that of the next value.
        """
        value = atom.value
        if value.expression is not None:
            compared = self._compared(self._value(value))
            self.bits.update({each: self._in_stretches(*compared, each) for each in value.atoms})
            return self.bits[atom]
        if value not in self._columns:
            self._columns[value] = self._compared(self._value(value))
        return self._in_stretches(*self._columns[value], atom)

    def texts_in(self, atom: TextsIn) -> TupleBits:
        """Return the tuples whose text in a column is in a truth set."""
        coded = self._coded(atom.column)
        if coded is None:
            return self._looked_up(atom.dimension.cells_of(self._tuples), atom.table)
        texts, codes = coded
        cells = atom.dimension.cells_of(Tuples({atom.column: texts}, len(texts)))
        return self._looked_up(codes, atom.table[cells])

    def _evaluated(self, values: pa.Array) -> tuple[TupleBits, TupleBits]:
        values = values.cast(pa.bool_())  # the literal NULL has a type of its own
        true, is_known = self._bitmap(values, 1), self._known(values)
        if is_known is None:
            return true, ~true & self.every
        return true & is_known, ~true & is_known

    def _value(self, value: Value) -> pa.Array:
        """Return a value for each tuple; what reads one column of repeated texts, by these."""
        if value.expression is None:
            return self._tuples.columns[value.name]
        coded = None if value.text is None else self._coded(value.text)
        if value.text is None or coded is None:
            return evaluate(value.expression, self._tuples.columns, self._tuples.length)
        texts, codes = coded
        return evaluate(value.expression, {value.text: texts}, len(texts)).take(pa.array(codes))

    def _compared(self, array: pa.Array) -> tuple[Numbers, TupleBits | None]:
        """Return values as ordered numbers, and the tuples at which they are not NULL, None for all."""
        return numeric(array), self._known(array)

    def _in_stretches(self, numbers: Numbers, is_known: TupleBits | None, atom: InTruth) -> TupleBits:
        words = self._among(numbers, atom)
        if is_known is None:
            return words
        return words & is_known | (~is_known & self.every if atom.truth.null else np.uint64(0))

    def _among(self, numbers: Numbers, atom: InTruth) -> TupleBits:
        if atom.stretches == [(None, None)]:
            return self.every
        if len(atom.stretches) > _FEW_STRETCHES:
            kind = np.float64 if numbers.dtype.kind == "f" else np.int64
            cell = np.searchsorted(np.asarray(atom.truth.boundaries, dtype=kind), numbers, side="right")
            return self._looked_up(cell.astype(np.int32), np.array(atom.truth.truths, dtype=np.uint8))
        words, limits = np.zeros(self._words, dtype=np.uint64), _LIMITS.get(numbers.dtype)
        for low, high in atom.stretches:
            if limits is None:
                kernels.add_double_range(words, numbers, -np.inf if low is None else low, high or 0.0, high is None)
                continue
            first = limits.min if low is None else max(low, limits.min)
            last = limits.max if high is None else min(high - 1, limits.max)
            if first <= last:
                kernels.add_range(words, numbers, numbers.dtype.type(first), numbers.dtype.type(last))
        return words

    def _coded(self, column: str) -> tuple[pa.Array, Places] | None:
        """Return the different texts of a column and the number of each tuple's; None where they hardly repeat."""
        if column not in self._texts:
            self._texts[column] = self._code(column)
        return self._texts[column]

    def _code(self, column: str) -> tuple[pa.Array, Places] | None:
        array = self._tuples.columns[column]
        if pa.types.is_dictionary(array.type) or len(array) < 2 * _SAMPLE:
            return None
        step = len(array) // _SAMPLE
        sample = array.take(pa.array(np.arange(_SAMPLE) * step))
        if _REPEATED * len(sample.unique()) > _SAMPLE:
            return None
        digits = self._tuples.key(Column(column, VARCHAR)).digits
        if digits.dictionary is None or _REPEATED * digits.span > len(array):
            return None
        return digits.dictionary.values, digits.numbers.astype(np.int32, copy=False)

    def _looked_up(self, numbers: Places, table: Numbers) -> TupleBits:
        words = np.empty(self._words, dtype=np.uint64)
        kernels.bits_of_table(words, numbers, table)
        return words

    def _known(self, array: pa.Array) -> TupleBits | None:
        """Return the tuples at which a column is not NULL; None for all."""
        return self._bitmap(array, 0) if array.null_count else None

    def _bitmap(self, array: pa.Array, buffer: int) -> TupleBits:
        """Return a bitmap of Arrow's: of truth values, which may be anything at NULL, or of those that are no NULL."""
        if array.offset % 8:
            array = pa.concat_arrays([array, array[:0]])
        first, count = array.offset // 8, -(-len(array) // 8)
        words = np.zeros(self._words, dtype=np.uint64)
        words.view(np.uint8)[:count] = np.frombuffer(array.buffers()[buffer], dtype=np.uint8)[first : first + count]
        return words & self.every
