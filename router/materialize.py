"""Turn shared result blocks into the rows of one query.

Results are written once for all queries (thesis 4.3.1.6; the copy per query happens here, when somebody reads). A block
is an Arrow IPC file of one batch:

- ``selection``: stream columns and ``_query_set``, little-endian uint64 words, bit ``s`` of word ``s // 64``.
- ``aggregation`` is :class:`operators.windowing.window_rows.WindowRows` instead: ``key0``…, measures. Rows of queries
  with EMIT STREAM have ``_op``, ``_ptime`` and ``_ver``, too.
- ``join`` is a :class:`operators.joins.block.JoinBlock`; :mod:`operators.joins.rows` forms its rows.

Blocks never change, so what is derived from one (the rows of a slot, the order of a batch) is kept in small caches,
and a page out of the middle of a large block costs a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.evaluation import evaluate
from operators.expressions import columns_of
from operators.joins.all_pairs import AllPairs
from operators.joins.block import JoinBlock
from operators.joins.rows import (
    JoinIndex,
    all_pairs,
    form_rows,
    index_window,
    may_pick,
    overlapping,
    pick,
    what_is_indexed,
    windows_of_slot,
)
from operators.predicates.query_set import COLUMN as QUERY_SET
from operators.predicates.query_set import from_arrow
from operators.queries import OP, PARTIAL, PTIME, VER, WINDOW_END, WINDOW_START, Aggregation, Join, Query, Selection
from operators.state.tuple_files import TupleFiles
from operators.windowing.window_rows import WindowRows
from router.deployment import Deployment
from sources.core.errors import CorruptData, TooLarge
from sources.core.least_recently_used import LeastRecentlyUsed
from sources.core.storage import Storage

BLOCK_BYTES = 256 << 20
ROW_INDEX_BYTES = 64 << 20
JOIN_BYTES = 256 << 20

Rows = npt.NDArray[np.int64]
T = TypeVar("T")

CHANGE_FIELDS = (pa.field(OP, pa.string()), pa.field(PTIME, pa.timestamp("us")), pa.field(VER, pa.int64()))


class DeployedQuery(Protocol):
    """What the reader must know of a query: its deployments in order, none for one that no batch has had yet."""

    @property
    def id(self) -> str: ...
    @property
    def query(self) -> Query: ...
    @property
    def deployments(self) -> Sequence[Deployment]: ...


@dataclass(frozen=True)
class BlockPart:
    """The ``count`` rows that a query has in the block at ``path``."""

    path: str
    count: int


class Materializer:
    """Reads result blocks; keeps as many of them as take ``block_bytes``, a file checked when it is read.

    Files are read rather than mapped: one that is cut under a map would end the process.
    """

    def __init__(
        self,
        storage: Storage,
        block_bytes: int = BLOCK_BYTES,
        row_index_bytes: int = ROW_INDEX_BYTES,
        join_bytes: int = JOIN_BYTES,
    ) -> None:
        self._storage = storage
        self._blocks: LeastRecentlyUsed[pa.Table | WindowRows] = LeastRecentlyUsed(block_bytes, lambda b: b.nbytes)
        self._joins: LeastRecentlyUsed[JoinBlock] = LeastRecentlyUsed(join_bytes, lambda block: block.nbytes)
        self._tuples = TupleFiles(partial(read_block, storage))
        self._rows: LeastRecentlyUsed[Rows] = LeastRecentlyUsed(row_index_bytes, lambda rows: rows.nbytes)
        self._pairs: LeastRecentlyUsed[AllPairs] = LeastRecentlyUsed(row_index_bytes, lambda pairs: pairs.nbytes)
        self._indexes: LeastRecentlyUsed[JoinIndex] = LeastRecentlyUsed(row_index_bytes, lambda index: index.nbytes)

    def rows(
        self,
        deployed: DeployedQuery,
        deployment: Deployment,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        most_bytes: int | None = None,
    ) -> pa.Table:
        """Return rows ``[start, start + count)`` of a query in one batch, with the deployment that it has there.

        ``parts`` are the batch's blocks that hold rows of the query, in the order of the batch record. Raises
        CorruptData when one is gone, or does not hold what its batch record says, TooLarge where the rows of a block,
        or of a window of a join, take more than ``most_bytes``.
        """
        if isinstance(deployed.query, Join) and deployed.query.is_formed_late:
            return self._joined_rows(deployed.query, deployment, parts, start, count, most_bytes)
        if not isinstance(deployed.query, Selection):
            return self._window_rows(deployed.query, deployment, parts, start, count, most_bytes)
        pieces = []
        for part in parts:
            if start < part.count and count > 0:
                length = min(part.count - start, count)
                pieces.append(self._selected(deployed.query, deployment.slot, part, start, length, most_bytes))
                count -= length
                start = 0
            else:
                start -= part.count
        return pa.concat_tables(pieces) if pieces else empty_rows(deployed.query)

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._blocks.discard(path)
        self._joins.discard(path)

    def _open(self, path: str) -> pa.Table:
        block = self._blocks.get(path, lambda: read_table(self._storage, path))
        assert isinstance(block, pa.Table)
        return block

    def _open_windows(self, path: str) -> WindowRows:
        windows = self._blocks.get(path, lambda: read_window_rows(self._storage, path))
        assert isinstance(windows, WindowRows)
        return windows

    def _selected(
        self, query: Query, slot: int, part: BlockPart, start: int, count: int, most_bytes: int | None
    ) -> pa.Table:
        block = self._open(part.path)
        indexes = self._rows.get(("selection", part.path, slot), lambda: rows_of_slot(block, slot))
        _check_count(part, slot, len(indexes))
        row_numbers = indexes[start : start + count]
        first, last = int(row_numbers[0]), int(row_numbers[-1])
        span = block.slice(first, last - first + 1)
        if len(row_numbers) < len(span):
            span = span.select(_needed(query, span)).take(row_numbers - first)
        return compute_outputs(query, span, len(row_numbers), most_bytes=most_bytes)

    def _window_rows(
        self,
        query: Aggregation | Join,
        deployment: Deployment,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        most_bytes: int | None,
    ) -> pa.Table:
        slices, slot = [], deployment.slot
        for part in parts:
            slot_rows = self._open_windows(part.path).of_slot(slot)
            _check_count(part, slot, len(slot_rows))
            block = slot_rows.table()
            # blocks of one batch differ in the measures of other queries, and in their order
            names = [*window_order(query), *sorted(_needed(query, block))]
            slices.append(block.select(list(dict.fromkeys(names))))
        all_rows = pa.concat_tables(slices)
        key = ("aggregation", tuple(part.path for part in parts), slot)
        order = self._rows.get(key, lambda: order_windows(all_rows, query))
        row_numbers = order[start : start + count]
        rows = all_rows.select(_needed(query, all_rows)).take(row_numbers)
        return compute_outputs(query, rows, len(row_numbers), _active_from(deployment), most_bytes)

    def _joined_rows(
        self,
        query: Join,
        deployment: Deployment,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        most_bytes: int | None,
    ) -> pa.Table:
        slot, active_from = deployment.slot, deployment.active_from
        paths = [part.path for part in parts]
        blocks = [self._joins.get(path, partial(read_join_block, self._storage, path, self._tuples)) for path in paths]
        windows = windows_of_slot(blocks, slot)
        for number, part in enumerate(parts):
            _check_count(part, slot, sum(window.count for window in windows if window.block == number))
        pieces = []
        for window, first, length in overlapping(windows, start, count):
            block = blocks[window.block]
            index = self._indexes.get(
                (paths[window.block], window.start, window.end, what_is_indexed(query, window.start, active_from)),
                partial(self._index, query, block, paths[window.block], window.start, window.end, active_from),
            )
            rows = form_rows(query, block, window, index.page(first, length))
            if len(rows) != length:
                raise _lost(paths[window.block], f"a window of slot {slot} has fewer rows than {window.count}")
            pieces.append(compute_outputs(query, rows, length, _active_from(deployment), most_bytes))
        return pa.concat_tables(pieces) if pieces else empty_rows(query)

    def _index(
        self, query: Join, block: JoinBlock, path: str, start: int, end: int, active_from: Mapping[str, int | None]
    ) -> JoinIndex:
        if may_pick(query, block, start, end, active_from):
            pairs = self._pairs.get((path, start, end), partial(all_pairs, block, start, end))
            if pairs.is_worth:
                return pick(query, block, pairs)
        return index_window(query, block, start, end, active_from)


def _active_from(deployment: Deployment) -> int | None:
    """Return the event time (µs) at or before which the windows begin that are partial, None where none is."""
    return max((time for time in deployment.active_from.values() if time is not None), default=None)


def read_join_block(storage: Storage, path: str, tuples: TupleFiles) -> JoinBlock:
    """Read the join block at ``path``; ``tuples`` reads what it refers to."""
    return _parsed(storage, path, lambda data: JoinBlock.deserialize(data, tuples))


def read_window_rows(storage: Storage, path: str) -> WindowRows:
    """Read the rows of windows at ``path``; CorruptData when they are not there, or damaged."""
    return _parsed(storage, path, WindowRows.read)


def read_table(storage: Storage, path: str) -> pa.Table:
    """Read the Arrow IPC file at ``path`` in the same way."""
    return _parsed(storage, path, lambda data: pa.ipc.open_file(data).read_all())


def _parsed(storage: Storage, path: str, parse: Callable[[pa.Buffer], T]) -> T:
    data = read_block(storage, path)
    try:
        return parse(data)
    except pa.ArrowInvalid as error:
        raise _lost(path, error) from error


def read_block(storage: Storage, path: str) -> pa.Buffer:
    """Read a file of the result log; CorruptData when it is not there, or damaged."""
    try:
        return storage.read(path)
    except (FileNotFoundError, CorruptData) as error:
        raise _lost(path, "it is missing" if isinstance(error, OSError) else "its bytes are others") from error


def _lost(path: str, why: object) -> CorruptData:
    return CorruptData(f"The file {path} must hold what was written; it does not: {why}.")


def rows_of_slot(block: pa.Table, slot: int) -> Rows:
    """Return the ascending row numbers of a selection block whose query-set has bit ``slot``."""
    row_numbers, first_row = [], 0
    for chunk in block.column(QUERY_SET).chunks:
        if len(chunk) and slot // 64 < chunk.type.byte_width // 8:
            words = from_arrow(cast(pa.FixedSizeBinaryArray, chunk))
            row_numbers.append(np.flatnonzero(words[:, slot // 64] & np.uint64(1 << (slot % 64))) + first_row)
        first_row += len(chunk)
    return np.concatenate(row_numbers) if row_numbers else np.empty(0, np.int64)


def window_order(query: Aggregation | Join) -> list[str]:
    """Return the columns that order one batch's rows of a query with groups."""
    keys = query.keys if isinstance(query, Aggregation) else query.grouping.keys if query.grouping is not None else ()
    return [WINDOW_END, WINDOW_START, *(f"key{i}" for i in range(len(keys))), *([VER] * _is_changelog(query))]


