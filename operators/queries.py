"""Queries as the operators see them: frozen, validated, free of SQL.

The SQL front end makes them; changelogs carry them as JSON. Times are integers, microseconds since 1970 (UTC).

Whatever its kind, a query says what it reads (``inputs``), its ``window`` if it has one, what it groups by and
aggregates (``keys``, ``measures``, ``having``), how its rows come (``emit``) and what they are (``outputs``). What a
kind does with that is in the folder of the kind; :func:`operators.kinds.kind_of` finds it. An input has a ``stream``, a
``where`` and, in a join, an ``alias``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from operators import expressions
from operators.evaluation import is_null_for_nulls
from operators.expressions import Expression, columns_of
from operators.lookup.lookups import Lookup, input_id
from operators.windows import EMIT_AFTER_WATERMARK, Emit, SessionWindow, Window, window_from_json
from sources.core.errors import NotAllowed
from sources.core.schema import BIGINT, DOUBLE, ColumnType

SELECTION, AGGREGATION, SESSIONS, JOIN = "selection", "aggregation", "sessions", "join"
"""The kinds of operators, see :mod:`operators.kinds`."""

WINDOW_START = "window_start"
WINDOW_END = "window_end"
PARTIAL = "_partial"
# further columns of a changelog: insert or retract, processing time, number of the row among those of its group
OP, PTIME, VER = "_op", "_ptime", "_ver"


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


MEASURE_FUNCTIONS = ("count", "sum", "min", "max", "count_distinct", "stddev_samp", "var_samp")
_DEVIATIONS = ("stddev_samp", "var_samp")


@dataclass(frozen=True)
class Measure:
    """A partial aggregate that slices keep and that merges associatively.

    ``count`` without argument counts tuples. ``count_distinct`` counts the different values that are not NULL.
    ``stddev_samp`` and ``var_samp`` are NULL for fewer than two values.
    AVG is no measure: the front end writes it as sum / count.
    """

    function: str
    argument: Expression | None = None

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
        return f"{self.function}({'*' if self.argument is None else expressions.text_of(self.argument)})"

    @property
    def type(self) -> ColumnType:
        """The type of the measure: counts and integer sums are BIGINT, deviations and variances DOUBLE."""
        if self.function in ("count", "count_distinct") or self.argument is None:
            return BIGINT
        if self.function in _DEVIATIONS:
            return DOUBLE
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


def _where_from_json(value: list[Any] | None) -> Expression | None:
    return None if value is None else expressions.from_json(value)


def _input_json(query: Selection | Aggregation | JoinInput) -> dict[str, Any]:
    """Return the JSON of an input's ``lookups`` and ``apart``, without those that are empty."""
    lookups = {"lookups": [lookup.to_json() for lookup in query.lookups]} if query.lookups else {}
    return {**lookups, **({"apart": query.apart} if query.apart else {})}


def _lookups_from_json(value: dict[str, Any]) -> tuple[Lookup, ...]:
    return tuple(Lookup.from_json(lookup) for lookup in value.get("lookups", ()))


@dataclass(frozen=True)
class Selection:
    """Tuples of one stream that satisfy ``where``; ``outputs`` are over the stream's columns.

    ``stream`` is the stream's id, not its name. With ``lookups`` the columns are those of their tables, too. A query
    with a name in ``apart`` shares nothing with queries that have another, or none.
    """

    stream: str
    where: Expression | None
    outputs: tuple[Output, ...]
    lookups: tuple[Lookup, ...] = ()
    apart: str = ""

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

    def in_written_order(self) -> Selection:
        """Return it: it joins nothing."""
        return self

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
            "where": _where_json(self.where),
            "outputs": [o.to_json() for o in self.outputs],
            **_input_json(self),
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
    lookups: tuple[Lookup, ...] = ()
    apart: str = ""

    alias: ClassVar[str] = ""
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
    def inputs(self) -> tuple[Aggregation]:
        """What it reads: itself says of which stream, and which tuples."""
        return (self,)

    def in_written_order(self) -> Aggregation:
        """Return it: it joins nothing."""
        return self

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
        functions = {measure.function for measure in self.measures}
        has_slices = self.kind == AGGREGATION and "count_distinct" not in functions
        return has_slices and not functions.isdisjoint(("min", "max"))

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
            **({} if self.emit == EMIT_AFTER_WATERMARK else {"emit": self.emit.to_json()}),
            **_input_json(self),
        }


