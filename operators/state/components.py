"""Components: the numbers that slices keep of a measure, how they merge, and how they become the measure again.

Everything that is kept is an array of numbers that merges by addition, minimum or maximum, so one set of kernels serves
all types. COUNT and SUM of numbers are a component each, a sum of decimals one to four limbs of 32 bits; deviations
come from sums of values and of squares in double-double (:mod:`braid.operators.kernels.double_double`); minimum and
maximum of texts and of decimals beyond 64 bits are ranks in a sorted *dictionary* of the values that occur.
``count(x)`` says how many values were not NULL; where none was NULL it is left out, and equals ``count(*)``.
COUNT(DISTINCT x) has none: x is a key for it, and so for each aggregate that values can leave again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.kernels import double_double
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.state.keys import as_numbers
from braid.sources.core.decimals import WORD_DIGITS, nearest_doubles, words_of
from braid.sources.core.schema import ColumnType

COUNT_NAME = COUNT_ALL.name

# a sum of decimals of so many digits has one limb, or two, and then it has room for 2^31 of them; any has room in four
_ONE_LIMB, _TWO_LIMBS, MAX_LIMBS = 9, WORD_DIGITS, 4
LIMB_BITS = 32
_LIMB = 2**LIMB_BITS - 1
_BEYOND = 10**38
_DEVIATIONS = ("stddev_samp", "var_samp")


@dataclass(frozen=True)
class Component:
    """An array that slices keep; ``merge`` is "sum", "min" or "max". Sums of pairs are complex."""

    name: str
    merge: str
    dtype: np.dtype[Any]

    @property
    def neutral(self) -> Any:
        """The value that merging with anything leaves as it is."""
        return neutral(self.merge, self.dtype)


def neutral(merge: str, dtype: np.dtype[Any]) -> Any:
    """Return the neutral value of a way to merge."""
    if merge == "sum":
        return 0
    if dtype.kind == "f":
        return np.nan if merge == "min" else -np.inf  # NaN is greater than all else
    return np.iinfo(dtype).max if merge == "min" else np.iinfo(dtype).min


_INTEGER, _FLOAT, _PAIR = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.complex128)
COUNT = Component(COUNT_NAME, "sum", _INTEGER)


def count_name(measure: Measure) -> str:
    """Return the name of the component that counts the values that are not NULL."""
    return COUNT_NAME if measure.argument is None else f"count({measure.argument})"


def components_of(measure: Measure) -> tuple[Component, ...]:
    """Return the components of a measure without the counts."""
    if measure.argument is None or measure.function == "count" or measure.by_value:
        return ()
    kind = measure.argument.type.kind
    if measure.function in _DEVIATIONS:  # the same for both
        return tuple(Component(f"pairs({measure.argument})#{i}", "sum", _PAIR) for i in range(3))
    if measure.function == "sum" and kind == "DECIMAL":
        return tuple(
            Component(f"{measure.name}#{i}", "sum", _INTEGER) for i in range(_limbs_for(measure.argument.type))
        )
    return (Component(measure.name, measure.function, _FLOAT if kind == "DOUBLE" else _INTEGER),)


def names_of(measure: Measure) -> tuple[str, ...]:
    """Return the names of all numbers that a measure is decoded from."""
    if measure.by_value:
        return (measure.name,)
    return (count_name(measure), *(component.name for component in components_of(measure)))


def has_limbs(measure: Measure) -> bool:
    """Return whether the measure is a sum of decimals."""
    return measure.function == "sum" and measure.type.kind == "DECIMAL"


def _limbs_for(kind: ColumnType) -> int:
    return 1 if kind.precision <= _ONE_LIMB else 2 if kind.precision <= _TWO_LIMBS else MAX_LIMBS


def is_ranked(measure: Measure) -> bool:
    """Return whether the measure's component holds ranks in a dictionary."""
    kind = measure.type
    return measure.function in ("min", "max") and (kind.kind == "VARCHAR" or kind.precision > WORD_DIGITS)


def component_named(name: str, dtype: np.dtype[Any]) -> Component:
    """Return the component with this name; how it merges is in the name."""
    function = name.partition("(")[0]
    return Component(name, function if function in ("min", "max") else "sum", dtype)


