"""Tuples that are made once and given out again and again, each time with new event times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from braid.bench_driver.queues.datasets import Dataset
from braid.bench_driver.queues.schedule import Schedule, Times

ARROW_TYPES = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(10,2)": pa.decimal128(10, 2),
    "BOOLEAN": pa.bool_(),
    "VARCHAR": pa.string(),
    "TIMESTAMP": pa.timestamp("us"),
}


class Ring:
    """`rows` tuples in memory; tuple `i` of the stream is tuple `i mod rows` of the ring.

    But for its event time, and the columns that the dataset completes by it.
    """

    def __init__(
        self, dataset: Dataset, options: Mapping[str, Any], seed: int, stream: str, rows: int | None = None
    ) -> None:
        """Make the tuples: the same ones for the same arguments, other ones for other streams (thesis 5.7.2).

        There are at least `rows`, the dataset's unless told, and a multiple of its period, so that nothing jumps where
        the ring closes.

        Raises:
            ValueError: the dataset does not take these options, or the seed is negative.
        """
        all_options = dataset.options(options)
        period = dataset.period(all_options)
        self.rows = -(-(rows or dataset.rows) // period) * period
        self.schema = pa.schema([(name, ARROW_TYPES[sql_type]) for name, sql_type in dataset.columns])
        columns = dataset.make(np.random.default_rng([seed, *stream.encode()]), self.rows, all_options)
        self._tuples = {name: _array(column) for name, column in columns.items()}
        self._complete = dataset.complete

    def end_of_turn(self, offset: int) -> int:
        """Return the first offset after `offset` where the ring begins anew."""
        return offset - offset % self.rows + self.rows

    def batch(self, start: int, times: Times, groups: Schedule | None = None) -> pa.RecordBatch:
        """Return the tuples from offset `start` on with these event times, without copying the other columns.

        They must not go beyond `end_of_turn(start)`. `groups` has when the groups of the workload's tuples come, for
        datasets whose columns follow from that.
        """
        if start + len(times) > self.end_of_turn(start):
            raise ValueError(f"[{start}, {start + len(times)}) must not go beyond {self.end_of_turn(start)}")
        position = start % self.rows
        event_times = pa.Array.from_buffers(ARROW_TYPES["TIMESTAMP"], len(times), [None, pa.py_buffer(times)])
        columns = {name: column.slice(position, len(times)) for name, column in self._tuples.items()}
        if self._complete is not None:
            assert groups is not None
            columns |= {name: _array(column) for name, column in self._complete(columns, times, groups).items()}
        return pa.RecordBatch.from_arrays([*columns.values(), event_times], schema=self.schema)


def _array(column: Any) -> pa.Array:
    return column if isinstance(column, pa.Array) else pa.array(column)