@dataclass(frozen=True)
class JoinInput:
    """One input of a join: the tuples of a stream that satisfy ``where``, an expression over its columns.

    ``keys`` are over its columns, too, one for each attribute that the join compares, in the same order for all inputs;
    None for one that this input is not compared by. ``outer_of`` are the inputs that the ON of a LEFT JOIN compares
    this one with, none for an inner join: where they have no partner in it, its columns are NULL. Of an ``anti`` input,
    which is an outer one, only the rows without a partner are kept. ``on``, over joined rows, is what else the ON of a
    LEFT JOIN asks of a partner. Columns include those of the tables in ``lookups``. A join with a name in ``apart``
    shares nothing with joins that have another, or none.
    """

    stream: str
    alias: str
    where: Expression | None
    keys: tuple[Expression | None, ...]
    outer_of: tuple[int, ...] = ()
    anti: bool = False
    lookups: tuple[Lookup, ...] = ()
    on: Expression | None = None
    apart: str = ""

    @cached_property
    def input(self) -> str:
        """The id of its input, the stream after its lookups."""
        return input_id(self.stream, self.lookups, self.apart)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "stream": self.stream,
            "alias": self.alias,
            "where": _where_json(self.where),
            "keys": [_where_json(key) for key in self.keys],
            "outer_of": list(self.outer_of),
            **({"anti": True} if self.anti else {}),
            **({} if self.on is None else {"on": _where_json(self.on)}),
            **_input_json(self),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> JoinInput:
        """Read what :meth:`to_json` wrote."""
        keys = tuple(_where_from_json(key) for key in value["keys"])
        where, outer_of = _where_from_json(value["where"]), tuple(value["outer_of"])
        anti, lookups = value.get("anti", False), _lookups_from_json(value)
        on = _where_from_json(value.get("on"))
        apart = value.get("apart", "")
        return cls(value["stream"], value["alias"], where, keys, outer_of, anti, lookups, on, apart)


@dataclass(frozen=True)
class Grouping:
    """GROUP BY over joined rows: ``keys``, the measures of each group, and HAVING over both."""

    keys: tuple[Expression, ...]
    measures: tuple[Measure, ...]
    having: Expression | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "keys": [expressions.to_json(key) for key in self.keys],
            "measures": [measure.to_json() for measure in self.measures],
            "having": _where_json(self.having),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Grouping:
        """Read what :meth:`to_json` wrote."""
        return cls(
            tuple(expressions.from_json(key) for key in value["keys"]),
            tuple(Measure.from_json(measure) for measure in value["measures"]),
            _where_from_json(value["having"]),
        )


