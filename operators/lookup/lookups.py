"""Lookup joins: what of a static table each tuple of a stream is joined with, before any operator sees it.

A stream with lookups, or with UNNEST, is an *input* of its own: its tuples have the columns of the tables, too, and are
as many as the joins give. All queries over the same input share it, like a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from braid.operators import expressions
from braid.operators.expressions import Expression, columns_of
from braid.operators.lookup.unnest import Unnest

SEMI, ANTI = "semi", "anti"


@dataclass(frozen=True)
class Lookup:
    """A join of each tuple with the rows of a static table that have equal keys.

    ``table`` is the table's id. ``version`` names the file of its rows as they were when the first query with this
    lookup was deployed, and how often the table was refreshed before; :class:`Refreshed` tells what they are since.
    Column ``c`` of the table is called ``name.c`` afterwards. Of each pair in ``keys`` the first is over the tuple's
    columns, those of lookups before it included, the second over the columns of the table. ``on``, over both, says more
    about which rows are joined. With ``left`` a tuple without such a row stays, its columns of the table NULL. Where it
    ``keeps`` tuples, they get no columns: SEMI those that have such a row, each once, ANTI those that have none.
    """

    table: str
    version: str
    name: str
    keys: tuple[tuple[Expression, Expression], ...]
    on: Expression | None = None
    left: bool = False
    keeps: str = ""

    def __str__(self) -> str:
        by = " and ".join(f"{of_tuple} = {of_table}" for of_tuple, of_table in self.keys)
        on = "" if self.on is None else f" and {self.on}"
        form = "left " if self.left else f"{self.keeps} " if self.keeps else ""
        return f"{form}lookup {self.name}@{self.version} on {by}{on}"

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns that it reads, those of its table that its ON names included."""
        read = [*(of_tuple for of_tuple, _ in self.keys), *([] if self.on is None else [self.on])]
        return frozenset(name for expression in read for name in columns_of(expression))

    @property
    def only_finds(self) -> bool:
        """Whether it looks for a key alone, however many rows have that."""
        return bool(self.keeps) and self.on is None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {
            "table": self.table,
            "version": self.version,
            "name": self.name,
            "keys": [[expressions.to_json(key) for key in pair] for pair in self.keys],
            "on": None if self.on is None else expressions.to_json(self.on),
            "left": self.left,
            **({"keeps": self.keeps} if self.keeps else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Lookup:
        """Read what :meth:`to_json` wrote."""
        keys = tuple(
            (expressions.from_json(of_tuple), expressions.from_json(of_table)) for of_tuple, of_table in value["keys"]
        )
        on = None if value["on"] is None else expressions.from_json(value["on"])
        return cls(**{**value, "keys": keys, "on": on})


TupleJoin = Lookup | Unnest
"""What gives tuples further columns, and makes more or fewer of them."""


def tuple_join_from_json(value: Mapping[str, Any]) -> TupleJoin:
    """Read what ``to_json`` of one wrote."""
    return Unnest.from_json(value) if "unnest" in value else Lookup.from_json(value)


def version_name(file: str, refreshes: int) -> str:
    """Return the version of a lookup that begins with the rows in a file, after so many refreshes of its table."""
    return f"{file}-{refreshes}" if refreshes else file


def refreshes_before(version: str) -> int:
    """Return how often a table was refreshed before the first query with this version of a lookup was deployed."""
    return int(version.partition("-")[2] or 0)


def rows_at_first(version: str) -> str:
    """Return the file of the rows that the first query with a version of a lookup began with."""
    return version.partition("-")[0]


class Refreshed(dict[str, tuple[int, str]]):
    """The tables that were refreshed, by their ids: how often, and the file of the rows that they have since.

    A refresh changes which rows existing lookups find, and nothing else: inputs and operators keep their names, and
    what they hold.
    """

    def current(self, lookup: Lookup) -> Lookup:
        """Return a lookup with the file that its rows are in now as its ``version``."""
        number, file = self.get(lookup.table, (0, ""))
        is_older = refreshes_before(lookup.version) < number
        return replace(lookup, version=file if is_older else rows_at_first(lookup.version))

    def apply(self, refreshed: Iterable[Mapping[str, Any]]) -> None:
        """Take over what a changelog says of tables."""
        for change in refreshed:
            self[change["table"]] = change["number"], change["file"]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Refreshed:
        """Read what JSON made of this."""
        return cls({table: (number, file) for table, (number, file) in value.items()})


def input_id(stream: str, lookups: Sequence[TupleJoin], apart: str = "") -> str:
    """Return the id of an input, a stream after ``lookups``: that of the stream where there are none.

    An input that is not shared with all queries has a name of its own, ``apart``.
    """
    return " ".join([stream, *map(str, lookups), *([f"apart {apart}"] if apart else [])])
