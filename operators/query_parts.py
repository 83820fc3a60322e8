"""What queries of all kinds are made of: names of kinds and columns, outputs, measures, and the JSON of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from braid.operators import expressions
from braid.operators.expressions import Column, Expression, substituted
from braid.operators.lookup.lookups import TupleJoin, tuple_join_from_json
from braid.operators.windows import RowWindow, SessionWindow, Window, sliding
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, ColumnType

SELECTION, AGGREGATION, SESSIONS, JOIN = "selection", "aggregation", "sessions", "join"
"""The kinds of operators, see :mod:`braid.operators.kinds`."""

WINDOW_START = "window_start"
WINDOW_END = "window_end"
PARTIAL = "_partial"
CHANGES = {"_op": VARCHAR, "_ptime": TIMESTAMP, "_ver": BIGINT}
"""Further columns of a changelog: insert or retract, processing time, number of the row among those of its group."""

OP, PTIME, VER = CHANGES

INSERT, RETRACT = "insert", "retract"


def row_window_of(window: Window | SessionWindow) -> RowWindow | None:
    """Return the windows that the rows of a windowed query are of; None for sessions."""
    slides = sliding(window)
    return None if slides is None else RowWindow(slides, frozenset({WINDOW_START}), frozenset({WINDOW_END}))


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


COUNT_DISTINCT = "count_distinct"
MEASURE_FUNCTIONS = ("count", "sum", "min", "max", COUNT_DISTINCT, "stddev_samp", "var_samp")
_DEVIATIONS = ("stddev_samp", "var_samp")


@dataclass(frozen=True)
class Measure:
    """A partial aggregate that slices keep and that merges associatively.

    ``count`` without argument counts tuples. ``count_distinct`` counts the different values that are not NULL.
    ``stddev_samp`` and ``var_samp`` are NULL for fewer than two values.
    AVG is no measure: the front end writes it as sum / count. Of rows that change, ``argument`` is what insertions
    bring and ``retracted`` what retractions take back, each NULL for the others: what is left is aggregated.
    """

    function: str
    argument: Expression | None = None
    retracted: Expression | None = None

    def __post_init__(self) -> None:
        if self.function not in MEASURE_FUNCTIONS:
            raise NotAllowed(f"A measure must be one of {MEASURE_FUNCTIONS}; got {self.function!r}.")
        if self.argument is None and self.function != "count":
            raise NotAllowed(f"{self.function.upper()} needs an argument.")
        if self.function in _DEVIATIONS and self.argument is not None and not self.argument.type.is_numeric:
            raise NotAllowed(f"{self.function.upper()} needs a number; got {self.argument} ({self.argument.type}).")

    @cached_property
    def name(self) -> str:
        """The column that carries this measure, the same for equal measures: ``sum(price)``, ``count(*)``."""
        text = "*" if self.argument is None else expressions.text_of(self.argument)
        less = "" if self.retracted is None else f" less {expressions.text_of(self.retracted)}"
        return f"{self.function}({text}{less})"

    @cached_property
    def by_value(self) -> tuple[Expression, ...]:
        """The expressions that have to be counted by their values for it; none where sums and extremes are enough."""
        if self.argument is None or (self.retracted is None and self.function != COUNT_DISTINCT):
            return ()
        return (self.argument,) if self.retracted is None else (self.argument, self.retracted)

    @property
    def column(self) -> Column:
        """The column of a group that has it."""
        return Column(self.name, self.type)

    @property
    def type(self) -> ColumnType:
        """The type of the measure: counts and integer sums are BIGINT, deviations and variances DOUBLE."""
        if self.function in ("count", COUNT_DISTINCT) or self.argument is None:
            return BIGINT
        if self.function in _DEVIATIONS:
            return DOUBLE
        argument = self.argument.type
        if self.function != "sum":
            return argument
        if argument.is_integer:
            return BIGINT
        return ColumnType("DECIMAL", 38, argument.scale) if argument.kind == "DECIMAL" else DOUBLE

    def of(self, columns: Mapping[str, Expression]) -> Measure:
        """Return the measure of other expressions in the place of some columns."""
        parts = (None if part is None else substituted(part, columns) for part in (self.argument, self.retracted))
        return Measure(self.function, *parts)

    def to_json(self) -> list[Any]:
        """Return ``[function, argument or null]``, and what is retracted where there is such."""
        value = [self.function, None if self.argument is None else expressions.to_json(self.argument)]
        return value if self.retracted is None else [*value, expressions.to_json(self.retracted)]

    @classmethod
    def from_json(cls, value: list[Any]) -> Measure:
        """Read what :meth:`to_json` wrote."""
        return cls(value[0], *(None if part is None else expressions.from_json(part) for part in value[1:]))


COUNT_ALL = Measure("count")


class Source(Protocol):
    """An input of a query, as far as all inputs are alike."""

    @property
    def lookups(self) -> tuple[TupleJoin, ...]: ...
    @property
    def apart(self) -> str: ...


def where_json(where: Expression | None) -> list[Any] | None:
    """Return the JSON of a condition, None for none."""
    return None if where is None else expressions.to_json(where)


def where_from_json(value: list[Any] | None) -> Expression | None:
    """Read what :func:`where_json` returned."""
    return None if value is None else expressions.from_json(value)


def input_json(source: Source) -> dict[str, Any]:
    """Return the JSON of an input's ``lookups`` and ``apart``, without those that are empty."""
    lookups = {"lookups": [lookup.to_json() for lookup in source.lookups]} if source.lookups else {}
    return {**lookups, **({"apart": source.apart} if source.apart else {})}


def lookups_from_json(value: dict[str, Any]) -> tuple[TupleJoin, ...]:
    """Read the lookups in what :func:`input_json` returned."""
    return tuple(tuple_join_from_json(lookup) for lookup in value.get("lookups", ()))
