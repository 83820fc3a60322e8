"""Rows of joins that are formed late: how many each window has, and which tuples they will be formed of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from braid.operators import kernels
from braid.operators.joins.inputs import columns_for_rows, join_of
from braid.operators.joins.matches.block import COUNT, END, SLOT, START, BlockInput, BlockPiece, JoinBlock
from braid.operators.joins.matches.counts import CountedJoins
from braid.operators.joins.matches.relations import MANY
from braid.operators.state.tuple_bucket import TupleBucket, between

WORTH_REFERRING = 1 / 8
"""A block refers to a file of whose tuples in its partition it has at least this share; else it holds what it has."""
MIN_REFERRED = 2000
"""Fewer tuples of a file are held in any case: a link costs about as much as these."""


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


def joined_rows(counted: CountedJoins, tuples: Mapping[str, Sequence[TupleBucket]], max_rows: int) -> JoinedRows:
    """Return the rows of windows of one join operator, at most ``max_rows`` of each.

    ``tuples`` are the tuple buckets of each live input's operator.
    """
    window_rows, beyond = [], {}
    counts, windows = Counter[int](), Counter[int]()
    latest: dict[int, int] = {}
    for window in counted.windows:
        live, total = window.live_inputs[0].live, window.rows
        if total > max_rows:
            beyond[live.id] = (
                f"A window has {_row_count(total)} rows in one partition, of which the first {max_rows} are kept"
                " (setting join_row_limit). Join by more columns, or aggregate."
            )
        rows = min(total, max_rows)
        window_rows.append((live.slot, window.end, window.start, rows))
        counts[live.slot] += rows
        windows[live.slot] += 1
        latest[live.slot] = max(latest.get(live.slot, window.newest), window.newest)
    columns = zip(*sorted(window_rows), strict=True)
    table = pa.table({n: pa.array(c, pa.int64()) for n, c in zip((SLOT, END, START, COUNT), columns, strict=True)})
    block = JoinBlock(table, [_block_input(counted, number, tuples) for number in range(len(counted.keys))])
    slots = sorted(counts)
    rows_of, windows_of, latest_of = ([counter[slot] for slot in slots] for counter in (counts, windows, latest))
    return JoinedRows(block, slots, rows_of, windows_of, latest_of, beyond)


def _row_count(rows: int) -> str:
    return str(rows) if rows < MANY else f"more than {MANY}"


def _block_input(counted: CountedJoins, number: int, tuples: Mapping[str, Sequence[TupleBucket]]) -> BlockInput:
    """Return the tuples of one input that take part in some window."""
    windows, keys = counted.windows, counted.keys[number]
    live_input, lives = (
        windows[0].live_inputs[number],
        {window.live_inputs[0].live.id: window.live_inputs[0].live for window in windows},
    )
    names = sorted({name for live in lives.values() for name in columns_for_rows(join_of(live), number)})
    first, last = min(window.start for window in windows), max(window.end for window in windows)
    is_wanted = np.ascontiguousarray(counted.wanted[number])
    pieces, places = [], [np.empty(0, dtype=np.int32)]
    for bucket in between(tuples.get(live_input.operator, ()), first, last):
        rows, of_keys = (np.empty(len(bucket.key), dtype=np.int32) for _ in range(2))
        place_of, index = keys.places[id(bucket.keys)], bucket.index
        count = kernels.pick_tuples(
            rows, of_keys, index.rows, bucket.key, place_of, is_wanted, bucket.file.times, first, last
        )
        if count:
            refers = bucket.file.path != "" and count >= max(MIN_REFERRED, WORTH_REFERRING * index.share)
            pieces.append(BlockPiece(bucket.file, rows[:count], refers))
            places.append(of_keys[:count])
    key_places = np.concatenate(places)
    codes = {attribute: kernels.take(code.astype(np.int32), key_places) for attribute, code in keys.codes.items()}
    return BlockInput(pieces, codes, names)