def _is_changelog(query: Query) -> bool:
    return isinstance(query, Aggregation) and query.emit.stream


def order_windows(rows: pa.Table, query: Aggregation | Join) -> Rows:
    """Return the order of one batch's rows: by window_end, window_start, the keys (NULL last), changes as they came."""
    names = window_order(query)
    sort_keys: list[tuple[str, Literal["ascending", "descending"]]] = [(name, "ascending") for name in names]
    order = pc.sort_indices(rows.select(names), sort_keys=sort_keys)  # NULL comes last
    return order.to_numpy().astype(np.int64)


def compute_outputs(
    query: Query, rows: pa.Table, length: int, active_from: int | None = None, most_bytes: int | None = None
) -> pa.Table:
    """Evaluate the outputs of ``query`` over rows of a block.

    Then come ``_partial`` for a windowed query, and the columns of a change for one with EMIT STREAM.
    ``length`` is the number of rows (a query of constants needs no column, and a table of no columns forgets it);
    ``active_from`` (microseconds) is the greatest of the query's streams: a window that began at or before it is
    partial. Raises TooLarge as soon as the outputs take more than ``most_bytes``.
    """
    columns = {name: _flat(rows.column(name)) for name in _needed(query, rows)}
    arrays, size = [], 0
    for output in query.outputs:
        arrays.append(evaluate(output.expression, columns, length))
        size += arrays[-1].nbytes
        if most_bytes is not None and size > most_bytes:
            raise TooLarge(f"{length} rows must take at most {most_bytes} bytes; got more. Read fewer at once.")
    if not isinstance(query, Selection):
        if active_from is None:
            arrays.append(pa.array(np.zeros(length, bool)))
        else:
            window_starts = columns[WINDOW_START].cast(pa.int64())
            arrays.append(pc.less_equal(window_starts, pa.scalar(active_from, pa.int64())))
        if _is_changelog(query):
            arrays += [columns[change.name] for change in CHANGE_FIELDS]
    return pa.Table.from_arrays(arrays, schema=schema_of(query))


def schema_of(query: Query) -> pa.Schema:
    """Return the Arrow schema of the rows of ``query``."""
    fields = [pa.field(output.name, output.expression.type.arrow) for output in query.outputs]
    if not isinstance(query, Selection):
        fields.append(pa.field(PARTIAL, pa.bool_()))
        fields += CHANGE_FIELDS if _is_changelog(query) else ()
    return pa.schema(fields)


def empty_rows(query: Query) -> pa.Table:
    """Return no rows of ``query``."""
    return schema_of(query).empty_table()


def _needed(query: Query, rows: pa.Table) -> list[str]:
    # outputs are few beside the columns of a block that serves thousands of queries
    names = {name for output in query.outputs for name in columns_of(output.expression)}
    if not isinstance(query, Selection):
        names.add(WINDOW_START)
        names |= {change.name for change in CHANGE_FIELDS} if _is_changelog(query) else set()
    return [name for name in rows.column_names if name in names]


def _flat(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    chunks: list[pa.Array] = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _check_count(part: BlockPart, slot: int, count: int) -> None:
    if count != part.count:
        raise _lost(part.path, f"its batch record says that slot {slot} has {part.count} rows, and it has {count}")
