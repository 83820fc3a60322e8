"""Tuples of one operator with their slices, keys and measures, and what adding them up asks about them.

It is worked out once for all cell spaces that tuples are added up in, and only when one of them asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.expressions import Expression
from braid.operators.failure_isolation import isolate_failures
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.components import Encoded
from braid.operators.state.keys import KeyCodes, encode_keys
from braid.operators.state.packed_sums import Packable, Short
from braid.operators.state.totals import argument_of
from braid.operators.tuples import Tuples

_SAMPLE = 4096
# the fullest slice and key is looked for among about so many tuples, in blocks
_BLOCK, _COUNTED = 1 << 12, 1 << 18
# columns of 16 bits have so many values
_SHORT_COLUMNS = 1 << 16


class EncodedMeasures:
    """The numbers that tuples add to measures, worked out once however many cell spaces ask."""

    def __init__(self, encode: Callable[[Measure], Encoded]) -> None:
        self._encode = encode
        self._encoded: dict[str, Encoded] = {}

    @classmethod
    def of_tuples(cls, tuples: Tuples) -> EncodedMeasures:
        """Take them from columns. What cannot be encoded is NULL, and the failures of ``tuples`` say why."""

        def encode(measure: Measure) -> Encoded:
            argument = argument_of(measure)
            failures: dict[str, str] = {}
            with isolate_failures([str(argument)], failures):
                return components.encode(measure, tuples.value(argument))
            tuples.failures.update(failures)
            return components.encode(measure, pa.nulls(tuples.length, argument.type.arrow))

        return cls(encode)

    def of(self, measures: Iterable[Measure]) -> dict[Measure, Encoded]:
        """Return the numbers of some measures."""
        for measure in measures:
            if measure.name not in self._encoded:
                self._encoded[measure.name] = self._encode(measure)
        return {measure: self._encoded[measure.name] for measure in measures}

    def take(self, rows: npt.NDArray[np.int32]) -> EncodedMeasures:
        """Return those of some of the tuples."""
        return EncodedMeasures(lambda measure: self.of([measure])[measure].take(rows))


@dataclass(frozen=True)
class SlicedTuples:
    """Tuples of one operator with their slices and keys; ``latest`` is the greatest event time of each slice (µs).

    All of them are added up in so many ``spaces``.
    """

    measures: EncodedMeasures
    slices: npt.NDArray[np.int64]
    slice_of: npt.NDArray[np.int32]
    latest: npt.NDArray[np.int64]
    keys: KeyCodes
    spaces: int = 1

    @property
    def length(self) -> int:
        """How many tuples there are."""
        return len(self.slice_of)

    def take(self, rows: npt.NDArray[np.int32]) -> SlicedTuples:
        """Return some of the tuples, with the same slices and keys."""
        keys = replace(self.keys, codes=kernels.take(self.keys.codes, rows))
        several = len(self.slices) > 1
        slice_of = kernels.take(self.slice_of, rows) if several else np.zeros(len(rows), dtype=np.int32)
        return SlicedTuples(self.measures.take(rows), self.slices, slice_of, self.latest, keys)

    @cached_property
    def column(self) -> npt.NDArray[np.int32]:
        """Each tuple's place in an array of shape (slices, keys), shape (tuples,); only if that is not too large."""
        if len(self.slices) == 1:
            return self.keys.codes
        column = np.empty(self.length, dtype=np.int32)
        kernels.place(column, self.slice_of, self.keys.codes, np.int32(self.keys.count))
        return column

    def short(self, packable: Packable) -> Short | None:
        """Return `column` and the numbers to add there in 16 bits; None if they do not fit, or are used just once.

        Loops that add tuples up wait for memory most of the time: with half of it to read they take a seventh less.
        """
        if self.spaces == 1 or len(self.slices) * self.keys.count > _SHORT_COLUMNS or not packable.is_short:
            return None
        if packable.name not in self._short:
            self._short[packable.name] = packable.numbers.astype(np.int16)
        return self._short_column, self._short[packable.name]

    @cached_property
    def _short_column(self) -> npt.NDArray[np.uint16]:
        return self.column.astype(np.uint16)

    @cached_property
    def _short(self) -> dict[str, npt.NDArray[np.int16]]:
        return {}

    @cached_property
    def fullest_column(self) -> float:
        """About how many tuples the slice and key with most of them has, by blocks of tuples spread over all."""
        blocks, step = self.length // _BLOCK, max(1, self.length // _COUNTED)
        sample = self.column[: blocks * _BLOCK].reshape(blocks, _BLOCK)[::step].ravel() if blocks else self.column
        counts = np.zeros(len(self.slices) * self.keys.count, dtype=np.int64)
        kernels.count(counts, sample)
        return float(counts.max()) / len(sample) * self.length

    @cached_property
    def bounds(self) -> npt.NDArray[np.int64] | None:
        """Where the tuples of each slice begin, one end more; None if slices do not follow each other."""
        slices = len(self.slices)
        if slices == 1:
            return np.array([0, self.length])
        if not kernels.ascends(self.slice_of):
            return None
        return np.searchsorted(self.slice_of, np.arange(slices + 1))

    @cached_property
    def by_group(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The tuples ordered by key group and slice, and where those of each (group, slice) begin; one end more."""
        groups, slices = len(self.keys.group_starts) - 1, len(self.slices)
        group_of_key = np.repeat(np.arange(groups, dtype=np.int32), np.diff(self.keys.group_starts))
        place = kernels.take(group_of_key, self.keys.codes) * np.int32(slices) + self.slice_of
        order, starts = np.empty(len(place), dtype=np.int32), np.zeros(groups * slices + 1, dtype=np.int64)
        kernels.order_by_code(order, starts, place)
        return order, starts

    def ordered(self, name: str, numbers: Numbers) -> Numbers:
        """Return the numbers of the tuples in the order of `by_group`; equal names must stand for equal numbers."""
        if name not in self._ordered:
            self._ordered[name] = kernels.take(numbers, self.by_group[0])
        return self._ordered[name]

    @cached_property
    def _ordered(self) -> dict[str, Numbers]:
        return {}

    @cached_property
    def sample(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """A sample, one tuple of each of many stretches: its position, and its place in an array (slices, keys)."""
        length = self.length
        starts = np.arange(min(length, _SAMPLE)) * length // min(length, _SAMPLE)
        widths = np.diff(starts, append=length)
        positions = starts + np.random.default_rng(0).integers(0, widths)
        return positions, self.slice_of[positions].astype(np.int64) * self.keys.count + self.keys.codes[positions]

    @classmethod
    def of(
        cls,
        tuples: Tuples,
        times: npt.NDArray[np.int64],
        measures: EncodedMeasures,
        slices: npt.NDArray[np.int64],
        slice_of: npt.NDArray[np.int32],
        keys: Sequence[Expression],
        groups: int,
        salt: str,
        hashed: Sequence[int] | None = None,
        spaces: int = 1,
    ) -> SlicedTuples:
        """Number the keys of tuples whose slices are known; groups depend on the keys ``hashed``, None for all."""
        latest = np.full(len(slices), np.iinfo(np.int64).min)
        if len(slices) == 1:
            latest[0] = times.max()
        else:
            kernels.greatest(latest, slice_of, times)
        codes = encode_keys([tuples.key(key) for key in keys], tuples.length, groups, salt, hashed)
        return cls(measures, slices, slice_of, latest, codes, spaces)
