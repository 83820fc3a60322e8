"""Orders of the list of queries other than that of their ids: by name, state, rows or latency.

Values of queries that run change between two pages. A cursor therefore holds the value that the last query of its page
had then: the next page has the queries that come after that value now.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from braid.session.state.query_record import STATES, QueryRecord
from braid.session.state.query_table import number_of
from braid.sources.core.errors import MalformedRequest

Value = str | int
_VALUES: dict[str, Callable[[QueryRecord], Value | None]] = {
    "name": lambda record: None if record.name is None else record.name.lower(),
    "state": lambda record: STATES.index(record.state),
    "rows": lambda record: record.rows_out,
    "latency": lambda record: record.event_time_latency_us,
}
ORDERS = tuple(sign + column for column in _VALUES for sign in ("", "-"))
"""The least value first, after `-` the greatest. States are in the order of a query's life."""

Place = tuple[bool, Value, int]
"""Where a query stands: first whether it has a value, then the value, then its number."""


@dataclass(frozen=True)
class QueryOrder:
    """An order by one column; queries without a value come last, equal ones in the order in which they came.

    ``name`` must be one of :data:`ORDERS`.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in ORDERS:
            raise MalformedRequest(f"order must be one of oldest, newest, {', '.join(ORDERS)}; got {self.name!r}.")

    @property
    def _is_descending(self) -> bool:
        return self.name.startswith("-")

    def place(self, record: QueryRecord) -> Place:
        """Return where a query stands now; places are compared, the least first (with ``-`` the greatest)."""
        value = _VALUES[self.name.removeprefix("-")](record)
        number = number_of(record.id)
        if self._is_descending:
            return value is not None, 0 if value is None else value, -number
        return value is None, 0 if value is None else value, number

    def first(self, places: Iterable[Place], count: int, after: Place | None) -> list[Place]:
        """Return the first ``count`` places, or those after one, in order."""
        if self._is_descending:
            return heapq.nlargest(count, (place for place in places if after is None or place < after))
        return heapq.nsmallest(count, (place for place in places if after is None or place > after))

    def cursor_of(self, place: Place) -> str:
        """Return the cursor after a place."""
        return base64.urlsafe_b64encode(orjson.dumps([self.name, *place])).decode()

    def read_cursor(self, cursor: str) -> Place:
        """Return the place that a cursor stands for; MalformedRequest for one of another order."""
        try:
            fields: Any = orjson.loads(base64.urlsafe_b64decode(cursor))
        except (binascii.Error, ValueError):
            fields = None
        match fields:
            case [self.name, bool(flag), str() | int() as value, int(number)] if self._fits(flag, value):
                return flag, value, number
        raise MalformedRequest(
            f"cursor must be taken unchanged from an earlier answer with order={self.name}; got {cursor[:100]!r}."
        )

    def _fits(self, flag: bool, value: Value) -> bool:
        """Whether a value can stand behind the first part of a place."""
        has_value = flag == self._is_descending
        return isinstance(value, str) == (has_value and self.name.removeprefix("-") == "name")
