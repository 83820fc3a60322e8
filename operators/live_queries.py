"""The queries that are running at one epoch, and what each of them sees.

Every process of the data plane holds one :class:`LiveQueries` and moves it from epoch to epoch by applying
changelogs with the clocks at the start of the batch in which they become active. Applying the same changelogs with
the same clocks gives the same state everywhere, which is what makes a replayed batch see the same queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from braid.operators.epoch_state import Clocks, EpochChange, EpochState
from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.expressions import Expression
from braid.operators.lookup.lookups import TupleJoin
from braid.operators.predicates.query_set import QuerySets, pack, words_for
from braid.operators.queries import Query, query_from_json

UNGROUPED = 0


@dataclass(frozen=True)
class LiveQuery:
    """A query with its slot, the epoch that created it, and the event times (µs) between which it sees tuples.

    It sees a tuple of stream S at t iff ``active_from[S] < t <= active_to[S]``. In ``active_from`` None means that
    S had no tuple, so all are seen; in ``active_to`` None means the same, so none is seen. ``active_to`` itself is
    None until the query is deleted. ``group`` is its query group (thesis 5.4.1), :data:`UNGROUPED` for none: queries
    of one operator are evaluated together within their group. One that ``is_alone`` shares no cells with others
    (:mod:`braid.operators.aggregation.alone`), for as long as it runs.
    """

    id: str
    slot: int
    epoch: int
    operator: str
    query: Query
    active_from: Clocks
    active_to: Clocks | None = None
    group: int = 0
    is_alone: bool = False

    @property
    def where(self) -> Expression | None:
        """The predicate of a query over one stream."""
        (source,) = self.query.inputs
        return source.where

    def after(self, stream: str) -> int:
        """Return the time after which this query sees tuples of ``stream``."""
        value = self.active_from.get(stream)
        return EARLIEST if value is None else value

    def until(self, stream: str) -> int:
        """Return the last time at which this query sees tuples of ``stream``."""
        if self.active_to is None:
            return LATEST
        value = self.active_to.get(stream)
        return EARLIEST if value is None else value

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for plan snapshots."""
        return {
            "id": self.id,
            "slot": self.slot,
            "epoch": self.epoch,
            "operator": self.operator,
            "query": self.query.to_json(),
            "active_from": dict(self.active_from),
            "active_to": None if self.active_to is None else dict(self.active_to),
            "group": self.group,
            "is_alone": self.is_alone,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LiveQuery:
        """Read what :meth:`to_json` wrote."""
        return cls(**{**value, "query": query_from_json(value["query"])})


def seen_after(streams: Iterable[str], clocks: Clocks, sees_after: Mapping[str, int]) -> dict[str, int | None]:
    """Return the event times after which a new query sees tuples: the clocks then, or what it says itself if later."""
    return {
        stream: max((us for us in (clocks.get(stream), sees_after.get(stream)) if us is not None), default=None)
        for stream in streams
    }


@dataclass
class _Index:
    """The queries of an epoch by what they read, so that no input has to go through all of them to find its own.

    ``inputs`` has, for each stream, the lookups of its inputs; ``readers`` the queries over an input, by kind and slot.
    """

    words: int
    inputs: dict[str, dict[str, tuple[TupleJoin, ...]]] = field(default_factory=dict)
    readers: dict[str, dict[str, list[LiveQuery]]] = field(default_factory=dict)

    def add(self, live: LiveQuery) -> None:
        """Add a query; they must come by slot."""
        for source in live.query.inputs:
            self.inputs.setdefault(source.stream, {})[source.input] = source.lookups
            readers = self.readers.setdefault(source.input, {}).setdefault(live.query.kind, [])
            if not readers or readers[-1] is not live:  # a stream may be joined with itself
                readers.append(live)


class LiveQueries(EpochState):
    """All queries and streams at one epoch."""

    def __init__(self, value: Mapping[str, Any] | None = None) -> None:
        """Begin before the first epoch, or with what :meth:`to_json` returned."""
        super().__init__(value)
        self.epoch: int = 0 if value is None else value["epoch"]
        queries = map(LiveQuery.from_json, () if value is None else value["queries"])
        self.by_slot: dict[int, LiveQuery] = {query.slot: query for query in queries}
        self.without: frozenset[str] = frozenset()
        """Queries of this epoch that are left out, by id."""
        self._made_index: _Index | None = None

    @property
    def version(self) -> tuple[int, frozenset[str]]:
        """What tells these queries from those at other times: the epoch, and who is left out."""
        return self.epoch, self.without

    def leaving_out(self, ids: Collection[str]) -> LiveQueries:
        """Return those of the same epoch without some; it is not to be moved to another epoch."""
        rest = copy(self)
        rest.without = frozenset(ids)
        rest._made_index = None
        rest.by_slot = {slot: live for slot, live in self.by_slot.items() if live.id not in rest.without}
        return rest

    def apply(self, changelog: Mapping[str, Any], clocks: Clocks) -> None:
        """Move to the changelog's epoch; ``clocks`` are those at the start of the batch that activates it.

        ValueError when the changelog is not that of the next epoch.
        """
        epoch = changelog["epoch"]
        if epoch != self.epoch + 1:
            raise ValueError(f"Changelogs apply in order: epoch {self.epoch + 1} must be next, got {epoch}.")
        self._made_index = None
        self._remove(freed["id"] for freed in changelog["freed"])
        for created in changelog["created"]:
            query = query_from_json(created["query"])
            active_from = seen_after(query.streams, clocks, created.get("sees_after", {}))
            live = LiveQuery(
                created["id"],
                created["slot"],
                epoch,
                created["operator"],
                query,
                active_from,
                is_alone=created.get("is_alone", False),  # changelogs of older versions do not say
            )
            self.by_slot[live.slot] = live
        for deleted in changelog["deleted"]:
            holder = self.by_slot.get(deleted["slot"])
            if holder is not None and holder.id == deleted["id"] and holder.active_to is None:
                active_to = {stream: clocks.get(stream) for stream in holder.query.streams}
                self.by_slot[holder.slot] = replace(holder, active_to=active_to)
        for regrouped in changelog.get("regrouped", ()):  # changelogs before there were groups have none
            holder = self.by_slot.get(regrouped["slot"])
            if holder is not None and holder.id == regrouped["id"]:
                self.by_slot[holder.slot] = replace(holder, group=regrouped["group"])
        self.apply_change(EpochChange.of(changelog), clocks)
        self._remove(freed["id"] for freed in changelog["freed"])
        if self.splits and changelog["freed"]:
            self.splits.keep({live.operator for live in self.by_slot.values() if live.epoch < epoch})
        self.epoch = epoch

    def _remove(self, ids: Iterable[str]) -> None:
        removed = set(ids)
        if removed:
            self.by_slot = {slot: live for slot, live in self.by_slot.items() if live.id not in removed}

    @property
    def _index(self) -> _Index:
        if self._made_index is None:
            self._made_index = _Index(words_for(max(self.capacity, max(self.by_slot, default=-1) + 1)))
            for _, live in sorted(self.by_slot.items()):
                self._made_index.add(live)
        return self._made_index

    @property
    def words(self) -> int:
        """Words in a query-set of this epoch."""
        return self._index.words

    def inputs(self, stream: str) -> dict[str, tuple[TupleJoin, ...]]:
        """Return the lookups of each input of ``stream`` that queries have, by the id of the input."""
        return dict(sorted(self._index.inputs.get(stream, {}).items()))

    def over(self, input_id: str, kind: str) -> list[LiveQuery]:
        """Return the queries of a kind that read an input, by slot."""
        return list(self._index.readers.get(input_id, {}).get(kind, ()))

    def kinds_over(self, input_id: str) -> set[str]:
        """Return the kinds of the queries that read an input."""
        return set(self._index.readers.get(input_id, {}))

    def of_kind(self, kind: str) -> list[LiveQuery]:
        """Return all queries of a kind, by slot."""
        return [live for _, live in sorted(self.by_slot.items()) if live.query.kind == kind]

    def by_operator(self, kind: str, input_id: str | None = None) -> dict[str, list[LiveQuery]]:
        """Return the queries of a kind over an input, or over all if None, by operator, each by slot."""
        operators: dict[str, list[LiveQuery]] = {}
        for live in self.of_kind(kind) if input_id is None else self.over(input_id, kind):
            operators.setdefault(live.operator, []).append(live)
        return operators

    def changelog_set_since(self, epoch: int) -> QuerySets:
        """Return the changelog-set between ``epoch`` and now, shape (1, words): thesis eq. 4.1 and 4.2.

        Bit s is 1 when slot s holds the same query at both. The AND of all changelog-sets in between says the same;
        here it is read off the epochs in which the queries were created.
        """
        bits = np.zeros((1, self.words * 64), dtype=np.bool_)
        for slot, live in self.by_slot.items():
            bits[0, slot] = live.epoch <= epoch
        return pack(bits, self.words)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for plan snapshots."""
        return {"epoch": self.epoch, "queries": [live.to_json() for live in self.by_slot.values()], **self.state_json()}
