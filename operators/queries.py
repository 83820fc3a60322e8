"""Queries as the operators see them: frozen, validated, free of SQL.

The SQL front end makes them; changelogs carry them as JSON. Times are integers, microseconds since 1970 (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from operators import expressions
from operators.expressions import Expression
from sources.errors import NotAllowed
from sources.schema import BIGINT, DOUBLE, ColumnType

WINDOW_START = "window_start"
WINDOW_END = "window_end"
PARTIAL = "_partial"


@dataclass(frozen=True)
class Window:
    """Windows ``[k·slide + offset, k·slide + offset + size)`` for all whole k; tumbling when slide = size.

    All microseconds. Aligned to 1970-01-01T00:00:00Z plus the offset.
    """

    size_us: int
    slide_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        if self.size_us <= 0 or self.slide_us <= 0:
            raise NotAllowed(
                "A window's size and slide must be above zero;"
                f" got size {self.size_us} and slide {self.slide_us} microseconds."
            )

    def to_json(self) -> list[int]:
        """Return ``[size, slide, offset]``."""
        return [self.size_us, self.slide_us, self.offset_us]


@dataclass(frozen=True)
class Output:
    """A column of the result: its name and how to compute it."""

    name: str
    expression: Expression

    def to_json(self) -> list[Any]:
        """Return ``[name, expression]``."""
        return [self.name, expressions.to_json(self.expression)]

    @classmethod
    def from_json(cls, value: list[Any]) -> Output:
        """Read what :meth:`to_json` wrote."""
        return cls(value[0], expressions.from_json(value[1]))


MEASURE_FUNCTIONS = ("count", "sum", "min", "max")


@dataclass(frozen=True)
class Measure:
    """A partial aggregate that slices keep and that merges associatively.

    ``count`` without argument counts tuples. AVG is no measure: the front end writes it as sum / count.
    """

    function: str
    argument: Expression | None = None

    def __post_init__(self) -> None:
        if self.function not in MEASURE_FUNCTIONS:
            raise NotAllowed(f"A measure must be one of {MEASURE_FUNCTIONS}; got {self.function!r}.")
        if self.argument is None and self.function != "count":
            raise NotAllowed(f"{self.function.upper()} needs an argument.")

    @cached_property
    def name(self) -> str:
        """The column that carries this measure, the same for equal measures: ``sum(price)``, ``count(*)``."""
        return f"{self.function}({'*' if self.argument is None else self.argument})"

    @property
    def type(self) -> ColumnType:
        """The type of the measure: counts and integer sums are BIGINT."""
        if self.function == "count" or self.argument is None:
            return BIGINT
        argument = self.argument.type
        if self.function != "sum":
            return argument
        if argument.is_integer:
            return BIGINT
        return ColumnType("DECIMAL", 38, argument.scale) if argument.kind == "DECIMAL" else DOUBLE

    def to_json(self) -> list[Any]:
        """Return ``[function, argument or null]``."""
        return [self.function, None if self.argument is None else expressions.to_json(self.argument)]

    @classmethod
    def from_json(cls, value: list[Any]) -> Measure:
        """Read what :meth:`to_json` wrote."""
        return cls(value[0], None if value[1] is None else expressions.from_json(value[1]))


COUNT_ALL = Measure("count")


def _where_json(where: Expression | None) -> list[Any] | None:
    return None if where is None else expressions.to_json(where)


@dataclass(frozen=True)
class Selection:
    """Tuples of one stream that satisfy ``where``; ``outputs`` are over the stream's columns.

    ``stream`` is the stream's id, not its name.
    """

    stream: str
    where: Expression | None
    outputs: tuple[Output, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of all input streams."""
        return (self.stream,)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "kind": "selection",
            "stream": self.stream,
            "where": _where_json(self.where),
            "outputs": [o.to_json() for o in self.outputs],
        }


@dataclass(frozen=True)
class Aggregation:
    """A windowed aggregation of one stream.

    ``keys`` are the GROUP BY expressions over the stream's columns, named ``key0``, ``key1``, … in the operator.
    ``outputs`` and ``having`` are over the columns ``window_start``, ``window_end`` (TIMESTAMP), ``key{i}`` and
    ``Measure.name``; outputs always include ``window_start`` and ``window_end``.
    """

    stream: str
    window: Window
    where: Expression | None
    keys: tuple[Expression, ...]
    measures: tuple[Measure, ...]
    outputs: tuple[Output, ...]
    having: Expression | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of all input streams."""
        return (self.stream,)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "kind": "aggregation",
            "stream": self.stream,
            "window": self.window.to_json(),
            "where": _where_json(self.where),
            "keys": [expressions.to_json(k) for k in self.keys],
            "measures": [m.to_json() for m in self.measures],
            "outputs": [o.to_json() for o in self.outputs],
            "having": _where_json(self.having),
        }


Query = Selection | Aggregation


def query_from_json(value: dict[str, Any]) -> Query:
    """Read what ``to_json`` of a query wrote."""
    where = None if value["where"] is None else expressions.from_json(value["where"])
    outputs = tuple(Output.from_json(o) for o in value["outputs"])
    if value["kind"] == "selection":
        return Selection(value["stream"], where, outputs)
    return Aggregation(
        stream=value["stream"],
        window=Window(*value["window"]),
        where=where,
        keys=tuple(expressions.from_json(k) for k in value["keys"]),
        measures=tuple(Measure.from_json(m) for m in value["measures"]),
        outputs=outputs,
        having=None if value["having"] is None else expressions.from_json(value["having"]),
    )
