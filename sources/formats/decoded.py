"""What decoding a body gives, and how converted columns become it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.schema import Schema
from braid.sources.formats.computed import compute
from braid.sources.formats.limits import SHOWN_FAULTS, DecodingLimits

_PLACE = re.compile(r"^(line|element|row) \d+")
"""What the detail of a malformed input begins with."""
_SHOWN_CHARACTERS = 100


class MalformedLine(NamedTuple):
    """An input that does not fit the schema: its number (from 1), what is wrong, and the input as text."""

    line: int
    detail: str
    raw: str


@dataclass(frozen=True)
class Decoded:
    """The tuples of a body, in the Arrow schema asked for, and the inputs that are none, both in order.

    Where an input can hold several tuples, ``origins`` says of which each is: the number of the input, from 0.
    ``missing`` names the columns of the stream that CSV lacks, which are NULL in all tuples; where there are some,
    ``unknown`` are its names that are no column's. Of other formats :mod:`braid.sources.formats.names_of_bodies` says
    which names are listed.
    """

    tuples: pa.RecordBatch
    malformed: tuple[MalformedLine, ...]
    origins: np.ndarray | None = None
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def numbered_from(self, first: int) -> Decoded:
        """Return the same of an input that is a piece: its first line, element or row has number ``first``."""
        if first == 1:
            return self
        lines = (fault.line + first - 1 for fault in self.malformed)
        faults = (
            MalformedLine(line, _PLACE.sub(rf"\1 {line}", fault.detail, count=1), fault.raw)
            for line, fault in zip(lines, self.malformed, strict=True)
        )
        return replace(self, malformed=tuple(faults))

    def origins_of(self, inputs: int) -> np.ndarray:
        """Return for each tuple the number of its input, of ``inputs`` many, from 0; ascending int64."""
        if self.origins is not None:
            return self.origins
        return np.delete(np.arange(inputs), [fault.line - 1 for fault in self.malformed])


@dataclass(frozen=True)
class DecodedColumn:
    """One converted column: a value for every input, and for the inputs that do not fit (NULL there) why not."""

    values: pa.Array
    errors: Mapping[int, str]


def assemble(
    schema: Schema,
    columns: Sequence[DecodedColumn],
    unreadable: Mapping[int, str],
    place: Callable[[int], str],
    line: Callable[[int], int],
    raws: Callable[[Sequence[int]], Sequence[str]],
) -> Decoded:
    """Put converted columns together and set the inputs aside that do not fit.

    ``columns`` follow ``schema.read`` and are equally long; computed ones are added. ``unreadable`` maps inputs that
    have no columns at all (index from 0) to the reason. ``place(i)`` names an input in messages ("line 3"), ``line(i)``
    numbers it, and ``raws`` gives the texts of some, in ascending order. Of several faults of one input the first
    column's is told.
    """
    faults = {i: f"{place(i)}{reason}" for i, reason in unreadable.items()}
    columns = with_computed(schema, columns)
    for column in columns:
        for i, reason in column.errors.items():
            faults.setdefault(i, f"{place(i)}: {reason}")
    for i, reason in null_faults(schema, columns):
        faults.setdefault(i, f"{place(i)}: {reason}")
    tuples = pa.RecordBatch.from_arrays([c.values for c in columns], schema=schema.arrow)
    if faults:
        fits = np.ones(tuples.num_rows, dtype=bool)
        fits[list(faults)] = False
        tuples = tuples.filter(pa.array(fits))
    wrong = sorted(faults)
    texts = raws(wrong) if wrong else ()
    return Decoded(tuples, tuple(MalformedLine(line(i), faults[i], text) for i, text in zip(wrong, texts, strict=True)))


def null_faults(schema: Schema, columns: Sequence[DecodedColumn]) -> Iterator[tuple[int, str]]:
    """Yield the inputs that have NULL where they must not, and why; ``columns`` follow ``schema.fields``.

    Of a computed column it says what that is computed from.
    """
    by_name = dict(zip(schema.names, (column.values for column in columns), strict=True))
    for name, rule in schema.required.items():
        values, computed = by_name[name], schema.field(name).computed
        if not values.null_count:
            continue
        for i in np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False)).tolist():
            reads = () if computed is None else computed.reads
            given = ", ".join(f"{each} is {_shown(by_name[each][i])}" for each in reads)
            yield i, f"column {name!r} {rule}" + (f"; {given}" if given else "")


def _shown(value: pa.Scalar) -> str:
    text = "NULL" if not value.is_valid else repr(value.as_py()) if pa.types.is_string(value.type) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def with_computed(schema: Schema, columns: Sequence[DecodedColumn]) -> Sequence[DecodedColumn]:
    """Return the columns of ``schema.fields``, given those of ``schema.read``, which are equally long."""
    if len(schema.read) == len(schema.fields):
        return columns
    by_name = dict(zip((f.name for f in schema.read), columns, strict=True))
    arrays = {name: column.values for name, column in by_name.items()}
    for field in schema.fields:
        if field.computed is not None:
            column = DecodedColumn(*compute(field, arrays, len(columns[0].values)))
            by_name[field.name], arrays[field.name] = column, column.values
    return [by_name[field.name] for field in schema.fields]


def whole_batch(schema: Schema, arrays: Sequence[pa.Array]) -> pa.RecordBatch | None:
    """Return tuples, given the columns of ``schema.read``; None when one of them must not be as it is."""
    if len(schema.read) < len(schema.fields):
        columns = with_computed(schema, [DecodedColumn(array, {}) for array in arrays])
        if any(column.errors for column in columns):
            return None
        arrays = [column.values for column in columns]
    tuples = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return None if any(tuples.column(name).null_count for name in schema.required) else tuples


def row_bytes(schema: Schema) -> int:
    """Return how many bytes a row takes at least, NULLs included: that of a text is where it ends."""
    return sum(f.type.min_bytes for f in schema.fields)


class Gathered:
    """What comes of a body piece by piece; each piece is counted, so that too much is refused as soon as it shows."""

    def __init__(self, schema: Schema, limits: DecodingLimits) -> None:
        self._schema = schema
        self._limits = limits
        self._pieces: list[pa.RecordBatch] = []
        self._malformed: list[MalformedLine] = []
        self._rows = 0
        self._bytes = 0

    def add(self, piece: Decoded) -> None:
        """Take the next piece; TooLarge or MalformedRequest when there is more than the limits allow."""
        self._rows += piece.tuples.num_rows + len(piece.malformed)
        self._limits.check_rows(self._rows)
        self._bytes += piece.tuples.nbytes
        self._limits.check_bytes(self._bytes)
        self._malformed += piece.malformed
        self._limits.check_malformed(len(self._malformed), [fault.detail for fault in self._malformed[:SHOWN_FAULTS]])
        self._pieces.append(piece.tuples)

    def decoded(self) -> Decoded:
        """Return all pieces as one."""
        if len(self._pieces) == 1:
            return Decoded(self._pieces[0], tuple(self._malformed))
        nothing = pa.RecordBatch.from_pylist([], schema=self._schema.arrow)
        return Decoded(pa.concat_batches([nothing, *self._pieces]), tuple(self._malformed))
