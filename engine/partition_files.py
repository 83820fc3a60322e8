"""The durable state of a partition, as files: what a batch changes of it counts once the record of the batch names it.

A *manifest* has the partition's head and says in which files its entries are. Nothing is written over: a batch begins
with the manifest that its offset names (:class:`braid.engine.planning.offsets.Offset`), so it may run any number of
times, anywhere.
"""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from braid.operators.state.bucket_store import STATES, batch_of, read_state
from braid.operators.state.partition_state import unpack
from braid.sources.core.checksums import crc32, with_checksum
from braid.sources.core.storage import Storage


class PartitionFiles:
    """A :class:`braid.operators.state.partition_state.PartitionState`: as it was before batch ``seq``, and what the
    batch changes.

    ``path`` is that of its manifest, None for a partition that has no state yet. Files that the batch drops are deleted
    two batches later, when no batch that might run again can need them.
    """

    def __init__(self, storage: Storage, seq: int, path: str | None) -> None:
        self._storage = storage
        self._seq = seq
        self._path = path
        manifest: dict[str, Any] = {"head": None, "entries": {}, "garbage": []}
        if path is not None:
            manifest = orjson.loads(self._get(path))
        self._head: str | None = manifest["head"]
        self._entries: dict[str, str] = manifest["entries"]
        self._garbage: list[tuple[int, str]] = [(dropped, file) for dropped, file in manifest["garbage"]]
        self._is_changed = False
        self.oldest = min((batch_of(file) for file in (path, *self._entries.values()) if file), default=None)
        """The number of the batch that made the oldest file of the state as it was, None for none."""

    def head(self) -> bytes | None:
        """Return the head, None for a new partition."""
        return None if self._head is None else self._head.encode()

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head = head.decode()
        self._is_changed = True

    def entry(self, seq: int) -> bytes:
        """Return the entry of batch ``seq``."""
        return self._get(self._entries[str(seq)])

    def put_entry(self, seq: int, entry: bytes) -> None:
        """Store the entry of batch ``seq``."""
        self._entries[str(seq)] = self._put(entry)
        self._is_changed = True

    def drop_entry(self, seq: int) -> None:
        """Remove the entry of batch ``seq``."""
        self._garbage.append((self._seq, self._entries.pop(str(seq))))
        self._is_changed = True

    def check(self) -> None:
        """Read all that the partition needs to go on: CorruptData names a file that is not there, or not whole."""
        for path in self._entries.values():
            for payload in unpack(self._get(path)):
                if payload.path:
                    read_state(self._storage, payload.path)

    def write_manifest(self) -> str | None:
        """Write the manifest if the batch changed the state; return the path that the batch record is to name."""
        if not self._is_changed:
            return self._path
        if self._path is not None:
            self._garbage.append((self._seq, self._path))
        garbage = [(dropped, path) for dropped, path in self._garbage if dropped > self._seq - 2]
        for path in {path for _, path in self._garbage} - {path for _, path in garbage}:
            self._storage.delete(path)
        return self._put(orjson.dumps({"head": self._head, "entries": self._entries, "garbage": garbage}))

    def _put(self, data: bytes) -> str:
        path = with_checksum(f"{STATES}/{self._seq:012d}-{uuid.uuid4().hex}", crc32(data))
        self._storage.put(path, data, durable=False)
        return path

    def _get(self, path: str) -> bytes:
        return bytes(read_state(self._storage, path))
