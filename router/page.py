"""Pages of rows, as readers of results and of dead letters give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from braid.router.batch_index import BatchEntry, BatchIndex
from braid.router.cursor import CursorPosition, encode_cursor
from braid.sources.core.errors import CorruptData, MalformedRequest


@dataclass(frozen=True)
class Gap:
    """Rows that nobody can read any more: how many, the first and the last batch with some, and why not the first."""

    rows: int
    first_seq: int
    last_seq: int
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return the form that readers get."""
        return {"rows": self.rows, "batches": [self.first_seq, self.last_seq], "detail": str(self)}

    def __str__(self) -> str:
        batches = f"batch {self.first_seq}"
        if self.last_seq > self.first_seq:
            batches = f"batches {self.first_seq} to {self.last_seq}"
        return f"{self.rows} rows of {batches} cannot be read and are passed over. {self.why}"


def widened(gap: Gap | None, seq: int, rows: int, why: str) -> Gap:
    """Return a gap, if there is one, with more rows after it, of batch ``seq``."""
    return Gap(rows, seq, seq, why) if gap is None else replace(gap, rows=gap.rows + rows, last_seq=seq)


@dataclass(frozen=True)
class Page:
    """Rows in order; ``cursor`` is the place after them, ``has_more`` whether there are rows after it now.

    ``gap`` are rows before them that cannot be read.
    """

    table: pa.Table
    cursor: str
    has_more: bool
    owner: str
    runs: tuple[tuple[int, int, int], ...] = field(default=())
    """Where the rows come from: ``(seq, first row, rows)``."""
    completed: Mapping[int, int] = field(default_factory=dict)
    """The batches whose last row it has, and when these were committed (µs)."""
    gap: Gap | None = None

    def first(self, rows: int) -> Page:
        """Return the page that ends after so many of its rows, which are not all."""
        runs, left = [], rows
        for seq, first, count in self.runs:
            if left > 0:
                runs.append((seq, first, min(count, left)))
                left -= count
        seq, first, count = runs[-1]
        completed = {
            number: at for number, at in self.completed.items() if number < seq or (number == seq and not left)
        }
        cursor = encode_cursor(CursorPosition(seq, first + count), self.owner)
        return replace(
            self, table=self.table.slice(0, rows), cursor=cursor, has_more=True, runs=tuple(runs), completed=completed
        )

    @property
    def cursor_after_gap(self) -> str:
        """The place before the first row."""
        return encode_cursor(CursorPosition(*self.runs[0][:2]), self.owner) if self.runs else self.cursor

    def cursors(self) -> Iterator[str]:
        """Yield, for each row, the cursor of the place after it."""
        for seq, first, count in self.runs:
            for row in range(first + 1, first + count + 1):
                yield encode_cursor(CursorPosition(seq, row), self.owner)


@dataclass(frozen=True)
class PageSpan:
    """The rows ``[start, start + count)`` of a batch, which can be read or not whatever becomes of the others.

    ``take`` yields rows, given how many of the span are before them and how many they are at most; fewer where the page
    is full, CorruptData where they cannot be read.
    """

    start: int
    count: int
    take: Callable[[int, int], Iterator[pa.Table]]


def read_page(
    index: BatchIndex,
    owner: str,
    after: str | None,
    latest: int,
    limit: int,
    batches: Callable[[int], Iterator[tuple[BatchEntry, Sequence[PageSpan]]]],
    empty: Callable[[], pa.Table],
) -> Page:
    """Return up to ``limit`` rows of batches up to ``latest``, after a cursor of ``owner`` or from the oldest kept.

    It ends before rows that cannot be read; the next one passes over them, and says so as its ``gap``. ``batches``
    yields, from a batch on, those that may have rows, with all of these; ``empty`` makes a table without any. Raises
    MalformedRequest for a cursor that is not of the owner, Gone for one below what is kept.
    """
    position = CursorPosition(index.first) if after is None else index.position(after, owner, latest)
    end = CursorPosition(latest + 1)
    tables: list[pa.Table] = []
    runs: list[tuple[int, int, int]] = []
    completed, has_more, gap = {}, False, None
    for entry, spans in batches(position.seq):
        total = sum(span.count for span in spans)
        at = start = position.row_in(entry.seq)
        if start > total:
            raise MalformedRequest(f"The cursor {after!r} points past the end of its batch.")
        for span in spans:
            span_end = span.start + span.count
            if at >= span_end or limit <= 0:
                continue
            try:
                for table in span.take(at - span.start, min(limit, span_end - at)):
                    tables.append(table)
                    at, limit = at + table.num_rows, limit - table.num_rows
            except CorruptData as lost:
                index.check_kept(entry.seq)
                if runs or at > start:
                    break
                gap = widened(gap, entry.seq, span_end - at, lost.detail)
                at = start = span_end
            if at < span_end:
                break
        if at > start:
            runs.append((entry.seq, start, at - start))
            if at == total:
                completed[entry.seq] = entry.committed_us
        if at < total:
            has_more, end = True, CursorPosition(entry.seq, at)
            break
    table = pa.concat_tables(tables) if tables else empty()
    return Page(table, encode_cursor(end, owner), has_more, owner, tuple(runs), completed, gap)
