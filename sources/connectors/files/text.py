"""Files of text, NDJSON and CSV: where records begin, found by looking for newlines, and reading any run of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from braid.sources.connectors.files.index import IndexedFile
from braid.sources.connectors.files.options import FileOptions
from braid.sources.connectors.files.reading import FilePiece, Scan
from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Schema
from braid.sources.formats.csv_records import CsvLayout, decode_pieces, record_ends
from braid.sources.formats.json_lines import decode_json_lines
from braid.sources.formats.texts import MARK, line_ends

SCAN_BYTES = 4 << 20  # also how far marks are apart
READ_BYTES = 1 << 20
LONGEST_RECORD = 32 << 20
_BINARY = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"PAR1": "Parquet"}


class JsonFormat:
    """A JSON object a line; blank lines have offsets, but are no tuples."""

    unit = "line"

    def __init__(self, schema: Schema, scan_bytes: int = SCAN_BYTES, read_bytes: int = READ_BYTES) -> None:
        self._schema = schema
        self._scan_bytes = scan_bytes
        self._read_bytes = read_bytes

    def scan(self, source: Any, size: int) -> Scan:
        """Count lines."""
        begin = len(MARK) if _beginning(source) == MARK else 0
        return _scan(self, source, size, begin, self._scan_bytes)

    def read(self, source: Any, file: IndexedFile, start: int, end: int) -> Iterator[FilePiece]:
        """Yield lines."""
        for first, records, text in _texts(self, source, file, start, end, self._read_bytes):
            yield FilePiece(first, records, decode_json_lines(text, self._schema), len(text))

    def ends(self, text: bytes) -> np.ndarray:
        """Return where lines end."""
        return line_ends(text)

    def count(self, text: bytes) -> tuple[int, int]:
        """Return how many lines are whole, and where the last of them ends."""
        return text.count(b"\n"), text.rfind(b"\n") + 1


class CsvFormat:
    """Records of CSV, after that of the names where there is one; blank ones have offsets, but are no tuples."""

    unit = "row"

    def __init__(
        self, schema: Schema, options: FileOptions, scan_bytes: int = SCAN_BYTES, read_bytes: int = READ_BYTES
    ) -> None:
        self._schema = schema
        self._delimiter = options.delimiter
        self._header = options.header
        self._scan_bytes = scan_bytes
        self._read_bytes = read_bytes

    def scan(self, source: Any, size: int) -> Scan:
        """Check the names of the columns, and count records."""
        begin = len(MARK) if _beginning(source) == MARK else 0
        if self._header:
            names, begin = self._names(source, size, begin)
            CsvLayout.named(names, self._schema, self._delimiter)
        return _scan(self, source, size, begin, self._scan_bytes)

    def read(self, source: Any, file: IndexedFile, start: int, end: int) -> Iterator[FilePiece]:
        """Yield records."""
        layout = CsvLayout.declared(self._schema, self._delimiter)
        if self._header:
            text = source.read_at(file.marks[0][1], 0)
            layout = CsvLayout.named(text.removeprefix(MARK).lstrip(b"\r\n"), self._schema, self._delimiter)
        for first, records, text in _texts(self, source, file, start, end, self._read_bytes):
            for piece in decode_pieces(text, records, self._schema, layout, first):
                yield FilePiece(*piece)

    def ends(self, text: bytes) -> np.ndarray:
        """Return where records end."""
        return record_ends(text, self._delimiter)

    def count(self, text: bytes) -> tuple[int, int]:
        """Return how many records are whole, and where the last of them ends."""
        if b'"' not in text:
            return text.count(b"\n"), text.rfind(b"\n") + 1
        ends = self.ends(text)
        return len(ends), int(ends[-1]) if len(ends) else 0

    def _names(self, source: Any, size: int, begin: int) -> tuple[bytes, int]:
        """Return the first record with text, and where it ends."""
        length = 1 << 14
        while True:
            text = source.read_at(min(length, size - begin), begin)
            skipped = len(text) - len(text.lstrip(b"\r\n"))
            ends = self.ends(text[skipped:])
            is_all = begin + len(text) >= size
            if len(ends) or (is_all and skipped < len(text)):
                end = skipped + (int(ends[0]) if len(ends) else len(text) - skipped)
                return text[skipped:end], begin + end
            if is_all or length > LONGEST_RECORD:
                raise MalformedRequest(
                    "The first record must name the columns, and there is none. Without names say header = 'false'."
                )
            length *= 2


_TextFormat = JsonFormat | CsvFormat


def _beginning(source: Any) -> bytes:
    """Return the first bytes, where a mark of UTF-8 may be; MalformedRequest when they are no text's."""
    beginning: bytes = source.read_at(4, 0)
    for magic, name in _BINARY.items():
        if beginning.startswith(magic):
            raise MalformedRequest(f"It must be text, got {name}. Put it there unpacked.")
    return beginning[: len(MARK)]


def _scan(format: _TextFormat, source: Any, size: int, begin: int, scan_bytes: int) -> Scan:
    records, position, length = 0, begin, scan_bytes
    marks = [(0, begin)]
    while position < size:
        text = source.read_at(min(length, size - position), position)
        count, end = format.count(text)
        is_last = position + len(text) >= size
        if not text or (not is_last and not count and length > LONGEST_RECORD):
            raise MalformedRequest(
                f"A {format.unit} must have at most {LONGEST_RECORD} bytes; {format.unit} {records + 1} has more (a"
                " quote that is not closed?), or the file was cut off."
            )
        records += count + (is_last and end < len(text))
        if is_last:
            break
        position, length = position + end, scan_bytes if count else 2 * length
        if count:
            marks.append((records, position))
    return Scan(records, marks)


def _texts(
    format: _TextFormat, source: Any, file: IndexedFile, start: int, end: int, read_bytes: int
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number of the first record, how many, their text) until ``[start, end)`` is done."""
    record, position = next(mark for mark in reversed(file.marks) if mark[0] <= start)
    length = read_bytes
    while record < end:
        text = source.read_at(min(length, file.size - position), position)
        if not text:
            raise MalformedRequest(f"It must have {file.records} {format.unit}s; it ends at {record}.")
        ends = format.ends(text)
        if position + len(text) >= file.size and (not len(ends) or ends[-1] < len(text)):
            ends = np.append(ends, len(text))
        if not len(ends):
            length *= 2
            continue
        skip, stop = max(start - record, 0), min(end - record, len(ends))
        if skip < stop:
            low, high = int(ends[skip - 1]) if skip else 0, int(ends[stop - 1])
            yield record + skip, stop - skip, text[low:high]
        record, position, length = record + len(ends), position + int(ends[-1]), read_bytes
