"""Statistics of the running job: how many tuples come, what predicates select of them, how long operators take.

They come with the records of batches (:mod:`operators.report`) and are kept in memory only: what is older than some
half a minute counts little, so a restart has them again soon. Samples are the newest tuples of each input.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions import Expression, columns_of
from operators.report import read_sample
from operators.tuples import Tuples

TIME_CONSTANT_SECONDS = 30.0
SAMPLE_KEPT = 2048
_NEGLIGIBLE = 1e-9
_US = 1e6


@dataclass
class Rate:
    """An amount a second; what is older than :data:`TIME_CONSTANT_SECONDS` counts less than a third."""

    amount: float = 0.0
    seconds: float = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """Take note of what came in the last ``seconds``."""
        kept = math.exp(-seconds / TIME_CONSTANT_SECONDS)
        self.amount = self.amount * kept + amount
        self.seconds = self.seconds * kept + seconds

    @property
    def value(self) -> float:
        """The rate, 0 before anything is known."""
        return self.amount / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Selectivity:
    """Which share of the sampled tuples of an input a predicate selects."""

    share: float
    sampled: int


@dataclass
class _Rates:
    """Rates by name; those that have come to nothing are forgotten."""

    known: dict[str, Rate] = field(default_factory=dict)

    def add(self, amounts: Mapping[str, float], seconds: float) -> None:
        for name in amounts.keys() | self.known.keys():
            self.known.setdefault(name, Rate()).add(amounts.get(name, 0.0), seconds)
        self.known = {name: rate for name, rate in self.known.items() if rate.amount > _NEGLIGIBLE}

    def of(self, names: Iterable[str]) -> float:
        return sum(self.known[name].value for name in names if name in self.known)


class Statistics:
    """What the newest batch records say; may be asked by any thread while one observes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tuples = _Rates()
        self._sources, self._lanes = _Rates(), _Rates()
        self._keys: dict[str, int] = {}
        self._samples: dict[str, deque[pa.RecordBatch]] = {}
        self._last_us: int | None = None
        self._last_report_us: int | None = None

    def observe(self, record: Mapping[str, Any]) -> None:
        """Take note of the next batch record."""
        now_us, report = record["committed_us"], record.get("report")
        with self._lock:
            if self._last_us is not None:
                counted = {stream: float(each["tuples"]) for stream, each in record["streams"].items()}
                self._tuples.add(counted, max(0, now_us - self._last_us) / _US)
            self._last_us = now_us
            if report is None:
                return
            if self._last_report_us is not None:
                seconds = max(0, now_us - self._last_report_us) / _US
                self._sources.add(_in_seconds(report["sources"]), seconds)
                self._lanes.add(_in_seconds(report["lanes"]), seconds)
            self._last_report_us = now_us
            self._keys = {name: n for name, n in self._keys.items() if name in self._sources.known}
            self._keys |= report["sources"]["keys"]
            for name, texts in report["samples"].items():
                kept = self._samples.setdefault(name, deque())
                kept.extend(map(read_sample, texts))
                while sum(batch.num_rows for batch in kept) - kept[0].num_rows >= SAMPLE_KEPT:
                    kept.popleft()

    def tuples_per_second(self, stream: str) -> float:
        """Return how many tuples of a stream come."""
        with self._lock:
            return self._tuples.of([stream])

    def source_cores(self, operators: Iterable[str]) -> float:
        """Return how many seconds a second source tasks spend on some operators: cores that these keep busy."""
        with self._lock:
            return self._sources.of(operators)

    def lane_cores(self, operators: Iterable[str]) -> float:
        """Return the same of lanes."""
        with self._lock:
            return self._lanes.of(operators)

    def all_cores(self) -> float:
        """Return how many cores all operators keep busy."""
        with self._lock:
            return self._sources.of(self._sources.known) + self._lanes.of(self._lanes.known)

    def distinct_keys(self, operators: Iterable[str]) -> int | None:
        """Return the most distinct keys of a chunk that some operator had last, None where that is not known."""
        with self._lock:
            return max((self._keys[name] for name in operators if name in self._keys), default=None)

    def selectivity(self, name: str, where: Expression | None) -> Selectivity | None:
        """Return what a predicate selects of an input, None while no sampled tuple has all its columns."""
        if where is None:
            return Selectivity(1.0, 0)
        needed = set(columns_of(where))
        with self._lock:
            batches = [batch for batch in self._samples.get(name, ()) if needed <= set(batch.schema.names)]
        sampled = sum(batch.num_rows for batch in batches)
        if not sampled:
            return None
        return Selectivity(sum(_selected(where, batch) for batch in batches) / sampled, sampled)


def _selected(where: Expression, batch: pa.RecordBatch) -> int:
    """Return how many tuples a predicate selects."""
    outcome = Tuples.of(batch).value(where).cast(pa.bool_())  # the literal NULL has a type of its own
    return int(np.count_nonzero(np.asarray(pc.fill_null(outcome, False))))


def _in_seconds(told: Mapping[str, Any]) -> dict[str, float]:
    return {operator: busy / _US for operator, busy in told["busy_us"].items()}
