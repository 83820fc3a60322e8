"""What is durable of a partition: a head, and the entries that it names, a batch each; both opaque bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson
import pyarrow as pa


class PartitionState(Protocol):
    """The durable state of one partition, as one batch finds it and leaves it."""

    def head(self) -> bytes | None:
        """Return the head, None for a new partition."""

    def set_head(self, head: bytes) -> None:
        """Replace the head."""

    def entry(self, seq: int) -> bytes:
        """Return the entry of batch ``seq``."""

    def put_entry(self, seq: int, entry: bytes) -> None:
        """Store the entry of batch ``seq``."""

    def drop_entry(self, seq: int) -> None:
        """Remove the entry of batch ``seq``."""


@dataclass(frozen=True)
class Payload:
    """A bucket as it travels: a path into the bucket store, or its bytes."""

    path: str
    data: bytes


def digest_of(*parts: bytes) -> int:
    """Return a number above 0 that differs from that of anything else that may have been written."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return (int.from_bytes(digest.digest()) >> 2) + 1


@dataclass
class Head:
    """What is alive: ``entries`` by batch number, each with its digest, and ``emitted`` entries by operator.

    ``garbage`` are (batch that dropped it, path).
    """

    entries: dict[int, int] = field(default_factory=dict)
    garbage: list[tuple[int, str]] = field(default_factory=list)
    emitted: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the head as it is stored."""
        emitted = {"emitted": self.emitted} if self.emitted else {}
        entries = {"entries": list(self.entries), "digests": list(self.entries.values())}
        return orjson.dumps({**entries, "garbage": self.garbage, **emitted})

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Head:
        """Read what :meth:`to_bytes` wrote; None gives that of a new partition."""
        if data is None:
            return cls()
        value = orjson.loads(data)
        batches = value["entries"]
        digests = value.get("digests", [0] * len(batches))  # older heads have none
        garbage = [(seq, path) for seq, path in value["garbage"]]
        return cls(dict(zip(batches, digests, strict=True)), garbage, value.get("emitted", {}))


def pack(payloads: Sequence[Payload]) -> bytes:
    """Return payloads as an entry: a table of paths and bytes."""
    batch = pa.record_batch(
        [pa.array([p.path for p in payloads], pa.string()), pa.array([p.data for p in payloads], pa.binary())],
        names=["path", "data"],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def unpack(entry: bytes) -> list[Payload]:
    """Read what :func:`pack` wrote."""
    table = pa.ipc.open_stream(entry).read_all()
    return [Payload(*row) for row in zip(table["path"].to_pylist(), table["data"].to_pylist(), strict=True)]
