"""What waits for the next changelog."""

from __future__ import annotations

from typing import Any

from braid.session.state.catalog import is_hidden
from braid.sources.core.replays import is_replay, origin_of
from braid.sources.core.schema import StreamDefinition


class PendingChanges:
    """Queries to create, delete and free, streams to announce and drop, watermarks that were
    set from outside, and tables to refresh, with their times (µs).

    Requests come in the order of their times; slots to free come from requests and batches, in any order.
    """

    def __init__(self) -> None:
        self.create: dict[str, int] = {}
        self.delete: dict[str, int] = {}
        self.free: dict[str, int] = {}
        self.streams_created: dict[str, tuple[StreamDefinition, int]] = {}
        # those that were announced before, with other definitions
        self.streams_changed: dict[str, tuple[StreamDefinition, int]] = {}
        self.streams_dropped: dict[str, int] = {}
        self.tables_refreshed: dict[str, int] = {}
        self.raised: dict[str, tuple[int, int]] = {}
        self._first_free_us: int | None = None

    @property
    def requests(self) -> int:
        """How many query requests wait: thesis 4.3.1.1 counts them against the batch size."""
        return len(self.create) + len(self.delete)

    @property
    def urgent(self) -> bool:
        """Whether a changelog must be cut at once: pushes need a stream as soon as it is declared."""
        created_or_dropped = (*self.streams_created, *self.streams_dropped)
        return bool(self.raised) or not all(map(is_hidden, created_or_dropped))

    @property
    def replays(self) -> dict[str, StreamDefinition]:
        """The replays to announce, by the streams that they replay."""
        return {origin_of(each.id): each for each in self.definitions if is_replay(each.id)}

    @property
    def has_changes(self) -> bool:
        """Whether the next changelog would say something."""
        streams = self.streams_created or self.streams_changed or self.streams_dropped or self.raised
        return bool(self.requests or self.free or streams or self.tables_refreshed)

    @property
    def since_us(self) -> int | None:
        """Since when the one that waits longest does, None when nothing waits."""
        firsts = [next(iter(times.values())) for times in (self.create, self.delete) if times]
        if self._first_free_us is not None:
            firsts.append(self._first_free_us)
        firsts += [at_us for _, at_us in (*self.streams_created.values(), *self.streams_changed.values())]
        firsts += [*self.streams_dropped.values(), *self.tables_refreshed.values()]
        firsts += [at_us for _, at_us in self.raised.values()]
        return min(firsts, default=None)

    @property
    def definitions(self) -> list[StreamDefinition]:
        """The streams to announce, for the first time or with another definition."""
        return [definition for definition, _ in (*self.streams_created.values(), *self.streams_changed.values())]

    def created(self, query_id: str, at_us: int) -> None:
        """Let a query wait for its creation."""
        self.create[query_id] = at_us

    def deleted(self, query_id: str, at_us: int) -> None:
        """Let a query wait for its deletion."""
        self.delete[query_id] = at_us

    def freed(self, query_id: str, at_us: int) -> None:
        """Let a query's slot wait to be freed."""
        self.free[query_id] = min(at_us, self.free.get(query_id, at_us))
        self._first_free_us = at_us if self._first_free_us is None else min(at_us, self._first_free_us)

    def cancelled(self, query_id: str) -> None:
        """Forget a query that is not to be created any more, if it waits for that."""
        self.create.pop(query_id, None)

    def failed(self, query_id: str) -> None:
        """Forget a query's deletion, if it waits for one: it is freed instead."""
        self.delete.pop(query_id, None)

    def stream_created(self, definition: StreamDefinition, at_us: int) -> None:
        """Let a stream wait to be announced."""
        self.streams_created[definition.id] = definition, at_us

    def stream_changed(self, definition: StreamDefinition, at_us: int) -> None:
        """Let another definition of a stream wait to be announced."""
        streams = self.streams_created if definition.id in self.streams_created else self.streams_changed
        streams[definition.id] = definition, streams.get(definition.id, (definition, at_us))[1]

    def stream_dropped(self, stream_id: str, at_us: int) -> bool:
        """Let a stream wait to be dropped; one that was never announced is not announced any more: False."""
        self.streams_changed.pop(stream_id, None)
        is_announced = self.streams_created.pop(stream_id, None) is None
        if is_announced:
            self.streams_dropped[stream_id] = at_us
        return is_announced

    def stream_kept(self, stream_id: str) -> None:
        """Forget that a stream is to be dropped, if it waits for that."""
        self.streams_dropped.pop(stream_id, None)

    def table_refreshed(self, table_id: str, at_us: int) -> None:
        """Let a static table wait to be refreshed."""
        self.tables_refreshed.setdefault(table_id, at_us)

    def table_dropped(self, table_id: str) -> None:
        """Forget that a static table is to be refreshed."""
        self.tables_refreshed.pop(table_id, None)

    def watermark_raised(self, stream_id: str, watermark: int, at_us: int) -> None:
        """Let a watermark (µs) that was set from outside wait to be told."""
        former, since_us = self.raised.get(stream_id, (watermark, at_us))
        self.raised[stream_id] = max(former, watermark), since_us

    def clear(self) -> None:
        """Let nothing wait: a changelog has it all."""
        self.create.clear()
        self.delete.clear()
        self.free.clear()
        self.streams_created.clear()
        self.streams_changed.clear()
        self.streams_dropped.clear()
        self.tables_refreshed.clear()
        self.raised.clear()
        self._first_free_us = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the snapshot."""
        return {
            "create": list(self.create.items()),
            "delete": list(self.delete.items()),
            "free": list(self.free.items()),
            "streams_created": [[d.to_json(), at_us] for d, at_us in self.streams_created.values()],
            "streams_changed": [[d.to_json(), at_us] for d, at_us in self.streams_changed.values()],
            "streams_dropped": list(self.streams_dropped.items()),
            "tables_refreshed": list(self.tables_refreshed.items()),
            "raised": [[stream, *raised] for stream, raised in self.raised.items()],
        }

    def fill(self, value: dict[str, Any]) -> None:
        """Have pending what :meth:`to_json` wrote."""
        self.clear()
        self.create.update(value["create"])
        self.delete.update(value["delete"])
        for query_id, at_us in value["free"]:
            self.freed(query_id, at_us)
        for definition, at_us in value["streams_created"]:
            self.stream_created(StreamDefinition.from_json(definition), at_us)
        for definition, at_us in value["streams_changed"]:
            self.stream_changed(StreamDefinition.from_json(definition), at_us)
        self.streams_dropped.update(value["streams_dropped"])
        self.tables_refreshed.update(value["tables_refreshed"])
        self.raised.update({stream: (watermark, at_us) for stream, watermark, at_us in value["raised"]})
