"""What decoding a body gives, and how converted columns become it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sources.schema import Schema


class MalformedLine(NamedTuple):
    """An input that does not fit the schema: its number (from 1), what is wrong, and the input as text."""

    line: int
    detail: str
    raw: str


@dataclass(frozen=True)
class Decoded:
    """The tuples of a body, in the Arrow schema asked for, and the inputs that are none, both in order.

    Where an input can hold several tuples, ``origins`` says of which each is: the number of the input, from 0.
    """

    tuples: pa.RecordBatch
    malformed: tuple[MalformedLine, ...]
    origins: np.ndarray | None = None

    def origins_of(self, inputs: int) -> np.ndarray:
        """Return for each tuple the number of its input, of ``inputs`` many, from 0; ascending int64."""
        if self.origins is not None:
            return self.origins
        return np.delete(np.arange(inputs), [fault.line - 1 for fault in self.malformed])


@dataclass(frozen=True)
class Column:
    """One converted column: a value for every input, and for the inputs that do not fit (NULL there) why not."""

    values: pa.Array
    errors: Mapping[int, str]


def assemble(
    schema: Schema,
    columns: Sequence[Column],
    unreadable: Mapping[int, str],
    place: Callable[[int], str],
    line: Callable[[int], int],
    raw: Callable[[int], str],
) -> Decoded:
    """Put converted columns together and set the inputs aside that do not fit.

    ``columns`` follow ``schema.fields`` and are equally long. ``unreadable`` maps inputs that have no columns at all
    (index from 0) to the reason. ``place(i)`` names an input in messages ("line 3"), ``line(i)`` numbers it and
    ``raw(i)`` is its text. Of several faults of one input the first column's is told.
    """
    faults = {i: f"{place(i)}{reason}" for i, reason in unreadable.items()}
    for column in columns:
        for i, reason in column.errors.items():
            faults.setdefault(i, f"{place(i)}: {reason}")
    for name in schema.required:
        values = columns[schema.names.index(name)].values
        if values.null_count:
            reason = f"column {name!r} is the event time and must not be NULL or missing"
            for i in np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False)).tolist():
                faults.setdefault(i, f"{place(i)}: {reason}")
    tuples = pa.RecordBatch.from_arrays([c.values for c in columns], schema=schema.arrow)
    if faults:
        fits = np.ones(tuples.num_rows, dtype=bool)
        fits[list(faults)] = False
        tuples = tuples.filter(pa.array(fits))
    return Decoded(tuples, tuple(MalformedLine(line(i), faults[i], raw(i)) for i in sorted(faults)))
