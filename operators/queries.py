"""Queries as the operators see them: frozen, validated, free of SQL.

The SQL front end makes them; changelogs carry them as JSON. Times are integers, microseconds since 1970 (UTC).

Whatever its kind, a query says what it reads (``inputs``), its ``window`` if it has one, what it groups by and
aggregates (``keys``, ``measures``, ``having``), how its rows come (``emit``) and what they are (``outputs``). What a
kind does with that is in the folder of the kind; :func:`braid.operators.kinds.kind_of` finds it. An input has a
``stream``, a ``where`` and, in a join, an ``alias``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from braid.operators import expressions
from braid.operators.expressions import Column, Expression, all_of, columns_of, conjuncts_of, substituted
from braid.operators.joins.query import Join
from braid.operators.lookup.lookups import Lookup, TupleJoin, input_id
from braid.operators.query_parts import (
    AGGREGATION,
    SELECTION,
    SESSIONS,
    Measure,
    Output,
    input_json,
    lookups_from_json,
    row_window_of,
    where_from_json,
    where_json,
)
from braid.operators.windows import EMIT_AFTER_WATERMARK, Emit, RowWindow, SessionWindow, Window, window_from_json


@dataclass(frozen=True)
class Selection:
    """Tuples of one stream that satisfy ``where``; ``outputs`` are over the stream's columns.

    ``stream`` is the stream's id, not its name. With ``lookups`` the columns are those of their tables, too. A query
    with a name in ``apart`` shares nothing with queries that have another, or none. ``event_time`` is the column of the
    stream that is the event time of its rows, for who reads these; ``row_window`` are the windows that rows of the
    stream are of, if they are.
    """

    stream: str
    where: Expression | None
    outputs: tuple[Output, ...]
    lookups: tuple[TupleJoin, ...] = ()
    apart: str = ""
    event_time: str = field(default="", compare=False)
    row_window: RowWindow | None = field(default=None, compare=False)

    kind: ClassVar[str] = SELECTION
    alias: ClassVar[str] = ""
    window: ClassVar[None] = None
    has_sessions: ClassVar[bool] = False
    is_grouped: ClassVar[bool] = False
    keeps_extremes: ClassVar[bool] = False
    keys: ClassVar[tuple[Expression, ...]] = ()
    measures: ClassVar[tuple[Measure, ...]] = ()
    having: ClassVar[None] = None
    emit: ClassVar[Emit] = EMIT_AFTER_WATERMARK

    @property
    def inputs(self) -> tuple[Selection]:
        """What it reads: itself says of which stream, and which tuples."""
        return (self,)

    @cached_property
    def columns_of_rows(self) -> frozenset[str]:
        """The columns of its input that its rows are formed of."""
        named = {name for output in self.outputs for name in columns_of(output.expression)}
        return frozenset(named | {self.event_time} if self.event_time else named)

    def in_written_order(self) -> Selection:
        """Return it: it joins nothing."""
        return self

    def reading(self, streams: Mapping[str, str]) -> Selection:
        """Return it over other streams of the same columns, by the ids of those that it reads."""
        return replace(self, stream=streams.get(self.stream, self.stream))

    def over(self, inner: Selection, columns: Mapping[str, Expression]) -> Selection:
        """Return it over the stream that an inner selection reads, if it reads the rows of that one alone.

        ``columns`` are what the columns of the inner one are of that stream.
        """
        if self.lookups:
            return self
        outputs = tuple(Output(o.name, substituted(o.expression, columns)) for o in self.outputs)
        where = _both(inner.where, self.where, columns)
        return replace(inner, where=where, outputs=outputs, apart=self.apart)

    def set_apart(self, name: str) -> Selection:
        """Return a query that shares nothing with queries that are not set apart under the same name."""
        return replace(self, apart=name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of all input streams."""
        return (self.stream,)

    @cached_property
    def input(self) -> str:
        """The id of its input, the stream after its lookups."""
        return input_id(self.stream, self.lookups, self.apart)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "kind": "selection",
            "stream": self.stream,
            "where": where_json(self.where),
            "outputs": [o.to_json() for o in self.outputs],
            **({"event_time": self.event_time} if self.event_time else {}),
            **({"row_window": self.row_window.to_json()} if self.row_window is not None else {}),
            **input_json(self),
        }