@dataclass(frozen=True)
class Join:
    """A windowed equi-join of inputs, grouped or not; of one input it gives the tuples of each window.

    Its rows are combinations of a tuple of each input that lie in the same window and have equal keys; one with a NULL
    key has no partner. Expressions over them call column ``c`` of the input with alias ``a`` ``a.c``. Each key and
    measure of ``grouping``, and ``where``, is over such columns. ``outputs`` are, too, or, grouped, over ``key{i}`` and
    ``Measure.name``; in both cases they include ``window_start`` and ``window_end``.

    Inputs are joined in the order that costs least, or, where it is not ``is_reordered``, as they are written
    (:mod:`operators.joins.order`).
    """

    inputs: tuple[JoinInput, ...]
    window: Window | SessionWindow
    outputs: tuple[Output, ...]
    grouping: Grouping | None = None
    where: Expression | None = None
    is_reordered: bool = True

    kind: ClassVar[str] = JOIN
    emit: ClassVar[Emit] = EMIT_AFTER_WATERMARK
    keeps_extremes: ClassVar[bool] = False

    @property
    def is_grouped(self) -> bool:
        """Whether its rows are those of groups."""
        return self.grouping is not None

    @property
    def keys(self) -> tuple[Expression, ...]:
        """What its rows are grouped by, empty for none."""
        return () if self.grouping is None else self.grouping.keys

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures of its groups."""
        return () if self.grouping is None else self.grouping.measures

    @property
    def having(self) -> Expression | None:
        """The condition on its groups, None for none."""
        return None if self.grouping is None else self.grouping.having

    def in_written_order(self) -> Join:
        """Return a join whose inputs are joined as they are written."""
        return replace(self, is_reordered=False)

    def set_apart(self, name: str) -> Join:
        """Return a query that shares nothing with queries that are not set apart under the same name."""
        return replace(self, inputs=tuple(replace(source, apart=name) for source in self.inputs))

    @property
    def has_sessions(self) -> bool:
        """Whether its windows are sessions."""
        return self.window.is_session

    @property
    def streams(self) -> tuple[str, ...]:
        """The ids of all input streams, each once."""
        return tuple(dict.fromkeys(join_input.stream for join_input in self.inputs))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "kind": "join",
            "inputs": [join_input.to_json() for join_input in self.inputs],
            "window": self.window.to_json(),
            "outputs": [o.to_json() for o in self.outputs],
            "grouping": None if self.grouping is None else self.grouping.to_json(),
            **({} if self.where is None else {"where": _where_json(self.where)}),
            **({} if self.is_reordered else {"is_reordered": False}),
        }

    @cached_property
    def over_rows(self) -> tuple[Expression, ...]:
        """All expressions over its rows: conditions, and the outputs or what is grouped by and aggregated."""
        conditions = (*self.ons.values(), *(() if self.where is None else (self.where,)))
        if self.grouping is None:
            return (*conditions, *(output.expression for output in self.outputs))
        arguments = (m.argument for m in self.grouping.measures if m.argument is not None)
        return (*conditions, *self.grouping.keys, *arguments)

    @cached_property
    def ons(self) -> dict[int, Expression]:
        """What the ON of LEFT JOINs asks of partners besides equal keys, by the number of the outer input."""
        return {n: join_input.on for n, join_input in enumerate(self.inputs) if join_input.on is not None}

    @cached_property
    def is_factorised(self) -> bool:
        """Whether rows are counted and aggregated key by key.

        That takes expressions over one input each, which are NULL where an outer input has no tuple for the row. A
        session is of several inputs together, so nothing of it can be counted input by input.
        """
        if self.where is not None or self.ons or self.has_sessions:
            return False
        if self.grouping is None:
            return True
        for number, expression in enumerate(self.over_rows):
            inputs = self.inputs_of(expression)
            if len(inputs) > 1 or (not inputs and number < len(self.grouping.keys)):
                return False
            if any(self.inputs[n].outer_of for n in inputs) and not is_null_for_nulls(expression):
                return False
        return True

    @property
    def is_formed_late(self) -> bool:
        """Whether rows are formed by those who read them."""
        return self.grouping is None and self.is_factorised

    def inputs_of(self, expression: Expression) -> set[int]:
        """Return the numbers of the inputs that an expression over its rows is over."""
        names = set(columns_of(expression))
        prefixes = [f"{join_input.alias}." for join_input in self.inputs]
        return {n for n, prefix in enumerate(prefixes) if any(name.startswith(prefix) for name in names)}


Query = Selection | Aggregation | Join


def lookups_by_input(query: Query) -> list[tuple[Lookup, ...]]:
    """Return the lookups of each input of a query."""
    return [source.lookups for source in query.inputs]


def lookups_of(query: Query) -> tuple[Lookup, ...]:
    """Return all lookups of a query."""
    return tuple(lookup for lookups in lookups_by_input(query) for lookup in lookups)


def query_from_json(value: dict[str, Any]) -> Query:
    """Read what ``to_json`` of a query wrote."""
    if value["kind"] == "join":
        return Join(
            tuple(JoinInput.from_json(join_input) for join_input in value["inputs"]),
            window_from_json(value["window"]),
            tuple(Output.from_json(o) for o in value["outputs"]),
            None if value["grouping"] is None else Grouping.from_json(value["grouping"]),
            _where_from_json(value.get("where")),
            value.get("is_reordered", True),
        )
    where = _where_from_json(value["where"])
    outputs = tuple(Output.from_json(o) for o in value["outputs"])
    apart = value.get("apart", "")
    if value["kind"] == "selection":
        return Selection(value["stream"], where, outputs, _lookups_from_json(value), apart)
    return Aggregation(
        stream=value["stream"],
        window=window_from_json(value["window"]),
        where=where,
        keys=tuple(expressions.from_json(k) for k in value["keys"]),
        measures=tuple(Measure.from_json(m) for m in value["measures"]),
        outputs=outputs,
        having=_where_from_json(value["having"]),
        emit=Emit(*value["emit"]) if "emit" in value else EMIT_AFTER_WATERMARK,
        lookups=_lookups_from_json(value),
        apart=apart,
    )
