"""What tasks tell of their work, for the optimizer's statistics: time by operator, distinct keys, samples of tuples.

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
from typing import Any

import numpy as np
import pyarrow as pa

from operators.offsets import Offset

REPORT_EVERY_US = 1_000_000
SAMPLE_TUPLES = 64


def is_due(start: Offset, end: Offset) -> bool:
    """Whether the batch between two offsets tells of the work: the first in each second of processing time."""
    return end.planned_us // REPORT_EVERY_US > start.planned_us // REPORT_EVERY_US


def index_of(name: str) -> str:
    """Return the name under which the predicate index of an input is reported."""
    return f"index:{name}"


@dataclass
class Work:
    """What a process did since it told last: microseconds by operator, and the most distinct keys of a chunk."""

    busy_us: Counter[str] = field(default_factory=Counter)
    keys: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def timed(self, operator: str) -> Iterator[None]:
        """Count the time that a block takes for an operator."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.busy_us[operator] += int((time.perf_counter() - began) * 1e6)

    def saw_keys(self, operator: str, count: int) -> None:
        """Take note of how many distinct keys a chunk had."""
        self.keys[operator] = max(count, self.keys.get(operator, 0))

    def tell(self) -> dict[str, Any]:
        """Return it in JSON, and begin anew."""
        told = {"busy_us": dict(self.busy_us), "keys": self.keys}
        self.busy_us, self.keys = Counter(), {}
        return told


def united(told: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Bring together what several processes told of work on the same operators."""
    busy: Counter[str] = Counter()
    keys: dict[str, int] = {}
    for each in told:
        busy.update(each["busy_us"])
        for operator, count in each["keys"].items():
            keys[operator] = max(count, keys.get(operator, 0))
    return {"busy_us": dict(busy), "keys": keys}


def draw_sample(tuples: pa.RecordBatch, names: Iterable[str], seed: int) -> str:
    """Return the columns ``names`` of :data:`SAMPLE_TUPLES` tuples, or of all if there are fewer, as text."""
    chosen = tuples.select(sorted(set(names) & set(tuples.schema.names)))
    if chosen.num_rows > SAMPLE_TUPLES:
        rows = np.random.default_rng(seed).choice(chosen.num_rows, SAMPLE_TUPLES, replace=False)
        chosen = chosen.take(pa.array(np.sort(rows)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, chosen.schema) as writer:
        writer.write_batch(chosen)
    return base64.b64encode(sink.getvalue()).decode()


def read_sample(text: str) -> pa.RecordBatch:
    """Read what :func:`draw_sample` made."""
    return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
