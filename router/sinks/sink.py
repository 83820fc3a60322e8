"""What a sink is, and what it gets.

A *connector* (a module of this folder) says which options it has and opens a :class:`Destination`: a broker, a
database, a folder. Sinks of one destination share its connection, a thread and a back-off. A :class:`Sink` takes the
rows of one query, in order. After any error the sink is given up and opened anew. Only the place itself knows what came
of an attempt that failed: a sink that keeps its cursor there (``keeps_cursor``) reads it again in :meth:`Sink.resume`,
and so its rows come exactly once. Others may get rows again after a crash, with the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from braid.operators.expressions import Column
from braid.operators.queries import Query
from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.result_rows import schema_of
from braid.sources.core.confinement import OPEN, Confinement

LONGEST_RETRY_SECONDS = 300.0


class SinkDown(Exception):
    """The place does not answer, or asks to come later.

    ``retry_after`` is in seconds, None when it does not say; more than LONGEST_RETRY_SECONDS is not granted.
    """

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = None if retry_after is None else min(retry_after, LONGEST_RETRY_SECONDS)


class SinkRefused(Exception):
    """The place answers, and does not take the rows of this query as they are."""


class RowsRefused(SinkRefused):
    """The place does not take these rows for what is in them: some would be refused at any time, others not."""


@dataclass(frozen=True)
class Subject:
    """Whose rows a sink takes; ``delivery_id`` differs from that of any other query, also of other services."""

    delivery_id: str
    query_id: str
    name: str | None
    query: Query

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return schema_of(self.query)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell the rows of a query apart; empty where none do."""
        return key_columns(self.query)


@dataclass(frozen=True)
class SinkRows:
    """Rows in order, at least one; ``cursor`` is the place after them, ``runs`` as of a page of results."""

    table: pa.Table
    cursor: str
    runs: tuple[tuple[int, int, int], ...]

    @cached_property
    def ids(self) -> list[str]:
        """What tells each row from all others of its query: its batch and its place in it."""
        return [f"{seq}-{row}" for seq, first, count in self.runs for row in range(first, first + count)]


class Sink(Protocol):
    """Takes the rows of one query."""

    keeps_cursor: bool
    """Whether :meth:`resume` knows what is there, whatever crashed."""

    def resume(self) -> str | None:
        """Return the cursor after the rows that are there; None: no row is."""
        ...

    def write(self, rows: SinkRows) -> None:
        """Put rows there; they are, and stay there, when this returns.

        Raises SinkDown or SinkRefused; RowsRefused, for what is in the rows, only where none of them is there.
        """
        ...


class Destination(Protocol):
    """A connection that sinks share; used by one thread."""

    def open(self, subject: Subject, options: Mapping[str, str]) -> Sink:
        """Return the sink of a query. Raises SinkDown or SinkRefused."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


@dataclass(frozen=True)
class DelivererIdentity:
    """What destinations know of the process: ``name`` tells it from those that run at the same time, and stays.

    ``confinement`` says where it may write, and what it may call.
    """

    name: str
    confinement: Confinement = OPEN


class SinkConnector(Protocol):
    """A kind of sink: what each of its modules in this folder offers."""

    def validate(self, options: Mapping[str, str], query: Query, confinement: Confinement) -> None:
        """Check what a query says of its sink; NotAllowed says what is supported instead."""
        ...

    def destination(self, options: Mapping[str, str]) -> str:
        """Return what is equal for sinks that share a destination."""
        ...

    def connect(self, options: Mapping[str, str], deliverer: DelivererIdentity) -> Destination:
        """Return the destination. Raises SinkDown."""
        ...


def key_columns(query: Query) -> tuple[str, ...]:
    """Return the outputs that are bounds of the window and keys of GROUP BY, if they are all there; else nothing."""
    if not query.is_grouped:
        return ()
    key_names = [WINDOW_START, WINDOW_END, *(f"key{number}" for number in range(len(query.keys)))]
    output_names = {
        output.expression.name: output.name for output in query.outputs if isinstance(output.expression, Column)
    }
    return tuple(output_names[name] for name in key_names) if all(name in output_names for name in key_names) else ()
