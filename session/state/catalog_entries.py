"""What the session knows of a stream and of a static table, besides their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from braid.operators.event_times import ENDED
from braid.operators.lookup.lookups import refreshes_before, version_name
from braid.session.state.times import rfc3339
from braid.sources.connectors.static_table import CONNECTOR, TableDefinition
from braid.sources.core.schema import StreamDefinition

_COUNTERS = ("tuples", "late", "malformed", "skipped", "bytes")


@dataclass
class StreamState:
    """A stream and its progress, as of the last batch record applied.

    ``clock`` and ``watermark`` are event times in microseconds, None before the first tuple. ``fired`` is up
    to where its windows have fired, ``fired_moved_us`` when that last rose (time of commit): it trails the watermark
    where there are many windows to fire. ``error`` says why the last batch could not read the stream,
    ``unavailable`` why it has nothing to read just now, ``users`` how many queries keep it from being dropped,
    ``is_idle`` whether it has been silent for its ``idle_timeout``, ``is_read`` whether a changelog has had a query of
    it. A replay (:mod:`braid.sources.core.replays`) was first read by the batch committed at ``began_us``, and last by
    the one at ``moved_us``; ``raised`` is its watermark as it was set from outside. ``joined`` says where it joined its
    origin: offsets, clock, and when. ``first_seq`` is the first batch that knew of it, of a derived stream.
    """

    definition: StreamDefinition
    clock: int | None = None
    watermark: int | None = None
    fired: int | None = None
    fired_moved_us: int = 0
    tuples: int = 0
    late: int = 0
    malformed: int = 0
    skipped: int = 0
    bytes: int = 0
    offsets: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    unavailable: str | None = None
    is_idle: bool = False
    is_read: bool = False
    joined: dict[str, Any] | None = None
    began_us: int | None = None
    moved_us: int | None = None
    raised: int | None = None
    first_seq: int | None = None
    users: int = 0

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add what one batch took in."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + counts.get(name, 0))
        self.offsets |= counts.get("offsets", {})
        if counts.get("tuples") or counts.get("malformed") or counts.get("unread"):
            self.error = counts.get("unread")

    def move(self, clock: int | None, watermark: int | None, fired: int | None, committed_us: int) -> bool:
        """Set clock, watermark and up to where windows have fired after a batch; return whether the last rose."""
        self.clock = self.clock if clock is None else clock
        self.watermark = self.watermark if watermark is None else watermark
        rose = fired is not None and (self.fired is None or fired > self.fired)
        if rose:
            self.fired, self.fired_moved_us = fired, committed_us
        return rose

    def describe(self) -> dict[str, Any]:
        """Return the body of GET /streams/{name}."""
        definition, schema = self.definition, self.definition.schema
        metadata = dict(schema.metadata)
        return {
            "name": definition.name,
            "id": definition.id,
            "columns": [
                {**f.describe(), "event_time": f.name == schema.event_time}
                | ({"metadata": metadata[f.name]} if f.name in metadata else {})
                for f in schema.fields
            ],
            "source": {
                "connector": definition.connector,
                "format": definition.format,
                "options": dict(definition.options),
            },
            "lateness_seconds": schema.lateness_us / 1e6,
            **definition.watermark.describe(),
            "clock": rfc3339(self.clock),
            "watermark": rfc3339(self.watermark),
            "idle": self.is_idle,
            "ended": self.watermark == ENDED,
            "tuples": self.tuples,
            "late": self.late,
            "malformed": self.malformed,
            "skipped": self.skipped,
            "bytes": self.bytes,
            "offsets": dict(self.offsets),
            "error": self.unavailable or self.error,
            "queries": self.users,
            "created_at": rfc3339(definition.created_us),
            "sql": definition.sql,
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the snapshot; ``users`` is counted again, ``unavailable`` asked for again."""
        return {
            "definition": self.definition.to_json(),
            "clock": self.clock,
            "watermark": self.watermark,
            "fired": self.fired,
            "fired_moved_us": self.fired_moved_us,
            **{name: getattr(self, name) for name in _COUNTERS},
            "offsets": dict(self.offsets),
            "error": self.error,
            "is_idle": self.is_idle,
            "is_read": self.is_read,
            "joined": self.joined,
            "began_us": self.began_us,
            "moved_us": self.moved_us,
            "raised": self.raised,
            "first_seq": self.first_seq,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StreamState:
        """Read what :meth:`to_json` wrote."""
        rest = {name: value[name] for name in value.keys() - {"definition"}}
        return cls(StreamDefinition.from_json(value["definition"]), **rest)


@dataclass
class TableState:
    """A static table.

    ``users`` is how many queries keep it from being dropped. ``refreshes`` counts its refreshes, the last of them with
    the rows in ``file``; ``refreshed`` counts those that batches have begun with, the last of them at
    ``refreshed_us``. ``newest`` is the version of it that lookups of the newest query have.
    """

    definition: TableDefinition
    users: int = 0
    refreshes: int = 0
    file: str = ""
    refreshed: int = 0
    refreshed_us: int | None = None
    newest: str | None = None

    def version_of(self, file: str) -> str:
        """Return the version with which lookups get the rows in a file: where others have these rows, theirs."""
        newest = self.newest
        if newest is not None and self.file == file and refreshes_before(newest) < self.refreshes:
            return newest
        return version_name(file, self.refreshes)

    def refresh(self, file: str) -> None:
        """Give all lookups the rows in a file."""
        self.refreshes, self.file = self.refreshes + 1, file

    def describe(self) -> dict[str, Any]:
        """Return the body of GET /tables/{name}."""
        definition = self.definition
        return {
            "name": definition.name,
            "id": definition.id,
            "columns": [f.describe() for f in definition.schema.fields],
            "source": {"connector": CONNECTOR, "format": definition.format, "options": dict(definition.options)},
            "queries": self.users,
            "created_at": rfc3339(definition.created_us),
            "refreshing": self.refreshed < self.refreshes,
            "refreshed_at": rfc3339(self.refreshed_us),
            "sql": definition.sql,
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the snapshot; ``users`` is counted again."""
        return {
            "definition": self.definition.to_json(),
            "refreshes": self.refreshes,
            "file": self.file,
            "refreshed": self.refreshed,
            "refreshed_us": self.refreshed_us,
            "newest": self.newest,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableState:
        """Read what :meth:`to_json` wrote; older snapshots have definitions alone."""
        state = value if "definition" in value else {"definition": value}
        return cls(**{**state, "definition": TableDefinition.from_json(state["definition"])})
