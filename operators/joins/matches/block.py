"""Join blocks: the rows of joins in the result log, not formed yet (late materialization, thesis 5.3.2).

A block says which tuples of each input take part in some row, once for all queries and windows, and how many rows each
window of each query has. Whoever reads a query's rows forms them: the tuples that satisfy its predicates and lie in the
window, joined by the codes of their attributes. Where a block has many of a file's tuples it refers to the file, which
blocks of other operators and windows do, too; else it holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.joins.gathering import gather, gather_numbers, inverse
from braid.operators.state.narrowing import narrow, widen
from braid.operators.state.tuple_bucket import as_distances, from_distances
from braid.operators.state.tuple_files import TIME, TupleFile, TupleFiles
from braid.sources.core.columns import one_array

SLOT, START, END, COUNT = "slot", "start", "end", "rows"

_ROW = "_row"
_INPUTS = b"inputs"
# what a tuple of a block that is read takes besides its columns, about: its row, order, time and codes
_TUPLE_BYTES = 32


@dataclass(frozen=True)
class BlockPiece:
    """Ascending rows of a file, and whether a block is to refer to the file."""

    file: TupleFile
    rows: Places
    refers: bool = False


def code_column(attribute: int) -> str:
    """Return the name of the column with the codes of an attribute."""
    return f"_code{attribute}"


class BlockInput:
    """The tuples of one input, those of equal codes next to each other.

    They are the rows of files that the ``pieces`` name, with the codes of their attributes in the same order, -1 for
    NULL; where all inputs are compared by all attributes, one code stands for their combination. Of what a block holds
    itself it has the columns ``names``.
    """

    def __init__(self, pieces: Sequence[BlockPiece], codes: Mapping[int, Places], names: Sequence[str] = ()) -> None:
        self._pieces = pieces
        self._codes = codes
        self._names = names
        self._columns: dict[str, pa.Array | None] = {}

    @property
    def length(self) -> int:
        """How many tuples there are."""
        return sum(len(piece.rows) for piece in self._pieces)

    @property
    def nbytes(self) -> int:
        """The memory that it and its files take once rows are formed, if all columns are read, about."""
        files = {piece.file.path: piece.file.table.nbytes for piece in self._pieces if piece.file.path}
        widths = (piece.file.table.nbytes / max(1, piece.file.table.num_rows) for piece in self._pieces)
        columns = int(sum(len(p.rows) * w for p, w in zip(self._pieces, widths, strict=True)))
        return _TUPLE_BYTES * self.length + columns + sum(files.values())

    @cached_property
    def _order(self) -> Places | None:
        """The tuples of the pieces by their codes, None where they lie so already."""
        return order_by_codes(list(self._codes.values()))

    @cached_property
    def _places(self) -> Places | None:
        """Where each tuple of the pieces comes to lie, None where it lies there already."""
        return None if self._order is None else inverse(self._order)

    @cached_property
    def codes(self) -> dict[int, Places]:
        """The codes of the tuples, by attribute."""
        if self._order is None:
            return dict(self._codes)
        return {attribute: kernels.take(code, self._order) for attribute, code in self._codes.items()}

    @cached_property
    def times(self) -> npt.NDArray[np.int64]:
        """The event times of the tuples (µs)."""
        if not self._pieces:
            return np.empty(0, dtype=np.int64)
        return gather_numbers([(piece.file.times, piece.rows) for piece in self._pieces], self._places)

    def column(self, name: str) -> pa.Array | None:
        """Return a column, None where no file has it."""
        if name not in self._columns:
            self._columns[name] = _gathered(self._pieces, name, self._places)
        return self._columns[name]

    @property
    def files(self) -> list[str]:
        """The paths of the files that a block is to refer to."""
        return [piece.file.path for piece in self._pieces if piece.refers]

    def written(self, links: Mapping[str, str]) -> tuple[list[tuple[str, int, int]], list[pa.Table]]:
        """Return of each piece its path, first row and number of rows, and the tables that stand for all of them.

        ``links`` say at which path the block finds a file; the path is empty for what the block holds. The tables are
        one of rows and codes, and, if there is any, one of what the block holds.
        """
        headers, distances = [], []
        for piece in self._pieces:
            if piece.refers:
                first, piece_distances = as_distances(piece.rows)
            else:
                first, piece_distances = 0, np.zeros(len(piece.rows), dtype=np.int32)
            headers.append((links[piece.file.path] if piece.refers else "", first, len(piece.rows)))
            distances.append(piece_distances)
        rows = np.concatenate([np.empty(0, dtype=np.int32), *distances])
        codes = {code_column(attribute): pa.array(code) for attribute, code in self._codes.items()}
        tables = [pa.table({_ROW: pa.array(rows), **codes})]
        held_pieces = [piece for piece in self._pieces if not piece.refers]
        if held_pieces:
            columns = {TIME: pa.array(gather_numbers([(piece.file.times, piece.rows) for piece in held_pieces], None))}
            columns |= {
                name: column for name in self._names if (column := _gathered(held_pieces, name, None)) is not None
            }
            tables.append(pa.table(columns))
        return headers, tables

    @classmethod
    def read(cls, headers: Sequence[tuple[str, int, int]], tables: Iterator[pa.Table], files: TupleFiles) -> BlockInput:
        """Read what :meth:`written` returned."""
        table = next(tables)
        prefix = code_column(0)[:-1]
        codes = {
            int(name.removeprefix(prefix)): np.asarray(one_array(table.column(name))).copy()  # so that it is writable
            for name in table.column_names
            if name.startswith(prefix)
        }
        distances = np.asarray(one_array(table.column(_ROW)))
        held_file = TupleFile.in_memory(next(tables)) if any(not path for path, _, _ in headers) else None
        pieces, at, held_rows = [], 0, 0
        for path, first, count in headers:
            if held_file is not None and not path:
                pieces.append(BlockPiece(held_file, np.arange(held_rows, held_rows + count, dtype=np.int32)))
                held_rows += count
            else:
                pieces.append(BlockPiece(files.at(path), from_distances(first, distances[at : at + count])))
            at += count
        return cls(pieces, codes)


def _gathered(pieces: Sequence[BlockPiece], name: str, places: Places | None) -> pa.Array | None:
    """Return a column, NULL where tuples are older than the queries that need it, which do not see these tuples."""
    columns_and_rows = [(piece.file.column(name), piece.rows) for piece in pieces]
    kind = next((column.type for column, _ in columns_and_rows if column is not None), None)
    if kind is None:
        return None
    return gather(
        [
            (pa.nulls(len(rows), kind), np.arange(len(rows), dtype=np.int32)) if column is None else (column, rows)
            for column, rows in columns_and_rows
        ],
        places,
    )


@dataclass(frozen=True)
class JoinBlock:
    """The windows of queries, and the tuples of each input of theirs.

    ``windows`` has slot, start, end (µs) and number of rows, by slot, end and start.
    """

    windows: pa.Table
    inputs: Sequence[BlockInput]

    @property
    def is_of_pairs(self) -> bool:
        """Whether rows are pairs, of two inputs that are compared by one code."""
        return len(self.inputs) == 2 and all(len(block_input.codes) == 1 for block_input in self.inputs)

    def queries_of(self, start: int, end: int) -> int:
        """Return how many queries have rows of the window ``[start, end)``."""
        starts, ends = (np.asarray(one_array(self.windows.column(name))) for name in (START, END))
        return int(np.count_nonzero((starts == start) & (ends == end)))

    @property
    def nbytes(self) -> int:
        """The memory that it takes once its rows are formed, about."""
        return int(self.windows.nbytes) + sum(block_input.nbytes for block_input in self.inputs)

    @property
    def files(self) -> list[str]:
        """The paths of the files that it refers to."""
        return list(dict.fromkeys(path for block_input in self.inputs for path in block_input.files))

    def serialize(self, links: Mapping[str, str]) -> pa.Buffer:
        """Return the block as Arrow IPC streams after each other.

        ``links`` maps the paths of files to those at which whoever reads the block finds them.
        """
        written = [block_input.written(links) for block_input in self.inputs]
        header = {_INPUTS: orjson.dumps([headers for headers, _ in written])}
        tables = [narrow(table) for _, tables in written for table in tables]
        sink = pa.BufferOutputStream()
        for table in (self.windows.replace_schema_metadata(header), *tables):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer, files: TupleFiles) -> JoinBlock:
        """Read what :meth:`serialize` wrote."""
        source = pa.BufferReader(data)
        windows = pa.ipc.open_stream(source).read_all()
        tables = iter(lambda: widen(pa.ipc.open_stream(source).read_all()), None)
        headers = orjson.loads(windows.schema.metadata[_INPUTS])
        return cls(windows, [BlockInput.read(piece_headers, tables, files) for piece_headers in headers])


def order_by_codes(codes: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32] | None:
    """Return the order of rows by their codes, the last counting most; None when they are in it already."""
    order: npt.NDArray[np.int32] | None = None
    for code in codes:
        ordered = code if order is None else kernels.take(code, order)
        if (ordered[1:] >= ordered[:-1]).all():
            continue
        step = np.empty(len(code), dtype=np.int32)
        from_zero = ordered + np.int32(1)  # NULL is -1
        kernels.order_by_code(step, np.zeros(int(from_zero.max()) + 2, dtype=np.int64), from_zero)
        order = step if order is None else kernels.take(order, step)
    return None if order is None or (order[1:] > order[:-1]).all() else order
