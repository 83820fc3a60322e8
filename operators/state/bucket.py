"""Buckets: read-only partial aggregates that source tasks make and partitions keep (thesis 5.3.1.1).

A bucket belongs to one operator, one cell space and one key group. It holds an *entry* for each slice, cell and key
that has tuples; entries are ordered by slice, so it is the buckets of several slices side by side. Where most cells
have tuples of most keys it is *full*: it has an entry for each cell and key, in their order, and need not say which. It
explains itself: what its cells and keys are travels with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from braid.operators.aggregation.slice_tree import Level, level_above
from braid.operators.arrays import Numbers
from braid.operators.predicates.cells import Cells, cells_from_arrow
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.keys import Digits, key_digits
from braid.operators.state.packed_sums import PackedSums, WithPacked, arrays_of
from braid.sources.core.columns import one_array

_PACKED = "packed"


@dataclass(frozen=True)
class Bucket:
    """Entries, and what they mean.

    ``slices``, shape (slices, 2), are the slices that occur (µs), ascending; the entries of slice i are those in
    ``[starts[i], starts[i + 1])``, and ``latest[i]`` is the greatest event time in it, whichever query selected it.
    ``places`` are the cell and the key of each entry, numbers of the ``cells`` and of the rows of ``keys``; None for a
    full bucket, whose slices each have all keys of the first cell, then those of the next. ``components`` maps names to
    one number per entry (:mod:`braid.operators.state.components`), neutral where there are no tuples; the count and a
    sum may be packed (:class:`~braid.operators.state.packed_sums.WithPacked`). ``dictionaries`` maps measures to what
    is behind their ranks. ``space`` names the cell space; ``epoch`` is the one in which the bucket was made.
    """

    operator: str
    space: SpaceKey
    epoch: int
    cells: Cells
    slices: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]
    places: tuple[Numbers, Numbers] | None
    keys: pa.Table
    components: Mapping[str, Numbers]
    dictionaries: Mapping[str, pa.Array]

    def component(self, name: str) -> Numbers:
        """Return one number per entry; a count that was left out is that of all tuples."""
        numbers = self.components.get(name)
        return self.components[COUNT_NAME] if numbers is None else numbers

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.starts[-1])

    @property
    def is_full(self) -> bool:
        """Whether each slice has an entry for each cell and key."""
        return self.places is None

    @cached_property
    def cell(self) -> Numbers:
        """The cell of each entry."""
        if self.places is not None:
            return self.places[0]
        return np.tile(np.repeat(np.arange(self.cells.count, dtype=np.int32), self.keys.num_rows), len(self.slices))

    @cached_property
    def key(self) -> Numbers:
        """The key of each entry."""
        if self.places is not None:
            return self.places[1]
        return np.tile(np.arange(self.keys.num_rows, dtype=np.int32), self.cells.count * len(self.slices))

    @cached_property
    def key_digits(self) -> list[Digits]:
        """Its keys as numbers, kept because window after window unites them with those of other buckets."""
        return key_digits(self.keys)

    @cached_property
    def above(self) -> Level | None:
        """Its slices added up in stretches; None where that would not make entries fewer."""
        return level_above(self, self.cells.count, self.keys.num_rows)

    @cached_property
    def nbytes(self) -> int:
        """The size of the data in memory."""
        arrays = [self.slices, self.starts, self.latest, *(self.places or ()), *arrays_of(self.components)]
        return sum(a.nbytes for a in arrays) + int(self.keys.nbytes + self.cells.nbytes)

    def serialize(self) -> bytes:
        """Return the bucket as Arrow IPC streams after each other: slices, cells, keys, dictionaries, entries."""
        header: dict[str, Any] = {
            "operator": self.operator,
            "dimensions": self.space.dimensions,
            "has_extremes": self.space.has_extremes,
            "is_scattered": self.space.is_scattered,
            "epoch": self.epoch,
            "dictionaries": list(self.dictionaries),
        }
        columns: dict[str, Any] = {}
        components = self.components
        if isinstance(components, WithPacked):
            packed = components.packed
            header["packed"] = [packed.name, packed.bits, packed.least]
            columns[_PACKED], components = packed.numbers, components.others
        slices = pa.table(
            {
                "start": self.slices[:, 0],
                "end": self.slices[:, 1],
                "entries": np.diff(self.starts),
                "latest": self.latest,
            }
        ).replace_schema_metadata({b"bucket": orjson.dumps(header)})
        if self.places is not None:
            cell, key = self.places
            columns |= {"cell": short(cell, self.cells.count), "key": short(key, self.keys.num_rows)}
        for name, numbers in components.items():
            if self.places is None or name != COUNT_NAME or not _is_list(numbers):
                columns[name] = to_arrow(narrow(numbers) if self.is_full or name.startswith("count(") else numbers)
        entries = pa.table(columns)
        dictionaries = [pa.table({"value": values}) for values in self.dictionaries.values()]
        sink = pa.BufferOutputStream()
        for table in (slices, self.cells.to_arrow(), self.keys, *dictionaries, entries):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> Bucket:
        """Read what :meth:`serialize` wrote; numbers are not copied."""
        source = pa.BufferReader(data)

        def table() -> pa.Table:
            return pa.ipc.open_stream(source).read_all()

        slices = table()
        header = orjson.loads(slices.schema.metadata[b"bucket"])
        cells, keys = cells_from_arrow(table()), table()
        dictionaries = {name: one_array(table().column(0)) for name in header["dictionaries"]}
        entries = table()
        columns = {name: flat(entries.column(name)) for name in entries.column_names}
        components: Mapping[str, Numbers] = columns
        if "packed" in header:
            name, bits, least = header["packed"]
            components = WithPacked(PackedSums(name, columns.pop(_PACKED), bits, least), columns)
        else:
            columns.setdefault(COUNT_NAME, np.ones(entries.num_rows, dtype=np.int32))
        places = (columns.pop("cell"), columns.pop("key")) if "cell" in columns else None
        return cls(
            operator=header["operator"],
            space=SpaceKey(tuple(header["dimensions"]), header["has_extremes"], header["is_scattered"]),
            epoch=header["epoch"],
            cells=cells,
            slices=np.stack([flat(slices.column("start")), flat(slices.column("end"))], axis=1),
            starts=np.concatenate([[0], np.cumsum(flat(slices.column("entries")))]),
            latest=flat(slices.column("latest")),
            places=places,
            keys=keys,
            components=components,
            dictionaries=dictionaries,
        )


def _is_list(counts: Numbers) -> bool:
    """Return whether every entry is one tuple; then counts are not written."""
    return len(counts) > 0 and int(counts.max()) == 1


def short(numbers: Numbers, count: int) -> Numbers:
    """Return numbers below ``count`` in two bytes if that is enough: what travels is mostly these."""
    return numbers.astype(np.int16) if count <= np.iinfo(np.int16).max else numbers


def narrow(numbers: Numbers) -> Numbers:
    """Return whole numbers in four bytes if that is enough."""
    limits = np.iinfo(np.int32)
    fits = numbers.dtype == np.int64 and len(numbers) and limits.min <= numbers.min() and numbers.max() <= limits.max
    return numbers.astype(np.int32) if fits else numbers


def to_arrow(numbers: Numbers) -> pa.Array:
    """Return numbers as an Arrow array; complex ones as pairs."""
    if numbers.dtype.kind != "c":
        return pa.array(numbers)
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(numbers).view(np.float64)), 2)


def flat(column: pa.ChunkedArray) -> Numbers:
    if pa.types.is_fixed_size_list(column.type):
        pairs = [np.asarray(chunk.flatten()) for chunk in column.chunks]
        return np.concatenate(pairs or [np.empty(0)]).view(np.complex128)
    if column.num_chunks == 1:
        return np.asarray(column.chunk(0))
    return column.to_numpy()
