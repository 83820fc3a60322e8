"""Rows of windows as a result block, and what the batch record says of a block of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import AGGREGATION
from braid.operators.state.bucket_store import RESULTS, put_window_rows
from braid.operators.windowing.fired_rows import Fired
from braid.sources.core.storage import Storage


class Counted(Protocol):
    """What a batch record has of the rows of a block, by slot."""

    @property
    def slots(self) -> Sequence[int]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def windows(self) -> Sequence[int]: ...
    @property
    def latest_us(self) -> Sequence[int | None]: ...


def block_entry(kind: str, operator: str, stream: str, counted: Counted, path: str) -> dict[str, Any]:
    """Describe a block of fired windows for the batch record; ``stream`` is the first that its queries read."""
    return {
        "path": path,
        "kind": kind,
        "operator": operator,
        "stream": stream,
        "slots": counted.slots,
        "counts": counted.counts,
        "windows": counted.windows,
        "latest_event_us": counted.latest_us,
    }


@dataclass(frozen=True)
class FiredBlock:
    """The rows that an operator has for some of its queries."""

    operator: str
    queries: Sequence[LiveQuery]
    fired: Fired

    def write(self, storage: Storage, seq: int, links: dict[str, str]) -> dict[str, Any]:  # noqa: ARG002
        """Write the rows and return their entry of the batch record; those of sessions are read as an aggregation's."""
        path = put_window_rows(storage, RESULTS, seq, self.fired.rows)
        return block_entry(AGGREGATION, self.operator, self.queries[0].query.streams[0], self.fired, path)
