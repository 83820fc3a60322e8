"""Where the rows of queries are that were there before somebody read them.

A replay of a derived stream reads rows of batches that knew nothing of it. The session finds out which these are, once
the first batch that has the stream is over, and writes them down for the planner and the tasks: of each query behind
the stream the batches with rows of it, in order, the slot that it had there, and how many rows there are. The last of
them has the number before :data:`braid.sources.core.derived.FIRST_ROW`. Queries that were replaced before have no past.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from braid.sources.core.derived import FIRST_ROW
from braid.sources.core.storage import Storage

FOLDER = "past"


@dataclass(frozen=True)
class PastBatch:
    """A batch with rows of a query, the first of which has the number ``first``."""

    seq: int
    slot: int
    active_from: Mapping[str, int | None]
    first: int


def _path(stream_id: str) -> str:
    return f"{FOLDER}/{stream_id}.json"


def write_past(storage: Storage, stream_id: str, partitions: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Write down the past of a replay: by partition ``deployments`` (slot and ``active_from`` each), and ``batches``
    (number, deployment and count of rows each); None for one without a past.
    """
    storage.put_json(_path(stream_id), {"partitions": dict(partitions)})


def has_past(storage: Storage, stream_id: str) -> bool:
    """Whether the past of a replay is written down."""
    return storage.exists(_path(stream_id))


def remove_past(storage: Storage, known: set[str]) -> None:
    """Remove what was written down of replays that are gone."""
    for name in storage.names(FOLDER):
        if name.removesuffix(".json") not in known:
            storage.delete(f"{FOLDER}/{name}")


def past_of(storage: Storage, stream_id: str, reached: Mapping[str, int]) -> dict[str, int] | None:
    """Return the number of the oldest row of each partition; None while that is not known.

    A partition without a past begins where its origin has ``reached``.
    """
    if not has_past(storage, stream_id):
        return None
    past = _read(storage.uri, stream_id)
    return {number: reached.get(number, FIRST_ROW) if each is None else each[1][0] for number, each in past.items()}


def read_past(storage: Storage, stream_id: str, partition: int, start: int, end: int) -> Iterator[PastBatch]:
    """Yield the batches that gave rows ``[start, end)``, in order."""
    found = _read(storage.uri, stream_id).get(str(partition))
    if found is None:
        return
    past, firsts = found
    batches, deployments = past["batches"], past["deployments"]
    for at in range(bisect_right(firsts, start) - 1, len(batches)):
        if firsts[at] >= end:
            return
        seq, deployment, _ = batches[at]
        slot, active_from = deployments[deployment]
        yield PastBatch(seq, slot, active_from, firsts[at])


@lru_cache(maxsize=16)
def _read(uri: str, stream_id: str) -> dict[str, tuple[dict[str, Any], list[int]] | None]:
    """Return of each partition what was written, and the numbers of the first row of each batch, and after the last."""
    read: dict[str, tuple[dict[str, Any], list[int]] | None] = {}
    for number, partition in Storage(uri).get_json(_path(stream_id))["partitions"].items():
        if partition is None:
            read[number] = None
            continue
        counts = [count for _, _, count in partition["batches"]]
        read[number] = partition, list(accumulate(counts, initial=FIRST_ROW - sum(counts)))
    return read