@dataclass(frozen=True)
class Encoded:
    """A measure's argument as numbers, one per tuple, by component; ``valid`` is None when no tuple is NULL."""

    numbers: Mapping[str, Numbers]
    valid: npt.NDArray[np.int32] | None
    dictionary: pa.Array | None = None

    def extent(self, name: str) -> tuple[int, int, int]:
        """Return the least and the greatest of a component's whole numbers and their sum, which wraps at 64 bits."""
        if name not in self._extents:
            numbers = self.numbers[name]
            self._extents[name] = (*kernels.extent(numbers), kernels.total(numbers)) if len(numbers) else (0, 0, 0)
        return self._extents[name]

    def ascends(self, name: str) -> bool:
        """Return whether a component's numbers are whole and none is less than that of the tuple before."""
        if name not in self._ascending:
            numbers = self.numbers[name]
            self._ascending[name] = numbers.dtype.kind == "i" and kernels.ascends(numbers)
        return self._ascending[name]

    @cached_property
    def _ascending(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _extents(self) -> dict[str, tuple[int, int, int]]:
        return {}

    def take(self, rows: npt.NDArray[np.int32]) -> Encoded:
        """Return the numbers of some tuples."""
        numbers = {name: kernels.take(values, rows) for name, values in self.numbers.items()}
        valid = None if self.valid is None else kernels.take(self.valid, rows)
        return Encoded(numbers, valid, self.dictionary)


def encode(measure: Measure, column: pa.Array) -> Encoded:
    """Return the numbers of a measure with an argument; for NULL the neutral value."""
    assert measure.argument is not None
    valid = np.asarray(pc.is_valid(column)).astype(np.int32) if column.null_count else None
    components = components_of(measure)
    if not components:
        return Encoded({}, valid)
    kind = measure.argument.type.arrow
    if column.type != kind:
        column = column.cast(kind)
    if is_ranked(measure):
        numbers, dictionary = _ranks(column)
        return Encoded({components[0].name: _without_null(numbers, valid, components[0])}, valid, dictionary)
    if measure.function in _DEVIATIONS:
        values = _pairs(column)
        powers = (values, *double_double.squares(values))
        return Encoded(dict(zip((c.name for c in components), powers, strict=True)), valid)
    if has_limbs(measure):
        limbs = _limbs(column, len(components))
        return Encoded(dict(zip((c.name for c in components), limbs, strict=True)), valid)
    return Encoded({components[0].name: _without_null(_numbers_of(column), valid, components[0])}, valid)


def decode(measure: Measure, numbers: Mapping[str, Numbers | pa.Array], dictionary: pa.Array | None) -> pa.Array:
    """Return measures from the numbers that `names_of` names; NULL where there was no value.

    What is computed of values is there already.
    """
    kind = measure.type.arrow
    name = measure.name
    if measure.by_value:
        values = numbers[name]
        return values if isinstance(values, pa.Array) else pa.array(values)
    if measure.argument is None or measure.function == "count":
        return pa.array(numbers[names_of(measure)[0]])
    if measure.function in _DEVIATIONS:
        count = numbers[count_name(measure)]
        total, high, low = (numbers.get(component.name) for component in components_of(measure))
        assert total is not None
        assert high is not None
        # slices that an older version kept have squares in one part
        variance = double_double.variance(count, total, high, np.zeros_like(high) if low is None else low)
        return pa.array(np.sqrt(variance) if measure.function == "stddev_samp" else variance, mask=count < 2)
    valid = numbers[count_name(measure)] > 0
    nulls = None if valid.all() else ~valid
    if is_ranked(measure):
        if dictionary is None or not len(dictionary):
            return pa.nulls(len(valid), kind)
        return dictionary.take(pa.array(np.where(valid, numbers[name], 0), mask=nulls)).cast(kind)
    if pa.types.is_decimal(kind):
        return decimals([numbers[c.name] for c in components_of(measure)], valid, kind)
    values = numbers[name] if nulls is None else np.where(valid, numbers[name], 0)
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=nulls)
    if pa.types.is_date32(kind):
        return pa.array(values.astype(np.int32), mask=nulls).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, mask=nulls).view(kind)
    return pa.array(values.astype(kind.to_pandas_dtype()), type=kind, mask=nulls, from_pandas=False)


