"""Join blocks: the rows of joins in the result log, not formed yet (late materialization, thesis 5.3.2).

A block has the tuples of each input that take part in some row, once for all queries and windows, and says how many
rows each window of each query has. Whoever reads a query's rows forms them: the tuples that satisfy its predicates and
lie in the window, joined by the codes of their attributes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators import kernels
from operators.join_counts import CountedJoins
from operators.join_parts import columns_for_rows, join_of
from operators.relations import MANY
from operators.tuple_bucket import TupleBucket, between
from sources.columns import one_array

TIME = "_time"
SLOT, START, END, COUNT = "slot", "start", "end", "rows"


def code_column(attribute: int) -> str:
    """Return the name of the column with the codes of an attribute."""
    return f"_code{attribute}"


@dataclass(frozen=True)
class JoinBlock:
    """The windows of queries, and a table of tuples for each input of theirs.

    ``windows`` has slot, start, end (µs) and number of rows, by slot, end and start. ``inputs`` have the columns of
    their streams that some query needs, ``_time`` (µs) and the codes of the attributes, -1 for NULL; where all inputs
    are compared by all attributes, one code stands for their combination.
    """

    windows: pa.Table
    inputs: Sequence[pa.Table]

    def serialize(self) -> pa.Buffer:
        """Return the block as Arrow IPC streams after each other."""
        sink = pa.BufferOutputStream()
        for table in (self.windows, *self.inputs):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> JoinBlock:
        """Read what :meth:`serialize` wrote; numbers are not copied."""
        source = pa.BufferReader(data)
        tables = []
        while source.tell() < source.size():
            tables.append(pa.ipc.open_stream(source).read_all())
        return cls(tables[0], tables[1:])


@dataclass(frozen=True)
class JoinedRows:
    """A block, with what the batch record says of it.

    ``slots`` ascend; for each of them there is the number of its rows and of its windows, and the greatest event time
    (µs) of the slices that these are made of. ``beyond`` are messages for queries, by their id, that had more rows than
    are kept.
    """

    block: JoinBlock
    slots: list[int]
    counts: list[int]
    windows: list[int]
    latest_us: list[int]
    beyond: Mapping[str, str]


def joined_rows(counted: CountedJoins, tuples: Mapping[str, Sequence[TupleBucket]], most_rows: int) -> JoinedRows:
    """Return the rows of windows of one join operator, at most ``most_rows`` of each.

    ``tuples`` are the tuple buckets of each part's operator.
    """
    listed, beyond = [], {}
    counts, windows = Counter[int](), Counter[int]()
    latest: dict[int, int] = {}
    for window in counted.windows:
        live, total = window.parts[0].live, window.rows
        if total > most_rows:
            beyond[live.id] = (
                f"A window has {_many(total)} rows in one lane, of which the first {most_rows} are kept"
                " (setting join_row_limit). Join by more columns, or aggregate."
            )
        rows = min(total, most_rows)
        listed.append((live.slot, window.end, window.start, rows))
        counts[live.slot] += rows
        windows[live.slot] += 1
        latest[live.slot] = max(latest.get(live.slot, window.newest), window.newest)
    columns = zip(*sorted(listed), strict=True)
    table = pa.table({n: pa.array(c, pa.int64()) for n, c in zip((SLOT, END, START, COUNT), columns, strict=True)})
    block = JoinBlock(table, [_chosen(counted, number, tuples) for number in range(len(counted.keys))])
    slots = sorted(counts)
    rows_of, windows_of, latest_of = ([each[slot] for slot in slots] for each in (counts, windows, latest))
    return JoinedRows(block, slots, rows_of, windows_of, latest_of, beyond)


def _many(rows: int) -> str:
    return str(rows) if rows < MANY else f"more than {MANY}"


def _chosen(counted: CountedJoins, number: int, tuples: Mapping[str, Sequence[TupleBucket]]) -> pa.Table:
    """Return the tuples of one input that take part in some window, those of equal codes next to each other."""
    windows, keys = counted.windows, counted.keys[number]
    part, lives = windows[0].parts[number], {window.parts[0].live.id: window.parts[0].live for window in windows}
    names = sorted({name for live in lives.values() for name in columns_for_rows(join_of(live), number)})
    first, last = min(window.start for window in windows), max(window.end for window in windows)
    is_wanted = np.append(counted.wanted[number], False)  # the place of what is left out is the end
    found = [_with_places(np.empty(0, np.int64), {a: np.empty(0, np.int64) for a in keys.codes})]
    for bucket in between(tuples.get(part.operator, ()), first, last):
        place = kernels.taken(keys.places[id(bucket.keys)], bucket.key)
        rows = np.flatnonzero(is_wanted[place] & (bucket.times >= first) & (bucket.times < last))
        piece = _with_places(bucket.times[rows], {a: code[place[rows]] for a, code in keys.codes.items()})
        # a bucket may be older than a query that needs a column; no tuple of it is seen by that query
        for name in names:
            if name in bucket.columns.column_names:
                piece = piece.append_column(name, bucket.columns.column(name).take(pa.array(rows)))
        found.append(piece)
    table = pa.concat_tables(found, promote_options="default").combine_chunks()
    order = order_by_codes([np.asarray(one_array(table.column(code_column(a)))) for a in keys.codes])
    return table if order is None else table.take(pa.array(order))


def order_by_codes(codes: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int64] | None:
    """Return the order of rows by their codes, the last counting most; None when they are in it already."""
    if not codes:
        return None
    if len(codes) > 1:
        order = np.lexsort(list(codes))
        return None if (order[1:] > order[:-1]).all() else order
    (code,) = codes
    if (code[1:] >= code[:-1]).all():
        return None
    order = np.empty(len(code), dtype=np.int64)
    from_zero = code.astype(np.int64) + 1  # NULL is -1
    kernels.order_by_code(order, np.zeros(int(from_zero.max()) + 2, dtype=np.int64), from_zero)
    return order


def _with_places(times: npt.NDArray[np.int64], codes: Mapping[int, npt.NDArray[np.int64]]) -> pa.Table:
    return pa.table(
        {TIME: pa.array(times)} | {code_column(a): pa.array(code.astype(np.int32)) for a, code in codes.items()}
    )
