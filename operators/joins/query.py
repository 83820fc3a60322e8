"""Joins of streams, as the operators see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from braid.operators import expressions
from braid.operators.evaluation import is_null_for_nulls
from braid.operators.expressions import Expression, columns_of
from braid.operators.lookup.lookups import TupleJoin, input_id
from braid.operators.query_parts import (
    JOIN,
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
    lookups: tuple[TupleJoin, ...] = ()
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
            "where": where_json(self.where),
            "keys": [where_json(key) for key in self.keys],
            "outer_of": list(self.outer_of),
            **({"anti": True} if self.anti else {}),
            **({} if self.on is None else {"on": where_json(self.on)}),
            **input_json(self),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> JoinInput:
        """Read what :meth:`to_json` wrote."""
        keys = tuple(where_from_json(key) for key in value["keys"])
        where, outer_of = where_from_json(value["where"]), tuple(value["outer_of"])
        anti, lookups = value.get("anti", False), lookups_from_json(value)
        on = where_from_json(value.get("on"))
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
            "having": where_json(self.having),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Grouping:
        """Read what :meth:`to_json` wrote."""
        return cls(
            tuple(expressions.from_json(key) for key in value["keys"]),
            tuple(Measure.from_json(measure) for measure in value["measures"]),
            where_from_json(value["having"]),
        )


@dataclass(frozen=True)
class Join:
    """A windowed equi-join of inputs, grouped or not; of one input it gives the tuples of each window.

    Its rows are combinations of a tuple of each input that lie in the same window and have equal keys; one with a NULL
    key has no partner. Expressions over them call column ``c`` of the input with alias ``a`` ``a.c``. Each key and
    measure of ``grouping``, and ``where``, is over such columns. ``outputs`` are, too, or, grouped, over ``key{i}`` and
    ``Measure.name``; in both cases they include ``window_start`` and ``window_end``.

    Inputs are joined in the order that costs least, or, where it is not ``is_reordered``, as they are written
    (:mod:`braid.operators.joins.order`).
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
    event_time: ClassVar[str] = ""

    @property
    def row_window(self) -> RowWindow | None:
        """The windows that its rows are of; None for sessions."""
        return row_window_of(self.window)

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

    def reading(self, streams: Mapping[str, str]) -> Join:
        """Return it over other streams of the same columns, by the ids of those that it reads."""
        inputs = tuple(replace(each, stream=streams.get(each.stream, each.stream)) for each in self.inputs)
        return replace(self, inputs=inputs)

    def over(self, inner: object, columns: object) -> Join:  # noqa: ARG002
        """Return it: its inputs read the rows of inner selections."""
        return self

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
            **({} if self.where is None else {"where": where_json(self.where)}),
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
    def columns_of_rows(self) -> frozenset[str]:
        """The columns of its inputs that its rows are formed of, without the names of these."""
        return frozenset(name.partition(".")[2] for each in self.over_rows for name in columns_of(each))

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

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Join:
        """Read what :meth:`to_json` wrote."""
        return cls(
            tuple(JoinInput.from_json(join_input) for join_input in value["inputs"]),
            window_from_json(value["window"]),
            tuple(Output.from_json(o) for o in value["outputs"]),
            None if value["grouping"] is None else Grouping.from_json(value["grouping"]),
            where_from_json(value.get("where")),
            value.get("is_reordered", True),
        )