def unite(dictionaries: Sequence[pa.Array]) -> tuple[pa.Array, list[npt.NDArray[np.int64]]]:
    """Return one sorted dictionary for several, and for each of them the new rank of each old one."""
    values = pa.concat_arrays(list(dictionaries)).unique()
    united = values.take(pc.sort_indices(values))
    return united, [np.asarray(pc.index_in(old, value_set=united)).astype(np.int64) for old in dictionaries]


def renumber_ranks(ranks: Numbers, new_ranks: npt.NDArray[np.int64], component: Component) -> Numbers:
    """Replace ranks by their new ones; the neutral value stays."""
    if not len(new_ranks):
        return ranks
    is_rank = ranks != component.neutral
    return np.where(is_rank, new_ranks[np.where(is_rank, ranks, 0)], component.neutral)


def _pairs(column: pa.Array) -> double_double.Pairs:
    if pa.types.is_integer(column.type):
        return double_double.whole_pairs(np.asarray(column.cast(pa.int64()).fill_null(0)))
    doubles = nearest_doubles(column) if pa.types.is_decimal(column.type) else column.cast(pa.float64())
    return double_double.pairs(np.asarray(doubles.fill_null(0.0)))


def _numbers_of(column: pa.Array) -> Numbers:
    if pa.types.is_decimal(column.type):
        return words_of(column)[:, 0].copy()
    column = as_numbers(column)
    return np.asarray(pc.fill_null(column, 0) if column.null_count else column)


def _without_null(numbers: Numbers, valid: npt.NDArray[np.int32] | None, component: Component) -> Numbers:
    if valid is None or (component.merge == "sum" and component.neutral == 0):
        return numbers
    return np.where(valid, numbers.astype(component.dtype), component.neutral)


def _ranks(column: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.zeros(max(1, len(order)), dtype=np.int64)
    ranks[np.asarray(order)] = np.arange(len(order))
    return ranks[np.asarray(pc.fill_null(encoded.indices, 0))], encoded.dictionary.take(order)


def _limbs(column: pa.Array, limbs: int) -> list[npt.NDArray[np.int64]]:
    """Split decimals into limbs of 32 bits; the most significant one is signed and has all bits that are left."""
    filled = column.cast(pa.decimal128(38, column.type.scale))
    if filled.null_count:
        filled = pc.fill_null(filled, pa.scalar(Decimal(0), filled.type))
    low, high = words_of(filled).T
    if limbs == 1:
        return [low.copy()]
    if limbs == 2:
        return [low & _LIMB, low >> LIMB_BITS]
    return [low & _LIMB, low >> LIMB_BITS & _LIMB, high & _LIMB, high >> LIMB_BITS]


def decimals(limbs: Sequence[Numbers], valid: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Put the limbs of sums together; a sum beyond 38 digits is NULL, and so is one that is not ``valid``."""
    digits: list[Numbers] = []
    carry = np.zeros(len(valid), dtype=np.int64)
    for place in range(MAX_LIMBS):
        carry = carry + limbs[place] if place < len(limbs) else carry
        digits.append(carry & _LIMB)
        carry = carry >> LIMB_BITS
    low, high = (digits[place] | digits[place + 1] << LIMB_BITS for place in (0, 2))
    unsigned = low.view(np.uint64)
    above, below = ((bound >> 64, bound & 2**64 - 1) for bound in (_BEYOND, -_BEYOND))
    fits = valid & (carry == high >> 63)  # beyond that it has more than 128 bits
    fits &= (high < above[0]) | (high == above[0]) & (unsigned < np.uint64(above[1]))
    fits &= (high > below[0]) | (high == below[0]) & (unsigned > np.uint64(below[1]))
    words = pa.py_buffer(np.stack([low, high], axis=1))
    sums = pa.Array.from_buffers(kind, len(valid), [None, words])
    return sums if fits.all() else pc.if_else(pa.array(fits), sums, pa.scalar(None, kind))
