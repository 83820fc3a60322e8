"""Statistics of the running job: how many tuples come, what predicates select of them, how long operators take.

They come with the records of batches (:mod:`braid.operators.report`) and are kept in memory only: what is older than
some half a minute counts little, so a restart has them again soon. Samples are the newest tuples of each input.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.expressions import Expression, columns_of
from braid.operators.predicates.query_set import Bools
from braid.operators.report import ChunkWork, read_sample
from braid.operators.tuples import Tuples

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
        decay = math.exp(-seconds / TIME_CONSTANT_SECONDS)
        self.amount = self.amount * decay + amount
        self.seconds = self.seconds * decay + seconds

    @property
    def value(self) -> float:
        """The rate, 0 before anything is known."""
        return self.amount / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Spent:
    """How many seconds an operator took in source tasks and partitions, for how many tuples, in so many ``seconds``."""

    sources: float
    partitions: float
    tuples: float
    seconds: float

    def since(self, earlier: Spent) -> Spent:
        """Return what came after an earlier one."""
        return Spent(
            self.sources - earlier.sources,
            self.partitions - earlier.partitions,
            self.tuples - earlier.tuples,
            self.seconds - earlier.seconds,
        )

    @property
    def per_tuple(self) -> float:
        """Seconds a tuple; there must be some."""
        return (self.sources + self.partitions) / self.tuples

    @property
    def cores(self) -> float:
        """How many cores it kept busy."""
        return (self.sources + self.partitions) / self.seconds if self.seconds > 0 else 0.0

    @property
    def rate(self) -> float:
        """Tuples a second."""
        return self.tuples / self.seconds if self.seconds > 0 else 0.0


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


@dataclass
class _Totals:
    """Seconds by operator and tuples by stream, in ``seconds`` that went by."""

    sources: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    partitions: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tuples: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: float = 0.0

    def add(
        self, sources: Mapping[str, float], partitions: Mapping[str, float], tuples: Mapping[str, float], seconds: float
    ) -> None:
        self.seconds += seconds
        for counter, amounts in ((self.sources, sources), (self.partitions, partitions), (self.tuples, tuples)):
            for name, amount in amounts.items():
                counter[name] += amount

    def keep(self, names: Set[str]) -> None:
        """Forget operators and streams that are not among ``names``."""
        for counter in (self.sources, self.partitions, self.tuples):
            for name in counter.keys() - names:
                del counter[name]

    def of(self, sources: Iterable[str], partition: str, streams: Iterable[str]) -> Spent:
        busy = sum(self.sources.get(name, 0.0) for name in sources)
        tuples = sum(self.tuples.get(name, 0.0) for name in streams)
        return Spent(busy, self.partitions.get(partition, 0.0), tuples, self.seconds)


class Statistics:
    """What the newest batch records say; may be asked by any thread while one observes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tuples = _Rates()
        self._by_partition: dict[str, list[float]] = {}
        self._partition_cores: list[Rate] = []
        self._sources, self._partitions = _Rates(), _Rates()
        self._chunks: dict[str, ChunkWork] = {}
        self._totals, self._tuples_since = _Totals(), dict[str, float]()
        self._samples: dict[str, deque[pa.RecordBatch]] = {}
        self._last_us: int | None = None
        self._last_report_us: int | None = None

    def observe(self, record: Mapping[str, Any]) -> None:
        """Take note of the next batch record."""
        now_us, report = record["committed_us"], record.get("report")
        with self._lock:
            busy_by_partition = [busy_us / _US for busy_us in record.get("operator_busy_us", ())]
            if self._last_us is not None:
                self._partition_cores += [Rate() for _ in busy_by_partition[len(self._partition_cores) :]]
                for rate, busy_seconds in zip(
                    self._partition_cores, busy_by_partition, strict=False
                ):  # older records tell of none
                    rate.add(busy_seconds, max(0, now_us - self._last_us) / _US)
                tuples_by_stream = {stream: float(counts["tuples"]) for stream, counts in record["streams"].items()}
                self._tuples.add(tuples_by_stream, max(0, now_us - self._last_us) / _US)
                for stream, tuples in tuples_by_stream.items():
                    self._tuples_since[stream] = self._tuples_since.get(stream, 0.0) + tuples
            self._last_us = now_us
            if report is None:
                return
            if self._last_report_us is not None:
                seconds = max(0, now_us - self._last_report_us) / _US
                sources, partitions = _in_seconds(report["sources"]), _in_seconds(report["partitions"])
                self._sources.add(sources, seconds)
                self._partitions.add(partitions, seconds)
                self._totals.add(sources, partitions, self._tuples_since, seconds)
                self._tuples_since = {}
            self._last_report_us = now_us
            self._add_by_partition(report.get("each_partition", ()))  # older records have none
            self._chunks = {name: chunk for name, chunk in self._chunks.items() if name in self._sources.known}
            chunks = report["sources"].get("chunks", {})  # older records have none
            self._chunks |= {name: ChunkWork(*chunk) for name, chunk in chunks.items()}
            for name, texts in report["samples"].items():
                batches = self._samples.setdefault(name, deque())
                batches.extend(map(read_sample, texts))
                while sum(batch.num_rows for batch in batches) - batches[0].num_rows >= SAMPLE_KEPT:
                    batches.popleft()

    def _add_by_partition(self, busy_of_partitions: Sequence[Mapping[str, int]]) -> None:
        by_partition = {name: seconds for name, seconds in self._by_partition.items() if name in self._partitions.known}
        for name in {name for busy in busy_of_partitions for name in busy}:
            seconds_before = by_partition.get(name, [])
            seconds_before += [0.0] * (len(busy_of_partitions) - len(seconds_before))
            by_partition[name] = [
                seconds + busy.get(name, 0) / _US
                for seconds, busy in zip(seconds_before, busy_of_partitions, strict=True)
            ]
        self._by_partition = by_partition

    def keep(self, names: Set[str]) -> None:
        """Forget samples and totals of inputs, operators and streams that are not among ``names``.

        Names come with queries and go with them; rates and chunks go by themselves. What is silent keeps its samples.
        """
        with self._lock:
            self._samples = {name: batches for name, batches in self._samples.items() if name in names}
            self._totals.keep(names)

    def tuples_per_second(self, stream: str) -> float:
        """Return how many tuples of a stream come."""
        with self._lock:
            return self._tuples.of([stream])

    def source_cores(self, operators: Iterable[str]) -> float:
        """Return how many seconds a second source tasks spend on some operators: cores that these keep busy."""
        with self._lock:
            return self._sources.of(operators)

    def partition_cores(self, operators: Iterable[str]) -> float:
        """Return the same of partitions."""
        with self._lock:
            return self._partitions.of(operators)

    def all_cores(self) -> float:
        """Return how many cores all operators keep busy."""
        with self._lock:
            return self._sources.of(self._sources.known) + self._partitions.of(self._partitions.known)

    def seconds_by_partition(self, operator: str) -> list[float]:
        """Return how many seconds each partition has spent on an operator since it was told of first, by its number."""
        with self._lock:
            return list(self._by_partition.get(operator, ()))

    def cores_of_partitions(self) -> list[float]:
        """Return how many seconds a second each partition works, by its number."""
        with self._lock:
            return [rate.value for rate in self._partition_cores]

    def distinct_keys(self, operators: Iterable[str]) -> int | None:
        """Return the most distinct keys of a chunk that some operator had last, None where that is not known."""
        with self._lock:
            return max((self._chunks[name].keys for name in operators if name in self._chunks), default=None)

    def chunk(self, operator: str) -> ChunkWork:
        """Return the largest chunk that an operator of source tasks had last, an empty one if none is known."""
        with self._lock:
            return self._chunks.get(operator, ChunkWork())

    def spent(self, sources: Iterable[str], partition: str, streams: Iterable[str]) -> Spent:
        """Return what operators took in source tasks and one partition since the first report, for how many tuples."""
        with self._lock:
            return self._totals.of(sources, partition, streams)

    def selectivity(self, name: str, where: Expression | None) -> Selectivity | None:
        """Return what a predicate selects of an input, None while no sampled tuple has all its columns."""
        if where is None:
            return Selectivity(1.0, 0)
        batches = self._sampled(name, columns_of(where))
        sampled = sum(batch.num_rows for batch in batches)
        if not sampled:
            return None
        return Selectivity(sum(int(np.count_nonzero(_selected(where, batch))) for batch in batches) / sampled, sampled)

    def distinct_values(self, name: str, where: Expression | None, key: Expression, among: float) -> float | None:
        """Estimate how many different values a key has among so many tuples of an input that a predicate selects.

        None while no sampled tuple has all columns. A value that was sampled once stands for several that were not: the
        root of how many times as many tuples there are as were sampled (the estimator GEE of Charikar et al., 2000).
        """
        tested = () if where is None else columns_of(where)
        batches = self._sampled(name, {*tested, *columns_of(key)})
        if not sum(batch.num_rows for batch in batches):
            return None
        values = [Tuples.of(batch).value(key).filter(pa.array(_selected(where, batch))) for batch in batches]
        sampled_values = pa.chunked_array(values).drop_null()
        occurrences = np.asarray(sampled_values.value_counts().field("counts"))
        once = int(np.count_nonzero(occurrences == 1))
        estimated = len(occurrences) - once + once * math.sqrt(max(1.0, among / max(1, len(sampled_values))))
        return max(1.0, min(estimated, among))

    def _sampled(self, name: str, columns: Iterable[str]) -> list[pa.RecordBatch]:
        """Return the sampled tuples of an input that have some columns."""
        needed = set(columns)
        with self._lock:
            return [batch for batch in self._samples.get(name, ()) if needed <= set(batch.schema.names)]

    def sample(self, name: str, columns: Collection[str]) -> Tuples | None:
        """Return columns of the newest sampled tuples of an input, None while there are none that have them all."""
        batches = self._sampled(name, columns)
        if not batches:
            return None
        table = pa.Table.from_batches([batch.select(sorted(columns)) for batch in batches])
        return Tuples.of(table.combine_chunks().to_batches()[0]) if len(table) else None


def _selected(where: Expression | None, batch: pa.RecordBatch) -> Bools:
    """Return which tuples a predicate selects."""
    if where is None:
        return np.ones(batch.num_rows, dtype=np.bool_)
    outcome = Tuples.of(batch).value(where).cast(pa.bool_())  # the literal NULL has a type of its own
    return np.asarray(pc.fill_null(outcome, False))


def _in_seconds(report: Mapping[str, Any]) -> dict[str, float]:
    return {operator: busy / _US for operator, busy in report["busy_us"].items()}
