"""Dimensions: one column, or one residual predicate, whose values are cut into cells at the queries' boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators import kernels
from braid.operators.arrays import utf8_of
from braid.operators.expressions import Expression
from braid.operators.tuples import Tuples
from braid.sources.core.decimals import words_of

Cells = npt.NDArray[np.int32]

# so many boundaries are compared with each value one by one
_FEW = {"i": 3, "f": 4}
_STRETCHES_BITS = 16
# boundaries are far from all others where the others, all but this part at each end, have a span so many times smaller
_PART_AT_AN_END, _FAR = 64, 8
_MAX_SPAN = 1 << 62


@dataclass(frozen=True)
class CellLookup:
    """The cells of tuples, not looked up yet: that of value v is at ``v - least`` in ``table``, or at its nearest end.

    The values are those of all tuples, one after the other, in one or more ``pieces``.
    """

    pieces: tuple[npt.NDArray[Any], ...]
    least: int
    table: Cells

    @classmethod
    def of(cls, cell: Cells, cells: int) -> CellLookup:
        """Take the cell of each tuple, one of so many ``cells`` or -1, as it is."""
        return cls((cell,), -1, np.arange(-1, cells, dtype=np.int32))

    def mapped(self, numbers: Cells) -> CellLookup:
        """Return the lookup of other cells, given the new number of each cell; -1 stays -1."""
        return CellLookup(self.pieces, self.least, np.where(self.table >= 0, numbers[self.table], -1).astype(np.int32))

    def cells(self) -> Cells:
        """Look the cells of all tuples up, shape (tuples,)."""
        cells = np.empty(sum(map(len, self.pieces)), dtype=np.int32)
        for part, values in self.by_piece(cells):
            kernels.look_up(part, values, self.least, self.table)
        return cells

    def cells_at(self, positions: npt.NDArray[np.int64]) -> Cells:
        """Look the cells of the tuples at some positions up, which ascend."""
        lengths = [len(values) for values in self.pieces]
        ends = np.cumsum(lengths)
        bounds = [0, *np.searchsorted(positions, ends).tolist()]
        within = positions - np.repeat(ends - lengths, np.diff(bounds))
        parts = [values[within[low:high]] for values, (low, high) in zip(self.pieces, pairwise(bounds), strict=True)]
        cells = np.empty(len(positions), dtype=np.int32)
        kernels.look_up(cells, np.concatenate(parts), self.least, self.table)
        return cells

    def between(self, low: int, high: int) -> list[tuple[int, int, npt.NDArray[Any]]]:
        """Return the pieces of the tuples ``[low, high)``: where each begins and ends, and its values."""
        pieces, first = [], 0
        for values in self.pieces:
            begin, end = max(low, first), min(high, first + len(values))
            if begin < end:
                pieces.append((begin, end, values[begin - first : end - first]))
            first += len(values)
        return pieces

    def by_piece(self, *arrays: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """Yield for each piece the part of each of the arrays, shape (tuples,), that belongs to it, and the piece."""
        first = 0
        for values in self.pieces:
            last = first + len(values)
            yield *(array[first:last] for array in arrays), values
            first = last


@dataclass(frozen=True, eq=False)
class Dimension:
    """Cell i holds the values v with ``boundaries[i - 1] <= v < boundaries[i]``; the cell after the last holds NULL.

    ``name`` is the column, or the text of the ``residual`` (values 0 and 1, never NULL).
    """

    name: str
    kind: str
    boundaries: tuple[Any, ...]
    residual: Expression | None = None

    @property
    def cell_count(self) -> int:
        """How many cells this dimension has."""
        return len(self.boundaries) + 2

    def lookup(self, tuples: Tuples) -> CellLookup | None:
        """Return how the cell of each tuple is looked up by its value; None where it is not as simple as that."""
        if self.kind not in ("INT", "BIGINT"):
            return None
        chunks = tuples.chunks(self.name)
        if any(chunk.null_count for chunk in chunks):
            return None
        pieces = tuple(map(np.asarray, chunks))
        close = self._close or self._around(pieces)
        return None if close is None else CellLookup(pieces, *close)

    def cells_of(self, tuples: Tuples) -> Cells:
        """Return the cell of each tuple, shape (tuples,)."""
        if self.residual is not None:
            outcome = tuples.value(self.residual).cast(pa.bool_())  # the literal NULL has a type of its own
            holds = np.asarray(pc.fill_null(outcome, False))
            return holds.astype(np.int32) * np.int32(len(self.boundaries))
        array = tuples.columns[self.name]
        if not self.boundaries:
            cells = np.zeros(len(array), dtype=np.int32)
        elif self.kind == "VARCHAR":
            cells = self._cells_of_texts(array)
        else:
            cells = self._cells_of_numbers(numeric(array))
        if array.null_count:
            cells[np.asarray(array.is_null())] = self.cell_count - 1
        return cells

    @cached_property
    def _sorted(self) -> npt.NDArray[Any]:
        return np.asarray(self.boundaries, dtype=np.float64 if self.kind == "DOUBLE" else np.int64)

    @cached_property
    def _close(self) -> tuple[int, Cells] | None:
        """The number before the first boundary, and the cells from it to the last one; None if they are far apart."""
        if not self.boundaries or abs(self.boundaries[0]) > _MAX_SPAN:
            return None
        first, last = int(self.boundaries[0]), int(self.boundaries[-1])
        if last - first >= 1 << _STRETCHES_BITS:
            return None
        return first - 1, self._table(first - 1, last + 1)

    def _around(self, pieces: Sequence[npt.NDArray[Any]]) -> tuple[int, Cells] | None:
        """Return a number below all values, and the cell of each number from there on; None if they are far apart.

        The last table is kept; its bounds are rounded so that it serves most tuples to come, too.
        """
        extents = [kernels.extent(piece) for piece in pieces if len(piece)]
        low, high = min((low for low, _ in extents), default=0), max((high for _, high in extents), default=0)
        if high - low >= 1 << _STRETCHES_BITS or max(abs(low), abs(high)) > _MAX_SPAN:
            return None
        step = 1 << (high - low).bit_length()
        bounds = low // step * step, (high // step + 1) * step
        if bounds not in self._tables:
            self._tables.clear()
            self._tables[bounds] = self._table(*bounds)
        return bounds[0], self._tables[bounds]

    @cached_property
    def _tables(self) -> dict[tuple[int, int], Cells]:
        return {}

    def _table(self, least: int, beyond: int) -> Cells:
        """Return the cell of each whole number from ``least`` on."""
        return np.searchsorted(self._sorted, np.arange(least, beyond, dtype=np.int64), side="right").astype(np.int32)

    def _cells_of_numbers(self, values: npt.NDArray[Any]) -> Cells:
        cells = np.zeros(len(values), dtype=np.int32)
        if len(self.boundaries) <= _FEW[values.dtype.kind]:
            kernels.count_few_boundaries(cells, self._sorted, values)
        elif values.dtype.kind == "f" and self._double_stretches is not None:
            kernels.count_double_boundaries(cells, self._sorted, *self._core, *self._double_stretches, values)
        elif values.dtype.kind == "i" and self._close is not None:
            kernels.look_up(cells, values, *self._close)
        elif values.dtype.kind == "i" and self._integer_stretches is not None:
            kernels.count_boundaries(cells, self._sorted, *self._core, *self._integer_stretches, values)
        else:
            return np.searchsorted(self._sorted, values, side="right").astype(np.int32)
        return cells

    @cached_property
    def _core(self) -> tuple[int, int]:
        """The first and the last of the boundaries among which values are found by stretches: all but a few far ones.

        One query may ask for a value that is far from all others: without this, these would lie in one stretch.
        """
        last = len(self.boundaries) - 1
        at_an_end = 1 + last // _PART_AT_AN_END
        span, core_span = (float(self._sorted[last - n]) - float(self._sorted[n]) for n in (0, at_an_end))
        return (at_an_end, last - at_an_end) if 0.0 < core_span < span / _FAR else (0, last)

    @cached_property
    def _integer_stretches(self) -> tuple[Cells, int] | None:
        """The cell at the start of each stretch of ``2 ** shift`` numbers, the last cell after them; and ``shift``.

        None where boundaries are so far apart that their difference overflows.
        """
        first, last = self._core
        span = int(self.boundaries[last]) - int(self.boundaries[first])
        if span >= _MAX_SPAN:
            return None
        shift = max(0, span.bit_length() - _STRETCHES_BITS)
        starts = self._sorted[first] + (np.arange((span >> shift) + 1, dtype=np.int64) << shift)
        cells = np.append(np.searchsorted(self._sorted, starts, side="right"), last + 1)
        return cells.astype(np.int32), shift

    @cached_property
    def _double_stretches(self) -> tuple[Cells, float] | None:
        """How many boundaries there are before each stretch of doubles, and in all; and how many stretches make up 1.

        None where that cannot be computed in doubles: boundaries are infinite, too far apart or too close.
        """
        first, last = self._core
        core = self._sorted[first : last + 1]
        with np.errstate(all="ignore"):
            scale = float(2**_STRETCHES_BITS / (core[-1] - core[0]))
            places = (core - core[0]) * scale
        if not (0.0 < scale < np.inf and np.isfinite(places).all()):
            return None
        stretches = places.astype(np.int64)
        boundaries_before = first + np.searchsorted(stretches, np.arange(stretches[-1] + 2))
        return boundaries_before.astype(np.int32), scale

    def _cells_of_texts(self, array: pa.Array) -> Cells:
        if pa.types.is_dictionary(array.type):
            cells = np.append(self._cells_of_texts(array.dictionary), np.int32(0))
            return cells[np.asarray(pc.fill_null(array.indices, len(array.dictionary)))]
        cells = np.empty(len(array), dtype=np.int32)
        shared, heads, table, starts, texts = self._texts
        value_starts, values = utf8_of(array)
        kernels.count_texts(cells, shared, heads, table, starts, texts, value_starts, values)
        return cells

    @cached_property
    def _texts(self) -> tuple[npt.NDArray[Any], ...]:
        """What :func:`kernels.count_texts` asks for: the boundaries and how to find those near a value."""
        texts = [text.encode(errors="surrogatepass") for text in self.boundaries]
        is_shared = [first == last for first, last in zip(texts[0], texts[-1], strict=False)]
        shared = texts[0][: [*is_shared, False].index(False)]
        heads = [
            int.from_bytes(text[len(shared) :][: kernels.HEAD_BYTES].ljust(kernels.HEAD_BYTES, b"\0")) for text in texts
        ]
        stretches = np.array([head >> _STRETCHES_BITS * 3 for head in heads])
        table = np.searchsorted(stretches, np.arange((1 << _STRETCHES_BITS) + 1)).astype(np.int32)
        starts = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        prefix, joined = (np.frombuffer(bytearray(text), dtype=np.uint8) for text in (shared, b"".join(texts)))
        return prefix, np.array(heads, dtype=np.uint64), table, starts, joined


def numeric(array: pa.Array) -> npt.NDArray[Any]:
    """Return ordered numbers for the values; what stands at NULLs does not matter."""
    if pa.types.is_boolean(array.type):
        return np.asarray(pc.fill_null(array, False)).astype(np.int32)
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_decimal(array.type):  # those with an index have so few digits that the lower of two words has all
        return words_of(array)[:, 0].copy()
    if array.null_count:
        array = pc.fill_null(array, 0)
    return np.asarray(array)
