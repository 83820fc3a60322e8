"""What the sources of streams have: the extents that their connectors answer, or why there are none."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Mapping
from typing import Any

from braid.engine.data_layout import write_unavailable
from braid.engine.planning.positions import Positions
from braid.engine.planning.rests import Rests
from braid.sources.connectors.connector import Connector, Extent
from braid.sources.connectors.registry import open_for_planner
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage

log = logging.getLogger("braid.planner")


class SourceExtents:
    """Asks the connectors of declared streams, by the streams' ids; whatever one does, the other streams go on.

    A stream rests for a while after its connector failed, or a batch could not read it.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._connectors: dict[str, Connector] = {}
        self._rests = Rests(time.monotonic)
        self._problems: dict[str, str] = {}
        self._published: dict[str, str] | None = None

    @property
    def with_problems(self) -> set[str]:
        """The streams that say less than all that they have, or have nothing to read."""
        return set(self._problems)

    def available(self, stream: StreamDefinition, now_us: int) -> Mapping[str, Extent]:
        """Return what a stream has, by partition: nothing while it rests, or where its connector fails."""
        if stream.id in self._rests:
            return {}
        self._problems.pop(stream.id, None)
        try:
            if stream.id not in self._connectors:
                self._connectors[stream.id] = open_for_planner(stream, self._storage)
            connector = self._connectors[stream.id]
            extents = connector.available(now_us)
            problem = connector.problem
        except Exception as error:
            log.warning("nothing is read of stream %s until its source says what it has: %r", stream.name, error)
            extents, problem = {}, str(error) or type(error).__name__
            self._rests.begin(stream.id)
        if problem is not None:
            self._problems[stream.id] = problem
        return extents

    def oldest(self, stream: str) -> dict[str, int]:
        """Return the oldest offset of each partition, of a stream that said what is available."""
        return self._connectors[stream].oldest()

    def bounds(self, available: Mapping[str, Mapping[str, Extent]]) -> dict[str, Mapping[str, int] | None]:
        """Return up to which offsets the streams that have something will ever go, see :meth:`Connector.bounds`."""
        return {
            stream: self._connectors[stream].bounds()
            for stream, extents in available.items()
            if extents and stream in self._connectors
        }

    def rests(self, stream: str) -> bool:
        """Whether a stream, or a replay, rests."""
        return stream in self._rests

    def learn(self, streams: Mapping[str, Mapping[str, Any]]) -> None:
        """Take note of how a batch could read its streams, from their counts in its record."""
        for stream, counts in streams.items():
            if counts["unread"] is not None:
                self._rests.begin(stream)
            elif counts["tuples"]:
                self._rests.end(stream)

    def forget(self, stream: str) -> None:
        """Let go of a stream that is gone."""
        self._connectors.pop(stream, None)
        self._rests.end(stream)

    def find_cut_off(
        self,
        begins: Positions,
        available: Mapping[str, Mapping[str, Extent]],
        streams: Mapping[str, StreamDefinition],
    ) -> None:
        """Take note of streams that end before where they got to: what they have now is something else."""
        for stream, extents in available.items():
            for partition, extent in extents.items():
                if extent.end < begins[stream][partition]:
                    self._problems[stream] = (
                        f"Stream {streams[stream].name!r} must have what it had: it got to offset"
                        f" {begins[stream][partition]} of partition {partition}, which now ends at {extent.end}. Put"
                        " back what it was, or drop the stream and create it again."
                    )

    def publish_problems(self, streams: Container[str]) -> None:
        """Write down for the session why ``streams`` have nothing to read, whenever that changes."""
        problems = {stream: why for stream, why in self._problems.items() if stream in streams}
        if problems != self._published:
            write_unavailable(self._storage, problems)
            self._published = problems
