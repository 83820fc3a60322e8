"""The statements of Braid's SQL as the parser returns them: frozen, their names not yet looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from braid.operators.windows import Emit, SessionWindow, Window
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.syntax import Node
from braid.sources.core.schema import Schema, StreamSchema
from braid.sources.core.watermark_options import WatermarkOptions


@dataclass(frozen=True)
class CreateStream:
    """``CREATE STREAM [IF NOT EXISTS] name (columns) WITH (options)``.

    ``options`` are the connector's, without ``connector`` and ``format``; ``watermark`` those that every stream has.
    """

    name: str
    schema: StreamSchema
    connector: str
    format: str
    options: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    watermark: WatermarkOptions = field(default_factory=WatermarkOptions)


@dataclass(frozen=True)
class CreateTable:
    """``CREATE TABLE [IF NOT EXISTS] name (columns) WITH (options)``; ``options`` are those besides ``connector``."""

    name: str
    schema: Schema
    format: str
    options: dict[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropStream:
    """``DROP STREAM [IF EXISTS] name [CASCADE]``."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class DropTable:
    """``DROP TABLE [IF EXISTS] name``."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RefreshTable:
    """``REFRESH TABLE name``."""

    name: str


@dataclass(frozen=True)
class DropQuery:
    """``DROP QUERY [IF EXISTS] name [CASCADE]``, by name or id."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class ShowStreams:
    """``SHOW STREAMS``."""


@dataclass(frozen=True)
class ShowTables:
    """``SHOW TABLES``."""


@dataclass(frozen=True)
class ShowQueries:
    """``SHOW QUERIES``."""


@dataclass(frozen=True)
class Describe:
    """``DESCRIBE name``: a stream, a table or a query."""

    name: str


@dataclass(frozen=True)
class SelectItem:
    """One entry of the select list: its expression, its alias if any, and its text for a derived name."""

    node: Node
    alias: str | None
    text: str


SUBQUERY = "subquery"
"""What a subquery in FROM is called without an alias."""

UNNEST = "unnest"
"""What UNNEST is called without an alias."""


@dataclass(frozen=True)
class Unnested:
    """``UNNEST(array) [WITH ORDINALITY] [AS alias (columns)]``."""

    array: Node
    ordinality: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class InlineRows:
    """``VALUES (…), (…) [AS alias (names)]``: rows of as many expressions each as there are names."""

    rows: tuple[tuple[Node, ...], ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class WindowedSource:
    """What FROM names: a stream, its alias, and its window; or UNNEST, which has no window; or a subquery (``select``);
    or VALUES (``inline``).
    A window that ``is_implied`` is not written: GROUP BY names its bounds (:mod:`braid.session.sql.implied_windows`).
    Names without an input never mean columns of one that ``is_hidden``, nor does ``*``.

    ``descriptor`` is the column that a window function names, ``partition_by`` the columns that sessions are of.
    The offsets ``at``, ``window_at`` and ``descriptor_at`` are for error positions.
    """

    stream: str
    at: int
    alias: str | None = None
    window: Window | SessionWindow | None = None
    window_at: int = 0
    descriptor: str | None = None
    descriptor_at: int = 0
    partition_by: tuple[Node, ...] = ()
    unnest: Unnested | None = None
    select: Select | None = None
    inline: InlineRows | None = None
    is_implied: bool = False
    is_hidden: bool = False


@dataclass(frozen=True)
class JoinedSource:
    """A further input in FROM: after a comma, JOIN or LEFT JOIN, with its ON or the columns of its USING.

    ``using`` has the name and the offset of each column. ``keeps`` is that of a lookup
    (:class:`braid.operators.lookup.lookups.Lookup`).
    """

    source: WindowedSource
    left: bool = False
    on: Node | None = None
    using: tuple[tuple[str, int], ...] = ()
    keeps: str = ""


@dataclass(frozen=True)
class EmitClause:
    """``EMIT …``, where it stands and where its AFTER DELAY stands, if any."""

    emit: Emit
    at: int
    delay_at: int


@dataclass(frozen=True)
class Select:
    """A SELECT statement: the syntax only; :func:`braid.session.sql.select.plan_statement` gives it meaning.

    ``named`` are the subqueries of its WITH, ``union`` what follows each UNION ALL; then ``first`` is where the SELECT
    before that begins and ends. One that ``is_values`` stands for VALUES alone.
    """

    sql: SqlText
    start: int
    end: int
    items: tuple[SelectItem, ...]
    source: WindowedSource
    where: Node | None = None
    group_by: tuple[Node, ...] = ()
    having: Node | None = None
    emit: EmitClause | None = None
    joins: tuple[JoinedSource, ...] = ()
    named: tuple[tuple[str, Select], ...] = ()
    union: tuple[Select, ...] = ()
    first: tuple[int, int] = (0, 0)
    is_values: bool = False

    @property
    def text(self) -> str:
        """The text of the SELECT alone, without what stands before it (``EXPLAIN``) and after it (``;``)."""
        return self.sql.text[self.start : self.end]


@dataclass(frozen=True)
class CreateQuery:
    """``CREATE [OR REPLACE] QUERY name [WITH (options)] AS SELECT …``; ``sink`` are the options, None without any.

    ``start`` is the option that says where the query starts.
    """

    name: str
    select: Select
    sink: Mapping[str, str] | None = None
    or_replace: bool = False
    start: str | None = None


@dataclass(frozen=True)
class Explain:
    """``EXPLAIN SELECT …``."""

    select: Select


Statement = (
    CreateStream
    | CreateTable
    | DropStream
    | DropTable
    | RefreshTable
    | DropQuery
    | ShowStreams
    | ShowTables
    | ShowQueries
    | Describe
    | CreateQuery
    | Explain
    | Select
)
