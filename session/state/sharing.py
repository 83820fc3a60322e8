"""Keep equal parts of queries once: thousands of ad-hoc queries differ in little more than a predicate.

What is shared is immutable, or nobody changes it. The tables are bounded: when one is full it is emptied; values that
are shared by then stay so.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from braid.operators.queries import Query

MAX_KEPT = 10_000

Q = TypeVar("Q", bound=Query)


class Shared:
    """A table that gives equal values for equal keys as one object."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._values: dict[Any, Any] = {}

    def __call__(self, key: Any, value: Any) -> Any:
        """Return the value first given with an equal ``key``."""
        first_value = self._values.setdefault(key, value)
        if len(self._values) > self._most:
            self._values = {}
        return first_value


_query_parts = Shared()
_dicts = Shared()


def shared(query: Q) -> Q:
    """Return an equal query whose parts but the predicate are those of an equal query before it."""
    parts = {f.name: getattr(query, f.name) for f in fields(query) if f.name != "where"}
    # by their text, as equal is not the same: 0.0 == -0.0
    shared_parts = _query_parts((type(query), repr(parts)), parts)
    return replace(query, **shared_parts)


def shared_dict(items: dict[str, Any]) -> dict[str, Any]:
    """Return an equal dict, the same for all that are equal; nobody may change it."""
    return _dicts(tuple(items.items()), items)
