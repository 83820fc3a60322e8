"""What a benchmark query asks, in no system's dialect: the thesis's query templates (figures 3.8, 4.7, 4.8, 5.17)."""

from __future__ import annotations

from dataclasses import dataclass

OPERATORS = ("=", ">", "<", ">=", "<=")


@dataclass(frozen=True)
class ColumnRef:
    """A column of one of the query's streams."""

    stream: str
    column: str


@dataclass(frozen=True)
class WindowSpec:
    """A window of `size_ms` that begins every `slide_ms`; tumbling when both are equal."""

    size_ms: int
    slide_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.size_ms:
            raise ValueError(f"a window needs 0 < slide <= size, got slide {self.slide_ms} ms, size {self.size_ms} ms")


@dataclass(frozen=True)
class Comparison:
    """A selection predicate: a column of a stream against a constant."""

    stream: str
    column: str
    operator: str
    constant: int | float

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"an operator must be one of {OPERATORS}, got {self.operator!r}")


@dataclass(frozen=True)
class JoinSpec:
    """A comparison of columns of two streams, mostly an equality; several steps may join the same pair."""

    left: ColumnRef
    right: ColumnRef
    operator: str = "="

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ValueError(f"an operator must be one of {OPERATORS}, got {self.operator!r}")


@dataclass(frozen=True)
class QuerySpec:
    """A windowed query: an aggregation when `measure` is set, a join when there is more than one stream, or both.

    With a measure it is `SUM(measure) … GROUP BY keys`; without one it selects `columns`.
    """

    streams: tuple[str, ...]
    window: WindowSpec
    comparisons: tuple[Comparison, ...] = ()
    joins: tuple[JoinSpec, ...] = ()
    keys: tuple[ColumnRef, ...] = ()
    measure: ColumnRef | None = None
    columns: tuple[ColumnRef, ...] = ()

    def __post_init__(self) -> None:
        if not self.streams or len(set(self.streams)) != len(self.streams):
            raise ValueError(f"a query needs streams, each once, got {self.streams!r}")
        if len(self.streams) > 1 and len(
            {stream for step in self.joins if step.operator == "=" for stream in _streams_of(step)}
        ) != len(self.streams):
            raise ValueError(f"every stream of {self.streams!r} must be joined by an equality, got {self.joins!r}")
        if (self.measure is None) == (not self.columns):
            raise ValueError("a query has either a measure or columns to select")
        streams_named = {comparison.stream for comparison in self.comparisons}
        streams_named |= {column.stream for column in (*self.keys, *self.columns)}
        streams_named |= {stream for step in self.joins for stream in _streams_of(step)}
        streams_named |= {self.measure.stream} if self.measure else set()
        unknown = streams_named - set(self.streams)
        if unknown:
            raise ValueError(f"{sorted(unknown)} are not among the query's streams {self.streams!r}")

    @property
    def is_join(self) -> bool:
        """Whether it has more than one stream."""
        return len(self.streams) > 1

    @property
    def slide_ms(self) -> int:
        """How far its windows are apart."""
        return self.window.slide_ms


def _streams_of(step: JoinSpec) -> tuple[str, str]:
    return step.left.stream, step.right.stream
