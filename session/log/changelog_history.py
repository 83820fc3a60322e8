"""The changelogs as GET /changelogs shows them: the newest in memory, older ones read from the log."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import orjson

from braid.session.log.archive import compact
from braid.session.state.times import rfc3339
from braid.sources.core.record_log import RecordLog

MAX_CHANGELOGS = 1000
MAX_BYTES = 2 << 20
KEPT_BYTES = 8 << 20
_ENTRY_BYTES = 300
"""What one more changelog takes in memory besides its JSON."""


class ChangelogHistory:
    """Pages of changelogs, each as JSON."""

    def __init__(self, log: RecordLog, kept_bytes: int = KEPT_BYTES) -> None:
        self._log = log
        self._kept_bytes = kept_bytes
        self._lock = threading.Lock()
        self._newest: OrderedDict[int, bytes] = OrderedDict()
        self._newest_bytes = 0

    def append(self, epoch: int, record: dict[str, Any]) -> None:
        """Keep a changelog that was just written."""
        encoded = compact(_encode(record))
        with self._lock:
            self._newest[epoch] = encoded
            self._newest_bytes += len(encoded) + _ENTRY_BYTES
            while self._newest_bytes > self._kept_bytes:
                self._newest_bytes -= len(self._newest.popitem(last=False)[1]) + _ENTRY_BYTES

    def after(self, epoch: int) -> list[bytes]:
        """Return the changelogs after an epoch, one at least if there is one: as many as a page holds."""
        page: list[bytes] = []
        size = 0
        for number in self._log.numbers_after(epoch):
            with self._lock:
                encoded = self._newest.get(number)
            if encoded is None:
                try:
                    encoded = _encode(self._log.read(number))
                except FileNotFoundError:  # trimmed a moment ago
                    continue
            size += len(encoded)
            if page and size > MAX_BYTES:
                break
            page.append(encoded)
            if len(page) == MAX_CHANGELOGS:
                break
        return page


def _encode(record: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {
            "epoch": record["epoch"],
            "created_at": rfc3339(record["created_us"]),
            "why": record["why"],
            "created": [{"id": c["id"], "slot": c["slot"], "operator": c["operator"]} for c in record["created"]],
            "deleted": record["deleted"],
            "freed": record["freed"],
            "regrouped": record.get("regrouped", []),
            "split": [
                {"operator": split["operator"], "keys": len(split["hashes"])} for split in record.get("split", ())
            ],
            "streams_created": [stream["name"] for stream in record["streams_created"]],
            "streams_dropped": record["streams_dropped"],
            "changelog_set": record["changelog_set"],
            "capacity": record["capacity"],
            "plan_version": record["plan_version"],
        }
    )
