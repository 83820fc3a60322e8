"""Rows that the place of a sink will never take: found out which, and kept as dead letters of their query.

A page that is refused for what is in its rows is tried again ``max_retries`` times. Then :class:`Suspects` has it
delivered in smaller and smaller parts, in order, until a row that is refused stands alone: that one is set aside, and
the rest goes on.

:class:`RefusedRows` keeps each such row in a file of its own, ``deliveries/refused/PART/QUERY~SEQ~ROW.json``, named by
the place of the row among those of its query: a row that is set aside again, after a crash, replaces itself. The file
is durable before a cursor moves past the row, and a delivery that begins anew goes on after the last one set aside. The
deliverer of a part writes and removes its files, the service reads them.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from braid.router.cursor import CursorPosition
from braid.router.delivery.progress import part_of
from braid.sources.core.storage import Storage

FOLDER = "deliveries/refused"
MAX_ROWS, MAX_BYTES = 10_000, 64 << 20
"""Rows and bytes that are kept of a part; what is above goes, the oldest of the query that has most first."""
HURRIED_SECONDS = 60.0
"""For so long after a refusal that did not pass, rows that are refused are not tried again as they are."""


class Suspects:
    """How many rows of a delivery to write at once, after some were refused. Times are of :func:`time.monotonic`."""

    def __init__(self, max_retries: int) -> None:
        self._max_retries = max_retries
        self._retries = 0
        # rows that are left of a page that was refused too often, and how many of them to try
        self._left = 0
        self._at_once = 0
        self._hurried_until = -math.inf

    def at_most(self, rows: int) -> int:
        """Return how many rows to write at once, where it would be ``rows``."""
        return min(rows, self._at_once, self._left) if self._left else rows

    def refuse(self, rows: int, now: float) -> bool:
        """Note that so many rows were refused; return whether to go on at once, with fewer, or without a single one."""
        if not self._left:
            if self._retries < self._max_retries and now >= self._hurried_until:
                self._retries += 1
                return False
            self._left = rows
        self._hurried_until = now + HURRIED_SECONDS
        self._at_once = max(1, rows // 2)
        return True

    def take(self, rows: int) -> None:
        """Note that so many rows were written."""
        self._retries = 0
        self._left = max(0, self._left - rows)
        self._at_once *= 2

    def set_aside(self) -> None:
        """Note that the next row was set aside."""
        self._left -= 1


@dataclass(frozen=True)
class RefusedRow:
    """A row, as a JSON object, and why it was refused; ``received_us`` is when it was set aside, in microseconds."""

    position: CursorPosition
    detail: str
    received_us: int
    row: bytes


@dataclass(frozen=True)
class RefusedPage:
    """Rows in order, and the place after them."""

    rows: list[RefusedRow]
    end: CursorPosition


class RefusedRows:
    """The rows set aside of all queries; each part has one writer."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def keep(self, query_id: str, refused: RefusedRow) -> None:
        """Keep a row of a query; it is durable when this returns."""
        position = refused.position
        content = {
            "detail": refused.detail,
            "received_us": refused.received_us,
            "row": orjson.Fragment(refused.row),
        }
        name = f"{query_id}~{position.seq:020d}~{position.row:020d}.json"
        self._storage.put(f"{_folder(part_of(query_id))}/{name}", orjson.dumps(content))

    def end(self, query_id: str) -> CursorPosition:
        """Return the place after the last row that is kept of a query, the very first place where there is none."""
        last = max((position for position, _ in self._places(query_id)), default=None)
        return CursorPosition(0) if last is None else CursorPosition(last.seq, last.row + 1)

    def read(self, query_id: str, after: CursorPosition, latest: int, limit: int, max_bytes: int) -> RefusedPage:
        """Return rows from a place on, of batches up to ``latest``: at most ``limit``, and about ``max_bytes``."""
        rows: list[RefusedRow] = []
        size, end = 0, after
        for position, name in self._places(query_id):
            if len(rows) >= limit or size >= max_bytes or position.seq > latest:
                break
            if position < after:
                continue
            try:
                content: dict[str, Any] = self._storage.get_json(f"{_folder(part_of(query_id))}/{name}")
            except FileNotFoundError:  # removed a moment ago
                continue
            row = orjson.dumps(content["row"])
            rows.append(RefusedRow(position, content["detail"], content["received_us"], row))
            size, end = size + len(row), CursorPosition(position.seq, position.row + 1)
        return RefusedPage(rows, end)

    def trim(self, parts: Iterable[int], oldest_seq: Callable[[], int]) -> None:
        """Remove rows of batches before the oldest one that is kept, and what is above MAX_ROWS and MAX_BYTES."""
        for part in parts:
            sizes = dict(self._storage.sizes(_folder(part)))
            if not sizes:
                continue
            first_seq = oldest_seq()
            gone = [name for name in sizes if _place(name).seq < first_seq]
            for name in gone:
                del sizes[name]
            for name in [*gone, *_above(sizes)]:
                self._storage.delete(f"{_folder(part)}/{name}")

    def _places(self, query_id: str) -> list[tuple[CursorPosition, str]]:
        names = self._storage.names(_folder(part_of(query_id)))
        return [(_place(name), name) for name in names if name.startswith(f"{query_id}~")]


def _above(sizes: dict[str, int]) -> list[str]:
    """Return the files of a part that are too many or too large."""
    names: dict[str, list[str]] = defaultdict(list)
    for name in sorted(sizes, reverse=True):
        names[name.partition("~")[0]].append(name)
    rows, size = len(sizes), sum(sizes.values())
    largest = [(-sum(sizes[name] for name in of_query), query_id) for query_id, of_query in names.items()]
    heapq.heapify(largest)
    above = []
    while rows > MAX_ROWS or size > MAX_BYTES:
        negative, query_id = largest[0]
        name = names[query_id].pop()
        above.append(name)
        rows, size = rows - 1, size - sizes[name]
        if names[query_id]:
            heapq.heapreplace(largest, (negative + sizes[name], query_id))
        else:
            heapq.heappop(largest)
    return above


def _place(name: str) -> CursorPosition:
    _, seq, row = name.removesuffix(".json").split("~")
    return CursorPosition(int(seq), int(row))


def _folder(part: int) -> str:
    return f"{FOLDER}/{part:02d}"
