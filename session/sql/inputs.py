"""The inputs of a SELECT: which stream or static table each name in FROM stands for, and under which alias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braid.operators.expressions import Expression
from braid.operators.lookup.lookups import TupleJoin
from braid.session.sql.inline_tables import inline_table
from braid.session.sql.relations import Relations
from braid.session.sql.scope import JoinedTable, check_descriptor, did_you_mean, listed
from braid.session.sql.statements import UNNEST, JoinedSource, Select, Unnested, WindowedSource
from braid.sources.connectors.one_row import one_row_id, one_row_stream
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.schema import Schema, StreamDefinition

_MAX_NAMES = 20


ONE_ROW = "one row"
"""What the hidden stream is called that a query over static tables alone reads."""


class KnownTables(Protocol):
    """The static tables that a SELECT can name."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all tables."""

    def find(self, name: str) -> TableVersion | None:
        """Return a table as it is now, whatever the case of the name; None when there is none."""

    def add(self, table: TableVersion) -> None:
        """Have a table that stands in the statement kept with those that were found."""

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call the rows of a table that was found; see `Lookup.version`."""


class _NoTables:
    names: Sequence[str] = ()

    def find(self, name: str) -> TableVersion | None:  # noqa: ARG002 - there is none
        return None

    def add(self, table: TableVersion) -> None:
        """Do nothing."""

    def version_of(self, table: TableVersion) -> str:
        return table.id


NO_TABLES: KnownTables = _NoTables()


@dataclass(frozen=True)
class Elements:
    """What UNNEST gives: ``array``, an expression over the inputs before it, and its columns as the SELECT calls them.

    ``canonical`` are the names that they have in all queries.
    """

    array: Expression
    schema: Schema
    canonical: tuple[str, ...]
    name: str = UNNEST


@dataclass
class SelectInput:
    """One input in FROM: a stream, a static table, or UNNEST, whose ``definition`` is known once those before it are.

    ``host`` is the number of the stream that a table is looked up for, None while that is not known, and of a stream
    its own number; ``matches`` is how many rows of tables a tuple of it can be joined with at most.
    """

    number: int
    joined: JoinedSource
    definition: StreamDefinition | TableVersion | Elements | None
    host: int | None = field(init=False)
    table: JoinedTable | None = None
    matches: int = 1
    lookups: list[TupleJoin] = field(default_factory=list)
    tables: list[JoinedTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = self.number if self.is_stream else None

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream, and so has tuples of its own."""
        return isinstance(self.definition, StreamDefinition)

    @property
    def unnest(self) -> Unnested | None:
        """What it says if it is UNNEST."""
        return self.source.unnest

    @property
    def elements(self) -> Elements:
        """What it gives; only if it is UNNEST."""
        assert isinstance(self.definition, Elements)
        return self.definition

    @property
    def source(self) -> WindowedSource:
        """What stands in FROM."""
        return self.joined.source

    @property
    def stream(self) -> StreamDefinition:
        """Its stream; only if it is no table."""
        assert isinstance(self.definition, StreamDefinition)
        return self.definition

    @property
    def version(self) -> TableVersion:
        """Its table; only if it is one."""
        assert isinstance(self.definition, TableVersion)
        return self.definition

    @property
    def alias(self) -> str:
        """What the SELECT calls it."""
        return self.source.alias or self.source.stream

    def check_window(self, select: Select) -> None:
        """Raise SqlNotAllowed for a window that does not fit."""
        if self.is_stream:
            check_descriptor(select.sql, self.source, self.stream)
        elif self.source.window is not None:
            what = "UNNEST has" if self.unnest is not None else f"{self.source.stream} is a static table, which has"
            raise select.sql.not_allowed(
                f"{what} no time of its own; remove its window, and write one after the stream.", self.source.window_at
            )


def inputs_of(select: Select, catalog: Relations, tables: KnownTables) -> list[SelectInput]:
    """Return the inputs in the order of FROM; SqlNotAllowed for an unknown name, or what does not fit an input."""
    inputs = [
        SelectInput(
            number, joined, None if joined.source.unnest else find_input(select, joined.source, catalog, tables)
        )
        for number, joined in enumerate((JoinedSource(select.source), *select.joins))
    ]
    for input_ in inputs:
        input_.check_window(select)
    for input_ in inputs:
        if "." in input_.alias and len(inputs) > 1:  # else the columns of two inputs could be called alike
            raise select.sql.not_allowed(
                f"The name of an input of a join must have no dot; got {input_.alias!r}. Write AS and an alias.",
                input_.source.at,
            )
    return inputs


def is_table(source: WindowedSource, catalog: Relations, tables: KnownTables) -> bool:
    """Whether an input has no windows, as what it gives has no time: a static table, VALUES or UNNEST."""
    if source.unnest is not None or (source.inline or catalog.inline(source.select or source.stream)) is not None:
        return True
    return source.select is None and catalog.get(source.stream) is None and tables.find(source.stream) is not None


def find_input(
    select: Select, source: WindowedSource, catalog: Relations, tables: KnownTables
) -> StreamDefinition | TableVersion:
    if source.is_hidden and source.stream == ONE_ROW:
        return one_row_stream(one_row_id(""))
    rows = source.inline or catalog.inline(source.select or source.stream)
    if rows is not None:
        table = inline_table(select.sql, source, rows)
        tables.add(table)
        return table
    if source.select is not None:
        return catalog.subquery(source.select, source.alias or source.stream)
    definition = catalog.get(source.stream) or tables.find(source.stream)
    if definition is not None:
        return definition
    names = sorted(d.name for d in catalog.values())
    known = "there is none yet; declare it with CREATE STREAM"
    if names:
        known = f"there are {listed(names, _MAX_NAMES)}"
    if tables.names:
        known += f", and the tables {listed(sorted(tables.names), _MAX_NAMES)}"
    hint = did_you_mean(source.stream, [*names, *tables.names])
    advice = hint or (" CREATE STREAM and CREATE TABLE declare more." if names else "")
    raise select.sql.not_allowed(
        f"Stream, table or query {source.stream!r} does not exist; {known}.{advice}", source.at
    )
