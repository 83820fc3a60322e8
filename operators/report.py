"""What tasks tell of their work, for the optimizer's statistics: time and chunks by operator, samples of tuples.

A process adds up what it does and tells it about once a second, in the record of a batch. Nothing depends on it: what a
process did not tell before it died is not counted.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braid.operators.joins.key_splits import unsplit
from braid.sources.core.columns import one_array

REPORT_EVERY_US = 1_000_000
SAMPLE_TUPLES = 64


def is_report_due(previous_us: int, planned_us: int) -> bool:
    """Return whether the batch planned at ``planned_us``, after one at ``previous_us``, tells of the work.

    It is the first in each second of processing time.
    """
    return planned_us // REPORT_EVERY_US > previous_us // REPORT_EVERY_US


def index_of(name: str) -> str:
    """Return the name under which the predicate index of an input is reported."""
    return f"index:{name}"


class ChunkWork(NamedTuple):
    """How many tuples were added up at once, in how many slices, and how many distinct keys they had."""

    tuples: int = 0
    slices: int = 0
    keys: int = 0


@dataclass
class Work:
    """What a process did since it told last: microseconds by operator, and the largest chunk of each.

    What an operator does for windows of a key split counts as its own.
    """

    busy_us: Counter[str] = field(default_factory=Counter)
    chunks: dict[str, ChunkWork] = field(default_factory=dict)

    @contextmanager
    def timed(self, operator: str) -> Iterator[None]:
        """Count the time that a block takes for an operator."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.busy_us[unsplit(operator)] += int((time.perf_counter() - began) * 1e6)

    def saw(self, operator: str, chunk: ChunkWork) -> None:
        """Take note of a chunk."""
        name = unsplit(operator)
        self.chunks[name] = max(chunk, self.chunks.get(name, chunk))

    def tell(self) -> dict[str, Any]:
        """Return it in JSON, and begin anew."""
        report = {"busy_us": dict(self.busy_us), "chunks": {name: list(chunk) for name, chunk in self.chunks.items()}}
        self.busy_us, self.chunks = Counter(), {}
        return report


def merged(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one report for those of several processes on the same operators."""
    busy: Counter[str] = Counter()
    chunks: dict[str, ChunkWork] = {}
    for report in reports:
        busy.update(report["busy_us"])
        for operator, counts in report["chunks"].items():
            chunk = ChunkWork(*counts)
            chunks[operator] = max(chunk, chunks.get(operator, chunk))
    return {"busy_us": dict(busy), "chunks": {name: list(chunk) for name, chunk in chunks.items()}}


def draw_sample(tuples: pa.RecordBatch | pa.Table, names: Iterable[str], seed: int) -> str:
    """Return the columns ``names`` of :data:`SAMPLE_TUPLES` tuples, or of all if there are fewer, as text."""
    whole = pa.Table.from_batches([tuples]) if isinstance(tuples, pa.RecordBatch) else tuples
    sample = whole.select(sorted(set(names) & set(whole.schema.names)))
    if sample.num_rows > SAMPLE_TUPLES:
        rows = np.random.default_rng(seed).choice(sample.num_rows, SAMPLE_TUPLES, replace=False)
        # to take rows of a table that came in many chunks would join all of these
        sample = pa.concat_tables(sample.slice(row, 1) for row in np.sort(rows).tolist())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, sample.schema) as writer:
        writer.write_batch(pa.record_batch(list(map(one_array, sample.columns)), schema=sample.schema))
    return base64.b64encode(sink.getvalue()).decode()


def read_sample(text: str) -> pa.RecordBatch:
    """Read what :func:`draw_sample` made."""
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
