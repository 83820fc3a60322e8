"""UNNEST: a tuple for each element of an array or entry of a map that it has, before any operator sees it.

An input with UNNEST is one of its own, as after a lookup join: all queries over it share it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import expressions
from braid.operators.expressions import Expression, columns_of
from braid.operators.tuples import Tuples
from braid.sources.core.schema import ColumnType
from braid.sources.formats.nested import Lists, Numbers, lists_of, row_bytes

MAX_AT_ONCE = 1_000_000
"""How many tuples are formed at once."""
MAX_BYTES = 1 << 28
"""How many bytes of texts and parts they may have, or that of one tuple if it is more."""


@dataclass(frozen=True)
class Unnest:
    """Each tuple with each of the elements of ``array``, an expression over its columns.

    ``columns`` are what the parts of an element are called, and after them its number from 1 with ``ordinality``;
    column ``c`` is called ``name.c`` afterwards. With ``left`` a tuple without elements stays, those columns NULL.
    """

    name: str
    array: Expression
    columns: tuple[str, ...]
    ordinality: bool = False
    left: bool = False

    def __str__(self) -> str:
        ordinality = " with ordinality" if self.ordinality else ""
        return f"{'left ' * self.left}unnest {self.array}{ordinality} as {self.name}({', '.join(self.columns)})"

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns of tuples that it reads."""
        return frozenset(columns_of(self.array))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "unnest": self.name,
            "array": expressions.to_json(self.array),
            "columns": list(self.columns),
            "ordinality": self.ordinality,
            "left": self.left,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Unnest:
        """Read what :meth:`to_json` wrote."""
        array = expressions.from_json(value["array"])
        return cls(value["unnest"], array, tuple(value["columns"]), value["ordinality"], value["left"])


def parts_of(kind: ColumnType) -> tuple[tuple[str, ColumnType], ...]:
    """Return the columns that elements of an array or entries of a map have: members of structs; one without a name."""
    if kind.kind == "MAP":
        return kind.members
    ((_, element),) = kind.members
    return element.members if element.kind == "STRUCT" else (("", element),)


def unnested(
    tuples: Tuples, array: Any, unnest: Unnest, needed: set[str], dropped: Container[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield each tuple with each element of its value in ``array``, with the columns that are needed.

    Those that are ``dropped``, once they are, are all NULL.
    """
    lists = lists_of(array)
    counts = np.maximum(lists.lengths, 1) if unnest.left else lists.lengths
    ends, element_ends = np.cumsum(counts), np.cumsum(lists.lengths)
    kept = {name: tuples.columns[name] for name in needed if name in tuples.columns}
    sizes = sum(map(row_bytes, kept.values()), start=np.zeros(tuples.length, np.int64))
    first, total = 0, int(counts.sum())
    while first < total:
        last = _piece_end(first, counts, ends, sizes)
        numbers = np.arange(first, last)
        rows = np.searchsorted(ends, numbers, side="right")
        nth = numbers - (ends - counts)[rows]
        missing = lists.lengths[rows] == 0
        places = np.where(missing, 0, (element_ends - lists.lengths)[rows] + nth)
        at = pa.array(rows)
        columns = {
            name: pa.nulls(len(rows), column.type) if name in dropped else column.take(at)
            for name, column in kept.items()
        }
        columns |= _elements(unnest, lists, places, nth + 1, missing, needed)
        yield pa.RecordBatch.from_pydict(columns)
        first = last


def _piece_end(first: int, counts: Numbers, ends: Numbers, sizes: Numbers) -> int:
    """Return up to where tuples are formed at once from ``first`` on: so many, of so many bytes, or one.

    Each row becomes ``counts`` tuples of ``sizes`` bytes each, the last of which ends at ``ends``.
    """
    row = int(np.searchsorted(ends, first, side="right"))
    begun = first - int(ends[row] - counts[row])
    bytes_left = np.cumsum(counts[row:] * sizes[row:]) - begun * sizes[row]
    full = row + int(np.searchsorted(bytes_left, MAX_BYTES, side="right"))  # the first row that does not fit whole
    last = int(ends[-1])
    if full < len(counts):
        begin, taken = (first, 0) if full == row else (int(ends[full - 1]), int(bytes_left[full - row - 1]))
        last = begin + (MAX_BYTES - taken) // max(int(sizes[full]), 1)
    return min(max(last, first + 1), first + MAX_AT_ONCE)


def _elements(
    unnest: Unnest,
    lists: Lists,
    places: Numbers,
    numbers: Numbers,
    missing: npt.NDArray[np.bool_],
    needed: set[str],
) -> dict[str, pa.Array]:
    """Return columns of elements at ``places``, which are the ``numbers``-th of their arrays; NULL where missing."""
    at = pa.array(places, mask=missing)
    if lists.keys is not None:
        arrays = [lists.keys, lists.values]
    elif pa.types.is_struct(lists.values.type):
        arrays = lists.values.flatten()
    else:
        arrays = [lists.values]
    columns = {
        f"{unnest.name}.{name}": array
        for name, array in zip(unnest.columns, arrays, strict=False)
        if f"{unnest.name}.{name}" in needed
    }
    taken = {name: array.take(at) if len(array) else pa.nulls(len(at), array.type) for name, array in columns.items()}
    ordinality = f"{unnest.name}.{unnest.columns[-1]}"
    if unnest.ordinality and ordinality in needed:
        taken[ordinality] = pa.array(numbers, mask=missing)
    return taken
