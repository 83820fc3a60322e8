"""Finds the rows that queries gave before others read them, for queries that start there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from braid.engine.past_rows import has_past, remove_past, write_past
from braid.operators.derived import queries_behind
from braid.router.result_reader import ResultReader
from braid.session.commands.query_lookup import QueryLookup
from braid.session.state.query_table import number_of
from braid.session.state.session_state import SessionState
from braid.sources.core.derived import is_replay_of_rows
from braid.sources.core.replays import origin_of, query_of
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage


class PastRows:
    """Writes down the past of each replay of a derived stream, once the first batch with that stream is over."""

    def __init__(
        self,
        storage: Storage,
        state: SessionState,
        lookup: QueryLookup,
        results: ResultReader,
        in_background: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self._storage = storage
        self._state = state
        self._lookup = lookup
        self._results = results
        self._in_background = in_background
        self._known: set[str] = set()

    def absorb(self, record: Mapping[str, Any]) -> None:
        """Look, after a batch that the reader of results has taken in, for replays whose past is to be found."""
        replays = set(filter(is_replay_of_rows, record["clocks"]))
        self._known &= replays
        for replay in sorted(replays - self._known):
            origin = self._state.catalog.by_id(origin_of(replay))
            if origin is None or origin.first_seq is None:
                continue
            if has_past(self._storage, replay):
                self._known.add(replay)
            else:
                self._in_background(
                    f"past of {replay}", partial(self._find, replay, origin.definition, origin.first_seq)
                )

    def _find(self, replay: str, definition: StreamDefinition, first_seq: int) -> None:
        """Write down which batches before one have rows of the queries behind a replay."""
        remove_past(self._storage, {stream.definition.id for stream in self._state.catalog.states()} | {replay})
        reader = query_of(replay)
        assert reader is not None, "a replay is for a query"
        partitions: dict[str, Mapping[str, Any] | None] = {}
        for each in queries_behind(definition):
            if each.successor is not None and number_of(each.successor) < number_of(reader):
                partitions[str(each.number)] = None
                continue
            deployed = self._lookup.deployed(each.id)
            deployments = list(deployed.deployments)
            batches = [
                [entry.seq, deployments.index(deployment), count]
                for entry, deployment in self._results.batches(deployed, self._results.index.first, first_seq - 1)
                if (count := sum(part.count for part in entry.parts(deployment.slot)))
            ]
            slots = [[deployment.slot, deployment.active_from] for deployment in deployments]
            partitions[str(each.number)] = {"deployments": slots, "batches": batches}
        write_past(self._storage, replay, partitions)
