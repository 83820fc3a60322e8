"""How far deliveries have got: written by deliverers, read by the service.

Queries are spread over :data:`PARTS` files, ``deliveries/progress/P.json``, by their ids: a deliverer owns some of the
parts and is the only one to write them. Every few seconds it also says that it is alive, in ``deliveries/alive/``.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from braid.sources.core.storage import Storage

PARTS = 16
FOLDER = "deliveries/progress"
ALIVE = "deliveries/alive"
DELIVERING, RETRYING, DONE = "DELIVERING", "RETRYING", "DONE"


LATENCY_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds by which latencies are counted, inclusive: few, because each of them is a series for each query."""


@dataclass
class DeliveryProgress:
    """How far one delivery has got.

    ``cursor`` is the place after the rows that were delivered last, None before the first; between it and batch
    ``next_seq`` the query has no rows. ``waiting_since_us`` is when the oldest batch with rows that are not delivered
    was committed, None when there is none. ``errors`` counts attempts that failed, ``error`` is why the last one did,
    None once one succeeded. ``gaps`` counts how often rows had been removed from the result log before they were
    delivered, ``gap`` is which. ``refused`` counts rows that the place will never take, which were set aside as dead
    letters of the query (:mod:`braid.router.delivery.refused_rows`), ``refusal`` is why the last one was.
    ``latency_counts`` tells how many batches were delivered within each of :data:`LATENCY_SECONDS`, and after the last,
    from the commit of a batch until all its rows were written; ``latency_us`` is the sum. Times are in microseconds.
    """

    state: str = DELIVERING
    cursor: str | None = None
    next_seq: int = 0
    rows: int = 0
    delivered_us: int | None = None
    waiting_since_us: int | None = None
    errors: int = 0
    error: str | None = None
    gaps: int = 0
    gap: str | None = None
    latency_counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_SECONDS) + 1))
    latency_us: int = 0
    refused: int = 0
    refusal: str | None = None

    def __post_init__(self) -> None:
        if len(self.latency_counts) != len(LATENCY_SECONDS) + 1:  # kept by a version that had other bounds
            self.latency_counts, self.latency_us = [0] * (len(LATENCY_SECONDS) + 1), 0

    def count_latency(self, latency_us: int) -> None:
        """Note that a batch was delivered so long after its commit."""
        self.latency_counts[bisect_left(LATENCY_SECONDS, latency_us / 1e6)] += 1
        self.latency_us += latency_us

    def copy(self) -> DeliveryProgress:
        """Return a copy that later changes leave as it is."""
        return replace(self, latency_counts=self.latency_counts.copy())

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be delivered."""
        return self.state == DONE


def part_of(query_id: str) -> int:
    """Return the part that a query is in."""
    return zlib.crc32(query_id.encode()) % PARTS


def read_progress(storage: Storage, parts: Iterable[int] = range(PARTS)) -> dict[str, DeliveryProgress]:
    """Return what is known of the queries in some parts, by their ids."""
    progress: dict[str, DeliveryProgress] = {}
    for part in parts:
        try:
            values: dict[str, dict[str, Any]] = storage.get_json(_path(part))
        except FileNotFoundError:
            continue
        progress |= {query_id: DeliveryProgress(**value) for query_id, value in values.items()}
    return progress


def write_progress(storage: Storage, part: int, progress: Mapping[str, DeliveryProgress]) -> None:
    """Write what is known of the queries in a part."""
    storage.put(_path(part), orjson.dumps({query_id: asdict(entry) for query_id, entry in progress.items()}))


def write_alive(storage: Storage, name: str, parts: Iterable[int], now_us: int) -> None:
    """Say that the deliverer of some parts is alive."""
    storage.put(f"{ALIVE}/{name}.json", orjson.dumps({"at_us": now_us, "parts": list(parts)}), durable=False)


def parts_alive(storage: Storage, since_us: int) -> set[int]:
    """Return the parts whose deliverers have said that they are alive since a time."""
    alive: set[int] = set()
    for name in storage.names(ALIVE):
        try:
            message = orjson.loads(storage.get(f"{ALIVE}/{name}"))
        except (FileNotFoundError, orjson.JSONDecodeError):
            continue
        if message["at_us"] >= since_us:
            alive.update(message["parts"])
    return alive


def _path(part: int) -> str:
    return f"{FOLDER}/{part:02d}.json"
