"""How files of a format are looked through when they are discovered, and read later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from braid.sources.connectors.files.index import IndexedFile
from braid.sources.formats.decoded import Decoded


@dataclass(frozen=True)
class Scan:
    """How many records a file has, and where some begin: see ``IndexedFile`` in ``index.py``."""

    records: int
    marks: list[tuple[int, int]] = field(default_factory=list)


class FilePiece(NamedTuple):
    """Consecutive records of a file, from number ``first`` on (from 0): what they are, and their size in bytes.

    Lines of ``decoded.malformed`` are numbered from 1 within the piece.
    """

    first: int
    records: int
    decoded: Decoded
    bytes: int


class FileFormat(Protocol):
    """One format; ``unit`` is what its records are called."""

    @property
    def unit(self) -> str: ...

    def scan(self, source: Any, size: int) -> Scan:
        """Look through a file; MalformedRequest when it cannot be one of this stream."""

    def read(self, source: Any, file: IndexedFile, start: int, end: int) -> Iterator[FilePiece]:
        """Yield the records ``[start, end)`` of a file, which is as it was scanned."""
