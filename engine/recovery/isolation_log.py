"""Which batches have been tried in vain, and which the service has ended: what tells that one must be isolated.

Both are small files: the job writes ``attempts.json``, the service writes ``outlasted.json``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson

from braid.engine.data_layout import BATCHES
from braid.engine.recovery.checkpoint import newest_offset
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

ATTEMPTS = "attempts.json"
OUTLASTED = "outlasted.json"
# so often a batch is begun again before it is looked into
MAX_ATTEMPTS = 1


def pending_batch(storage: Storage) -> int | None:
    """Return the number of the batch that Spark has logged and nobody has published, None where there is none."""
    logged = newest_offset(storage)
    return logged if logged > RecordLog(storage, BATCHES).latest() else None


def begin_attempt(storage: Storage) -> bool:
    """Note that the pending batch is about to be run; return whether it must be isolated first."""
    seq = pending_batch(storage)
    if seq is None:
        return False
    before = _read(storage, ATTEMPTS)
    times = before.get("times", 0) + 1 if before.get("seq") == seq else 1
    is_suspect = times > MAX_ATTEMPTS or _read(storage, OUTLASTED).get("seq") == seq
    storage.put(ATTEMPTS, orjson.dumps({"seq": seq, "times": 0 if is_suspect else times}))
    if is_suspect:
        storage.delete(OUTLASTED)
    return is_suspect


def note_outlasted(storage: Storage, seq: int) -> None:
    """Note that batch ``seq`` was ended because it took too long."""
    storage.put(OUTLASTED, orjson.dumps({"seq": seq}))


def _read(storage: Storage, path: str) -> dict[str, Any]:
    with suppress(FileNotFoundError, orjson.JSONDecodeError):
        value = orjson.loads(storage.get(path))
        return value if isinstance(value, dict) else {}
    return {}
