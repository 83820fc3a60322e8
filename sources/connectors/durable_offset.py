"""How far the log of a push stream is on disk: an offset of 8 bytes in a file that its writer holds.

It moves after the flush, so readers never see a tuple that a power cut could take back. The file is read and written,
never mapped: one that is cut under a map would end the process.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from braid.sources.core.errors import Conflict

DURABLE = struct.Struct("<q")


class DurableOffset:
    """The writer's hold on the file; one process at a time may write a stream."""

    def __init__(self, path: Path, stream: str) -> None:
        """Open the file, or make it; Conflict when another process holds it."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise Conflict(
                f"One process at a time may write stream {stream!r}, and another does; stop it first.",
                stream=stream,
            ) from None
        try:
            if os.fstat(self._file).st_size < DURABLE.size:
                self.set(0)
        except OSError:
            os.close(self._file)
            raise

    def get(self) -> int:
        """Return the offset."""
        return read_durable(self._file) or 0

    def set(self, offset: int) -> None:
        """Let readers see an offset, up to which the log is on disk."""
        os.pwrite(self._file, DURABLE.pack(offset), 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def read_durable(file: int) -> int | None:
    """Return the durable offset in an open file, read until it is the same twice; None where it is not there whole."""
    former = None
    while True:
        data = os.pread(file, DURABLE.size, 0)
        if len(data) < DURABLE.size:
            return None
        if data == former:
            offset: int = DURABLE.unpack(data)[0]
            return offset
        former = data