@dataclass(frozen=True)
class Aggregation:
    """A windowed aggregation of one stream; ``emit`` says how and when its rows come.

    ``keys`` are the GROUP BY expressions over the stream's columns (those of ``lookups`` included), named ``key0``,
    ``key1``, … in the operator. ``outputs`` and ``having`` are over the columns ``window_start``, ``window_end``
    (TIMESTAMP), ``key{i}`` and ``Measure.name``; outputs always include ``window_start`` and ``window_end``. A query
    with a name in ``apart`` shares nothing with queries that have another, or none.
    """

    stream: str
    window: Window | SessionWindow
    where: Expression | None
    keys: tuple[Expression, ...]
    measures: tuple[Measure, ...]
    outputs: tuple[Output, ...]
    having: Expression | None = None
    emit: Emit = EMIT_AFTER_WATERMARK
    lookups: tuple[TupleJoin, ...] = ()
    apart: str = ""

    alias: ClassVar[str] = ""
    event_time: ClassVar[str] = ""
    is_grouped: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """The kind of its operator."""
        return SESSIONS if self.has_sessions else AGGREGATION

    @property
    def has_sessions(self) -> bool:
        """Whether its windows are sessions."""
        return self.window.is_session

    @property
    def row_window(self) -> RowWindow | None:
        """The windows that its rows are of; None for sessions."""
        return row_window_of(self.window)

    @property
    def inputs(self) -> tuple[Aggregation]:
        """What it reads: itself says of which stream, and which tuples."""
        return (self,)

    @property
    def columns_of_rows(self) -> frozenset[str]:
        """The columns of its input that its rows are formed of: none, but of keys and measures."""
        return frozenset()

    def in_written_order(self) -> Aggregation:
        """Return it: it joins nothing."""
        return self

    def reading(self, streams: Mapping[str, str]) -> Aggregation:
        """Return it over other streams of the same columns, by the ids of those that it reads."""
        return replace(self, stream=streams.get(self.stream, self.stream))

    def over(self, inner: Selection, columns: Mapping[str, Expression]) -> Aggregation:
        """Return it over the stream that an inner selection reads, as :meth:`Selection.over`."""
        if self.lookups:
            return self
        measures = {each: each.of(columns) for each in self.measures}
        renamed: dict[str, Expression] = {old.name: Column(new.name, new.type) for old, new in measures.items()}
        return replace(
            self,
            stream=inner.stream,
            where=_both(inner.where, self.where, columns),
            keys=tuple(substituted(key, columns) for key in self.keys),
            measures=tuple(dict.fromkeys(measures.values())),
            outputs=tuple(Output(o.name, substituted(o.expression, renamed)) for o in self.outputs),
            having=None if self.having is None else substituted(self.having, renamed),
            lookups=inner.lookups,
        )

    def set_apart(self, name: str) -> Aggregation:
        """Return a query that shares nothing with queries that are not set apart under the same name."""
        return replace(self, apart=name)

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of all input streams."""
        return (self.stream,)

    @cached_property
    def input(self) -> str:
        """The id of its input, the stream after its lookups."""
        return input_id(self.stream, self.lookups, self.apart)

    @cached_property
    def keeps_extremes(self) -> bool:
        """Whether slices keep a minimum or a maximum for it; not where it counts distinct values besides."""
        has_slices = self.kind == AGGREGATION and not any(measure.by_value for measure in self.measures)
        return has_slices and any(measure.function in ("min", "max") for measure in self.measures)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "kind": "aggregation",
            "stream": self.stream,
            "window": self.window.to_json(),
            "where": where_json(self.where),
            "keys": [expressions.to_json(k) for k in self.keys],
            "measures": [m.to_json() for m in self.measures],
            "outputs": [o.to_json() for o in self.outputs],
            "having": where_json(self.having),
            **({} if self.emit == EMIT_AFTER_WATERMARK else {"emit": self.emit.to_json()}),
            **input_json(self),
        }


def _both(inner: Expression | None, outer: Expression | None, columns: Mapping[str, Expression]) -> Expression | None:
    """Return the conditions of an inner and an outer query, both over the columns of the inner one."""
    of_outer = None if outer is None else substituted(outer, columns)
    return all_of((*conjuncts_of(inner), *conjuncts_of(of_outer)))


Query = Selection | Aggregation | Join


def joins_by_input(query: Query) -> list[tuple[TupleJoin, ...]]:
    """Return the lookups, and what is UNNEST, of each input of a query."""
    return [source.lookups for source in query.inputs]


def lookups_of(query: Query) -> tuple[Lookup, ...]:
    """Return all lookups of a query in static tables."""
    return tuple(lookup for joins in joins_by_input(query) for lookup in lookups_among(joins))


def lookups_among(joins: Iterable[TupleJoin]) -> tuple[Lookup, ...]:
    """Return the lookups of an input in static tables."""
    return tuple(join for join in joins if isinstance(join, Lookup))


def query_from_json(value: dict[str, Any]) -> Query:
    """Read what ``to_json`` of a query wrote."""
    if value["kind"] == "join":
        return Join.from_json(value)
    where = where_from_json(value["where"])
    outputs = tuple(Output.from_json(o) for o in value["outputs"])
    apart = value.get("apart", "")
    if value["kind"] == "selection":
        lookups = lookups_from_json(value)
        row_window = RowWindow.from_json(value["row_window"]) if "row_window" in value else None
        return Selection(value["stream"], where, outputs, lookups, apart, value.get("event_time", ""), row_window)
    return Aggregation(
        stream=value["stream"],
        window=window_from_json(value["window"]),
        where=where,
        keys=tuple(expressions.from_json(k) for k in value["keys"]),
        measures=tuple(Measure.from_json(m) for m in value["measures"]),
        outputs=outputs,
        having=where_from_json(value["having"]),
        emit=Emit(*value["emit"]) if "emit" in value else EMIT_AFTER_WATERMARK,
        lookups=lookups_from_json(value),
        apart=apart,
    )
