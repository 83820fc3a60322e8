"""A query of a mixed workload, in no system's dialect: fragments of SQL that Braid and DuckDB read alike.

Result columns have the names ``k0``, ``k1``, … for the keys, ``m0``, ``m1``, … for the aggregates, and ``c0``, ``c1``,
… for what a selection selects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from braid.bench_driver.nexmark_query import NexmarkQuery
from braid.bench_driver.query_spec import QuerySpec, WindowSpec

FUNCTIONS = ("count", "sum", "avg", "min", "max", "stddev_samp", "count_distinct")


@dataclass(frozen=True)
class Aggregate:
    """One of `FUNCTIONS` of an expression; ``*`` is the argument of COUNT(*). A sum of whole numbers `is_whole`."""

    function: str
    argument: str
    is_whole: bool = False

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise ValueError(f"an aggregate's function must be one of {FUNCTIONS}, got {self.function!r}")

    @property
    def sql(self) -> str:
        """The aggregate as SQL has it."""
        if self.function == "count_distinct":
            return f"COUNT(DISTINCT {self.argument})"
        return f"{self.function.upper()}({self.argument})"


@dataclass(frozen=True)
class SessionSpec:
    """Sessions: tuples of a group that follow each other in less than `gap_ms`."""

    gap_ms: int


@dataclass(frozen=True)
class TableJoin:
    """A static table and the two columns that are equal: `column` of the stream and `key` of the table."""

    table: str
    column: str
    key: str


@dataclass(frozen=True)
class Having:
    """Leaves the groups where an aggregate, by its place in the query, is more than a number."""

    place: int
    more_than: int


@dataclass(frozen=True)
class MixedQuery:
    """An aggregation over windows or sessions of a stream; without a `window` a selection of `columns`."""

    stream: str
    where: str | None = None
    keys: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    window: WindowSpec | SessionSpec | None = None
    columns: tuple[str, ...] = ()
    having: Having | None = None
    join: TableJoin | None = None

    def __post_init__(self) -> None:
        if (self.window is None) != bool(self.columns) or bool(self.columns) == bool(self.aggregates):
            raise ValueError(f"a query has a window and aggregates, or selects columns, got {self!r}")
        if self.having is not None and self.having.place >= len(self.aggregates):
            raise ValueError(f"HAVING names one of the query's aggregates by its place, got {self!r}")

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return (self.stream,)

    @property
    def is_join(self) -> bool:
        """Whether it joins streams, which it does not."""
        return False

    @property
    def slide_ms(self) -> int:
        """How far its windows are apart: 0 where rows come when they come."""
        return self.window.slide_ms if isinstance(self.window, WindowSpec) else 0

    def to_json(self) -> dict[str, Any]:
        """Return a form of plain objects."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MixedQuery:
        """Read what :meth:`to_json` gave, also after JSON."""
        window, having, join = value["window"], value["having"], value["join"]
        return cls(
            value["stream"],
            value["where"],
            tuple(value["keys"]),
            tuple(Aggregate(**aggregate) for aggregate in value["aggregates"]),
            window and (SessionSpec(**window) if "gap_ms" in window else WindowSpec(**window)),
            tuple(value["columns"]),
            having and Having(**having),
            join and TableJoin(**join),
        )


Query = QuerySpec | MixedQuery | NexmarkQuery
"""A query of any workload."""
