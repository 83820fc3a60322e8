"""What a column of a stream is computed as. Expressions belong to the operators, which say here how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa


class Computation(Protocol):
    """An expression over the columns of a tuple; ``text`` is what the declaration says."""

    @property
    def text(self) -> str: ...

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns that it is computed from."""

    def evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return the values, one per row; ``columns`` are those before it, by name."""

    def to_json(self) -> Any:
        """Return a JSON form for the changelog."""


_readers: list[Callable[[Any], Computation]] = []


def set_reader(read: Callable[[Any], Computation]) -> None:
    """Have computations read by ``read``, which takes what ``to_json`` returned."""
    _readers[:] = [read]


def computation_from_json(value: Any) -> Computation:
    """Read what ``to_json`` of a computation returned."""
    (read,) = _readers
    return read(value)
