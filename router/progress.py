"""How far deliveries have got: written by deliverers, read by the service.

Queries are spread over :data:`PARTS` files, ``deliveries/progress/P.json``, by their ids: a deliverer owns some of the
parts and is the only one to write them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from sources.storage import Storage

PARTS = 16
FOLDER = "deliveries/progress"
DELIVERING, RETRYING, FAILED, DONE = STATES = ("DELIVERING", "RETRYING", "FAILED", "DONE")


@dataclass
class Progress:
    """How far one delivery has got.

    ``cursor`` is the place after the rows delivered, for sinks that do not keep it themselves. ``waiting_since_us`` is
    when the oldest batch with rows that are not delivered was committed, None when there is none. ``errors`` counts
    attempts that failed, ``error`` is why the last one did, None once one succeeded. Times are in microseconds.
    """

    state: str = DELIVERING
    cursor: str | None = None
    rows: int = 0
    delivered_us: int | None = None
    waiting_since_us: int | None = None
    errors: int = 0
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be delivered."""
        return self.state in (FAILED, DONE)


def part_of(query_id: str) -> int:
    """Return the part that a query is in."""
    return zlib.crc32(query_id.encode()) % PARTS


def read_progress(storage: Storage, parts: Iterable[int] = range(PARTS)) -> dict[str, Progress]:
    """Return what is known of the queries in some parts, by their ids."""
    found: dict[str, Progress] = {}
    for part in parts:
        try:
            values: dict[str, dict[str, Any]] = orjson.loads(storage.get(_path(part)))
        except FileNotFoundError:
            continue
        found |= {query_id: Progress(**value) for query_id, value in values.items()}
    return found


def write_progress(storage: Storage, part: int, progress: Mapping[str, Progress]) -> None:
    """Write what is known of the queries in a part."""
    storage.put(_path(part), orjson.dumps({query_id: asdict(each) for query_id, each in progress.items()}))


def _path(part: int) -> str:
    return f"{FOLDER}/{part:02d}.json"
