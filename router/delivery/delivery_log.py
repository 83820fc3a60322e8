"""Which queries have sinks and where their rows are: written by the session, read by deliverers.

A log of numbered records below ``deliveries/log``: queries that a batch deployed or freed, with the epoch of that
batch, and those that are over. Every so often a record holds all there is, and older ones go. A deliverer reads a batch
once it has the record of the batch's epoch: then it knows who has which slot in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from braid.operators.queries import Query, query_from_json
from braid.router.deployment import Deployment
from braid.router.sinks.connectors import SinkDefinition, read_sink
from braid.router.sinks.sink import Subject
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

FOLDER = "deliveries/log"
RECORDS_A_WHOLE = 64
LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class DeliveredQuery:
    """A query whose rows go to a sink: those of its ``deployments``, of which there is one or more, in order.

    ``is_over``: no other will follow, and the last one is freed. ``created_us`` is in microseconds.
    """

    id: str
    name: str | None
    created_us: int
    query: Query
    sink: SinkDefinition
    deployments: tuple[Deployment, ...]
    is_over: bool = False

    @property
    def delivery_id(self) -> str:
        """What tells its rows from those of all others, also of other services that write to the same place."""
        return f"{self.id}-{self.created_us:x}"

    @property
    def subject(self) -> Subject:
        """The part of it that its sink gets."""
        return Subject(self.delivery_id, self.id, self.name, self.query)

    @property
    def first_seq(self) -> int:
        """The first batch that may have rows of it."""
        return self.deployments[0].first_seq

    @property
    def open_slot(self) -> int | None:
        """The slot that it holds, None when it holds none."""
        last = self.deployments[-1]
        return last.slot if last.freed_epoch is None else None

    def slot_at(self, epoch: int) -> int | None:
        """Return the slot that it holds in batches of an epoch, None when it holds none."""
        slots = (deployment.slot for deployment in reversed(self.deployments) if deployment.holds_slot_at(epoch))
        return next(slots, None)

    def freed(self, epoch: int) -> DeliveredQuery:
        """Return the query after a changelog that frees its slot; without a slot it stays as it is."""
        *earlier, last = self.deployments
        if last.freed_epoch is not None:
            return self
        return replace(self, deployments=(*earlier, replace(last, freed_epoch=epoch)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form."""
        fields = {name: getattr(self, name) for name in ("id", "name", "created_us")}
        return {**fields, "query": self.query.to_json(), "sink": self.sink.to_json(), **self._changing_json()}

    def _changing_json(self) -> dict[str, Any]:
        return {"deployments": [deployment.to_json() for deployment in self.deployments], "is_over": self.is_over}

    def is_as(self, value: Mapping[str, Any]) -> bool:
        """Whether a JSON form of this query says the same; cheaper than reading it."""
        return all(value.get(name) == current for name, current in self._changing_json().items())

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DeliveredQuery:
        """Read what :meth:`to_json` wrote."""
        sink = read_sink(value["sink"])
        if sink is None:
            raise CorruptData(f"A query in the delivery log must have a sink; {value['id']!r} has none.")
        fields = dict(value)
        if "deployments" not in fields:  # before queries could be paused, each had one
            deployment = Deployment(**{name: fields.pop(name) for name in _DEPLOYMENT_FIELDS})
            fields |= {"deployments": [deployment.to_json()], "is_over": deployment.freed_epoch is not None}
        deployments = tuple(Deployment(**attributes) for attributes in fields["deployments"])
        return cls(**{**fields, "query": query_from_json(value["query"]), "sink": sink, "deployments": deployments})


_DEPLOYMENT_FIELDS = ("slot", "epoch", "first_seq", "active_from", "freed_epoch")


class Deliveries:
    """The queries with sinks as of a record of the log, by id."""

    def __init__(self) -> None:
        self.queries: dict[str, DeliveredQuery] = {}
        self.epoch = 0

    def apply(self, record: Mapping[str, Any]) -> None:
        """Apply the next record."""
        if record["whole"]:
            query_ids = {value["id"] for value in record["queries"]}
            self.queries = {query_id: query for query_id, query in self.queries.items() if query_id in query_ids}
        for value in record["queries"]:
            query = self.queries.get(value["id"])
            if query is None or not query.is_as(value):
                self.queries[value["id"]] = DeliveredQuery.from_json(value)
        for query_id, freed_epoch in record["freed"].items():
            if query_id in self.queries:
                self.queries[query_id] = self.queries[query_id].freed(freed_epoch)
        for query_id in record.get("over", record["freed"]):  # before queries could be paused, a freed one was over
            if query_id in self.queries:
                self.queries[query_id] = replace(self.queries[query_id], is_over=True)
        self.epoch = record["epoch"]


class DeliveryWriter:
    """The writing end; opened with what the log holds."""

    def __init__(self, storage: Storage) -> None:
        self._log = RecordLog(storage, FOLDER)
        self._number = self._log.latest()
        self.deliveries = Deliveries()
        for number in self._log.numbers():
            self.deliveries.apply(self._log.read(number))

    def write(
        self, queries: Iterable[DeliveredQuery], freed: Mapping[str, int], epoch: int, over: Iterable[str] = ()
    ) -> None:
        """Write what batches up to ``epoch`` changed; durable when this returns.

        ``queries`` are those that were deployed, ``freed`` has the epochs that freed queries, ``over`` are the ids of
        those that will not be deployed again.
        """
        record = {
            "whole": False,
            "queries": [query.to_json() for query in queries],
            "freed": dict(freed),
            "over": list(over),
            "epoch": epoch,
        }
        self._append(record)
        self.deliveries.apply(record)

    @property
    def whole_is_due(self) -> bool:
        """Whether it is time for a record of all there is."""
        return self._number % RECORDS_A_WHOLE == 0

    def write_whole(self, without: Iterable[str] = ()) -> None:
        """Write a record of all there is except the queries ``without``; drop records before the previous such one."""
        for query_id in without:
            del self.deliveries.queries[query_id]
        queries = [query.to_json() for query in self.deliveries.queries.values()]
        self._append({"whole": True, "queries": queries, "freed": {}, "over": [], "epoch": self.deliveries.epoch})
        self._log.trim(self._number - RECORDS_A_WHOLE)

    def _append(self, record: Mapping[str, Any]) -> None:
        self._number += 1  # also when it fails: a record that may be there is not written again
        self._log.append(self._number, dict(record))


class DeliveryFollower:
    """The reading end."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._log = RecordLog(storage, FOLDER)
        self._number = 0
        self._looked = time.monotonic()
        self.deliveries = Deliveries()

    def follow(self) -> bool:
        """Apply the records that are new; return whether there were any."""
        number_before = self._number
        if time.monotonic() > self._looked + LOOK_SECONDS:  # the next record may be gone, after a long pause
            self._log, self._looked = RecordLog(self._storage, FOLDER), time.monotonic()
        for number in self._log.numbers_after(self._number):
            try:
                record = self._log.read(number)
            except FileNotFoundError:  # a record of all there is follows, and this one is in it
                continue
            self.deliveries.apply(record)
            self._number = number
        return self._number > number_before
