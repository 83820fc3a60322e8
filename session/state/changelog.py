"""Changelogs: one batch of query creations and deletions each, with its changelog-set (thesis 4.2.1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitarray import bitarray, frozenbitarray

from braid.operators.epoch_state import EpochChange
from braid.operators.queries import Query, query_from_json
from braid.sources.core.errors import CorruptData
from braid.sources.core.schema import StreamDefinition


class _Entry:
    def to_json(self) -> dict[str, Any]:
        """Return a JSON form: the fields by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Created(_Entry):
    """A query that starts with a changelog, the slot it gets, and the operator that runs it.

    One that ``is_alone`` shares no cells with the operator's other queries. Of a stream in ``sees_after`` it sees
    nothing up to an event time (µs).
    """

    id: str
    slot: int
    operator: str
    query: Query
    is_alone: bool = False
    sees_after: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form."""
        fields = {name: value for name, value in super().to_json().items() if name != "sees_after" or value}
        return fields | {"query": self.query.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Created:
        """Read what :meth:`to_json` wrote."""
        return cls(**{**value, "query": query_from_json(value["query"])})


@dataclass(frozen=True)
class Deleted(_Entry):
    """A query that sees no tuples after a changelog; without ``drain`` it is freed by the same changelog."""

    id: str
    slot: int
    drain: bool


@dataclass(frozen=True)
class Freed(_Entry):
    """A query that leaves the operators; its slot may be refilled by the same changelog."""

    id: str
    slot: int


@dataclass(frozen=True)
class Regrouped(_Entry):
    """A query that is evaluated with another query group from a changelog on (thesis 5.4.1)."""

    id: str
    slot: int
    group: int


@dataclass(frozen=True)
class Split(_Entry):
    """Keys of an operator of joins, over ``streams``, that are split among partitions from a changelog on (thesis
    5.6.2).

    They are the keys with one of the ``hashes``; ``number`` 0, without hashes, ends the split before. ``spread`` is the
    input whose tuples are spread, by their columns ``by`` if there are any.
    """

    operator: str
    streams: tuple[str, ...]
    number: int
    hashes: tuple[int, ...]
    spread: int
    by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form."""
        lists = {"streams": list(self.streams), "hashes": list(self.hashes), "by": list(self.by)}
        return super().to_json() | lists

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Split:
        """Read what :meth:`to_json` wrote."""
        streams, hashes = tuple(value["streams"]), tuple(value["hashes"])
        return cls(value["operator"], streams, value["number"], hashes, value["spread"], tuple(value.get("by", ())))


@dataclass(frozen=True)
class RefreshedTable(_Entry):
    """A static table that has the rows in ``file`` from a changelog on, after its refresh ``number``."""

    table: str
    number: int
    file: str


@dataclass(frozen=True)
class Changelog:
    """What changes at ``epoch``.

    ``capacity`` is the number of slots after it and the length of ``changelog_set``. ``requests`` and ``batches`` are
    the numbers of the last request record and batch record that the session had applied when it cut this changelog:
    a replay applies them in the same order. ``raised`` are watermarks that are set from outside (µs, by stream).
    """

    epoch: int
    created_us: int
    why: str
    changelog_set: frozenbitarray
    capacity: int
    plan_version: int
    created: tuple[Created, ...] = ()
    deleted: tuple[Deleted, ...] = ()
    freed: tuple[Freed, ...] = ()
    regrouped: tuple[Regrouped, ...] = ()
    split: tuple[Split, ...] = ()
    refreshed: tuple[RefreshedTable, ...] = ()
    streams_created: tuple[StreamDefinition, ...] = ()
    streams_dropped: tuple[str, ...] = ()
    raised: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    batches: int = 0

    def __post_init__(self) -> None:
        if self.epoch < 1:
            raise CorruptData(f"An epoch must be 1 or more; got {self.epoch!r}.")
        if len(self.changelog_set) != self.capacity:
            raise CorruptData(
                f"The changelog-set of epoch {self.epoch} must have a bit for each of {self.capacity} slots;"
                f" got {self.changelog_set.to01()!r}."
            )
        changed_slots = {c.slot for c in self.created} | {f.slot for f in self.freed if f.slot < self.capacity}
        if any(not 0 <= slot < self.capacity or self.changelog_set[slot] for slot in changed_slots):
            raise CorruptData(
                f"The changelog-set of epoch {self.epoch} must be 0 at the slots {sorted(changed_slots)};"
                f" got {self.changelog_set.to01()!r}."
            )
        undrained_ids = {d.id for d in self.deleted if not d.drain}
        if not undrained_ids <= {f.id for f in self.freed}:
            raise CorruptData(f"Queries deleted without drain must be freed at once; got {self.freed!r}.")

    @property
    def change(self) -> EpochChange:
        """What it changes besides queries."""
        splits = [split.to_json() for split in self.split]
        refreshed = [table.to_json() for table in self.refreshed]
        created, dropped = tuple(self.streams_created), tuple(self.streams_dropped)
        return EpochChange(self.capacity, created, dropped, splits, refreshed, self.raised)

    def to_json(self) -> dict[str, Any]:
        """Return the record of the changelog log."""
        return {
            "epoch": self.epoch,
            "created_us": self.created_us,
            "why": self.why,
            "created": [c.to_json() for c in self.created],
            "deleted": [d.to_json() for d in self.deleted],
            "freed": [f.to_json() for f in self.freed],
            "regrouped": [r.to_json() for r in self.regrouped],
            "split": [s.to_json() for s in self.split],
            "refreshed": [r.to_json() for r in self.refreshed],
            "streams_created": [s.to_json() for s in self.streams_created],
            "streams_dropped": list(self.streams_dropped),
            **({"raised": dict(self.raised)} if self.raised else {}),
            "changelog_set": self.changelog_set.to01(),
            "capacity": self.capacity,
            "plan_version": self.plan_version,
            "requests": self.requests,
            "batches": self.batches,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Changelog:
        """Read what :meth:`to_json` wrote."""
        return cls(
            epoch=value["epoch"],
            created_us=value["created_us"],
            why=value["why"],
            changelog_set=frozenbitarray(value["changelog_set"]),
            capacity=value["capacity"],
            plan_version=value["plan_version"],
            created=tuple(map(Created.from_json, value["created"])),
            deleted=tuple(Deleted(**d) for d in value["deleted"]),
            freed=tuple(Freed(**f) for f in value["freed"]),
            regrouped=tuple(Regrouped(**r) for r in value.get("regrouped", ())),  # older changelogs have none
            split=tuple(map(Split.from_json, value.get("split", ()))),
            refreshed=tuple(RefreshedTable(**r) for r in value.get("refreshed", ())),
            streams_created=tuple(StreamDefinition.from_json(s) for s in value["streams_created"]),
            streams_dropped=tuple(value["streams_dropped"]),
            raised=value.get("raised", {}),
            requests=value["requests"],
            batches=value["batches"],
        )


def resized(bits: bitarray, capacity: int) -> bitarray:
    """Return ``bits`` cut or filled with zeros to ``capacity``: a slot that did not exist held no query."""
    if len(bits) >= capacity:
        return bitarray(bits[:capacity])
    filled = bitarray(capacity)
    filled[: len(bits)] = bits
    return filled
