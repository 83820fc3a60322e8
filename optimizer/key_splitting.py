"""Which keys of joins are split among partitions, decided while they run (scaling up, thesis 5.4.3, 5.6.2).

A partition that has a frequent key forms all of its rows, as many as the product of its tuples in each input, while
others wait. How the rows that an operator forms are spread over keys is estimated from sampled tuples, and so is how
much less the busiest partition would have to do if the most frequent keys were split. Where that is much, and one
partition does take more of the time than others, these keys are split. What it saves is measured then, by the share of
the busiest partition in the time that all take for the operator; a split that saves nothing is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from braid.operators.expressions import columns_of
from braid.operators.joins.inputs import SALT, columns_to_spread_by, placements_of
from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit
from braid.operators.joins.query import Join, JoinInput
from braid.operators.predicates.query_set import Bools
from braid.operators.queries import Query
from braid.operators.state.key_groups import hash_keys, key_groups
from braid.optimizer.plan_changes import PlanChange, Situation, SplitPolicy
from braid.optimizer.statistics import Statistics

MIN_SAMPLE = 256
MIN_SEEN = 8
"""A key counts that occurs so many times in the sample of each input."""
MAX_KEYS = 64
MIN_CORES = 0.1
"""How many cores an operator's partitions must keep busy."""
MIN_GAIN = 0.2
"""Which part of the busiest partition's work a split must be expected to save."""
BALANCED = 0.1
"""Which part more than others a partition may have to do."""
MIN_SAVED = 0.03
"""Which part of its share of the time it must have saved to be kept."""
MIN_WORK = 1.0
"""How many seconds partitions must have worked on an operator before the share of the busiest partition is measured."""
VAIN_FOR_US = 600_000_000
"""For how long keys whose split saved nothing are not split again."""


@dataclass(frozen=True)
class KeyRows:
    """How the rows of an operator are spread over the keys that have most of them, and over all ``others`` together.

    Shape (keys,): the ``hashes`` of keys, and the share of the rows of each, the largest first. ``tuples`` are the
    tuples a second of each input with such keys, shape (inputs, keys).
    """

    hashes: npt.NDArray[np.uint64]
    shares: npt.NDArray[np.float64]
    others: float
    tuples: npt.NDArray[np.float64]

    def busiest(self, split: Set[int], partitions: int, busiest_share: float | None = None) -> float:
        """Return the share of the rows that the busiest of so many partitions forms while some keys are split.

        Of the rows of split keys it forms ``busiest_share``, by default the same as every other partition.
        """
        is_split = self._is_in(split)
        partition = (self.hashes % np.uint64(partitions)).astype(np.int64)
        unsplit_shares = np.bincount(partition[~is_split], weights=self.shares[~is_split], minlength=partitions)
        split_share = self.shares[is_split].sum() * (1 / partitions if busiest_share is None else busiest_share)
        return float(unsplit_shares.max() + self.others / partitions + split_share)

    def hottest(self, partitions: int) -> frozenset[int]:
        """Return the keys with most rows, as many as it takes for no partition to have much more to do than others."""
        hottest: frozenset[int] = frozenset()
        for key in self.hashes[:MAX_KEYS].tolist():
            if self.busiest(hottest, partitions) <= (1 + BALANCED) / partitions:
                break
            hottest |= {key}
        return hottest

    def tuples_of(self, split: Set[int], number: int) -> float:
        """Return how many tuples a second of an input have one of some keys."""
        return float(self.tuples[number][self._is_in(split)].sum())

    def _is_in(self, split: Set[int]) -> Bools:
        return np.isin(self.hashes, np.array(sorted(split), dtype=np.uint64))


def rows_by_key(
    join: Join, statistics: Statistics, min_sample: int = MIN_SAMPLE, min_seen: int = MIN_SEEN
) -> KeyRows | None:
    """Return how the rows of joins with these inputs are spread over keys; None while samples are small.

    Predicates are left out: those of many queries together let most tuples through.
    """
    placements = placements_of(join)
    hashed_inputs = [number for number, placement in enumerate(placements) if placement.hashed]
    samples = [
        _count_keys(join.inputs[number], placements[number].hashed or (), statistics) for number in hashed_inputs
    ]
    large_samples = [sample for sample in samples if sample is not None and sample.sampled >= min_sample]
    if not large_samples or len(large_samples) < len(hashed_inputs):
        return None
    common_hashes = reduce(np.intersect1d, (sample.hashes for sample in large_samples))
    counts, rates = np.zeros((len(join.inputs), len(common_hashes))), np.zeros((len(join.inputs), 1))
    rows = np.ones(len(common_hashes))
    for position, (number, sample) in enumerate(zip(hashed_inputs, large_samples, strict=True)):
        counts[number], rates[number] = sample.counts[np.searchsorted(sample.hashes, common_hashes)], sample.rate
        # an input that occurs twice has one sample: a tuple is not to be paired with itself
        repetitions = sum(
            join.inputs[earlier].input == join.inputs[number].input for earlier in hashed_inputs[:position]
        )
        rows *= np.maximum(counts[number] - repetitions, 0.0)
    if not rows.sum():
        return None
    shares = rows / rows.sum()
    frequent = (counts[hashed_inputs] >= min_seen).all(axis=0)
    order = np.flatnonzero(frequent)[np.argsort(-shares[frequent])]
    return KeyRows(common_hashes[order], shares[order], float(shares[~frequent].sum()), (counts * rates)[:, order])


@dataclass(frozen=True)
class _KeyCounts:
    """How often keys occur among the ``sampled`` tuples of an input; a sampled tuple stands for ``rate`` a second."""

    hashes: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]
    sampled: int
    rate: float


def _count_keys(join_input: JoinInput, hashed: Sequence[int], statistics: Statistics) -> _KeyCounts | None:
    """Return how often keys occur that are not NULL; None without a sample."""
    attributes = [key for key in join_input.keys if key is not None]
    keys = [attributes[number] for number in hashed]
    sample = statistics.sample(join_input.input, {name for key in keys for name in columns_of(key)})
    if sample is None:
        return None
    values = [sample.value(key) for key in keys]
    is_known = reduce(np.logical_and, (np.asarray(pc.is_valid(value)) for value in values))
    hashes, counts = np.unique(hash_keys(values, sample.length, SALT)[is_known], return_counts=True)
    return _KeyCounts(hashes, counts, sample.length, statistics.tuples_per_second(join_input.stream) / sample.length)


class KeySplitting(SplitPolicy):
    """Splits the keys of which samples say that it pays, on trial."""

    def __init__(self) -> None:
        super().__init__()
        self._operators: dict[str, _Operator] = {}

    def propose(self, situation: Situation) -> list[PlanChange]:
        """Return new splits, and ends of those that save nothing or are not needed any more."""
        self._operators = {name: operator for name, operator in self._operators.items() if name in situation.operators}
        changes = []
        for name, split in situation.splits.items() if situation.partitions > 1 else ():
            if situation.statistics.partition_cores([name]) < MIN_CORES and not split.hashes:
                continue
            operator = self._operators.setdefault(name, _Operator(name))
            operator.measure(situation.statistics.seconds_by_partition(name))
            change = operator.judge(situation.now_us, split)
            if change is None and operator.trial is None:
                change = operator.look(situation)
            if change is not None:
                changes.append(change)
        return changes

    def note(self, change: PlanChange) -> None:
        """Take note that a change was made, and put a new split on trial."""
        super().note(change)
        self._operators[change.operator].note(change)


class NoSplits(SplitPolicy):
    """Ends all splits of keys."""

    def propose(self, situation: Situation) -> list[PlanChange]:
        """Return the ends of those that are there."""
        names = [name for name, split in situation.splits.items() if split.hashes]
        why = "no keys are to be split"
        return [PlanChange(situation.now_us, name, "unsplit", why, {}, split=NOT_SPLIT) for name in names]


class _Operator:
    """What is known of an operator from look to look.

    ``busiest`` is the share of the busiest partition in the last :data:`MIN_WORK` or more that partitions spent on it,
    None before it was so much; ``trial`` is the split that is on trial; ``vain`` are keys whose split saved nothing,
    and when that was seen (µs).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._measured_from: Sequence[float] | None = ()
        self._busiest_before: float | None = None
        self._vain: tuple[frozenset[int], int] = frozenset(), 0
        self.busiest: float | None = None
        self.trial: PlanChange | None = None

    def measure(self, seconds: Sequence[float]) -> None:
        """Take note of what each partition has spent on it so far."""
        if self._measured_from is None:
            self._measured_from = list(seconds)
        seconds_before = [*self._measured_from, *[0.0] * (len(seconds) - len(self._measured_from))]
        spent = [after - before for after, before in zip(seconds, seconds_before, strict=True)]
        if sum(spent) >= MIN_WORK:
            self.busiest, self._measured_from = max(spent) / sum(spent), list(seconds)

    def note(self, change: PlanChange) -> None:
        """Put a new split on trial, and measure anew once windows from before it are over: at the next look."""
        assert change.split is not None
        self._busiest_before, self.busiest, self._measured_from = self.busiest, None, None
        self.trial = change if change.split.hashes else None

    def judge(self, now_us: int, split: KeySplit) -> PlanChange | None:
        """Return what ends a split that saves nothing, once partitions have worked enough on its windows."""
        trial, before, after = self.trial, self._busiest_before, self.busiest
        if trial is None or before is None or after is None:
            return None
        self.trial, trial.busiest_partition = None, (before, after)
        if after <= (1 - MIN_SAVED) * before:
            return None
        self._vain = split.hashes, now_us
        shares = f"With split keys the busiest partition had {after:.0%} of the work, before {before:.0%}"
        why = f"{shares}: they are split no more"
        return PlanChange(now_us, self._name, "undone", why, {}, split=NOT_SPLIT)

    def look(self, situation: Situation) -> PlanChange | None:
        """Return a new split where that promises to pay, or the end of one that is not needed any more."""
        split, partitions = situation.splits[self._name], situation.partitions
        joins = splittable_joins([member.query for member in situation.operators[self._name]])
        rows = rows_by_key(joins[0], situation.statistics) if joins else None
        if rows is None:
            return None
        cores, hottest = situation.statistics.partition_cores([self._name]), rows.hottest(partitions)
        busiest_share = share_of_busiest(
            joins[0], split.spread, split.by, split.hashes, partitions, situation.statistics
        )
        busiest_unsplit, before = (
            rows.busiest(frozenset(), partitions),
            rows.busiest(split.hashes, partitions, busiest_share),
        )
        may_split = self._is_uneven(partitions) and not self._is_vain(hottest, situation.now_us)
        for spread, by in spreadings_of(joins, lambda number: rows.tuples_of(hottest, number)) if may_split else ():
            hottest_share = share_of_busiest(joins[0], spread, by, hottest, partitions, situation.statistics)
            after = rows.busiest(hottest, partitions, hottest_share)
            if after > (1 - MIN_GAIN) * before:
                continue
            share = 1 - rows.others - float(rows.shares[len(hottest) :].sum())
            why = (
                f"{len(hottest)} key{'s' * (len(hottest) > 1)} of {joins[0].inputs[spread].alias} and what is joined"
                f" with it have {share:.0%} of the rows: split among {partitions} partitions"
                f"{' by ' * bool(by)}{', '.join(by)},"
                f" the busiest should have {after:.0%} of them instead of {before:.0%}"
            )
            new_split = KeySplit(next(situation.numbers), hottest, spread, by=by)
            return self._change(situation, "split", why, new_split, before, after, cores)
        if split.hashes and busiest_unsplit <= (1 + BALANCED) * before:
            why = "no key has so many rows any more that it must be split"
            return self._change(situation, "unsplit", why, NOT_SPLIT, before, busiest_unsplit, cores)
        return None

    def _change(
        self, situation: Situation, kind: str, why: str, split: KeySplit, before: float, after: float, cores: float
    ) -> PlanChange:
        """Return a change, given the share of the busiest partition before and after it, and the cores of all."""
        return PlanChange(situation.now_us, self._name, kind, why, {}, (before * cores, after * cores), split=split)

    def _is_uneven(self, partitions: int) -> bool:
        """Whether one partition was seen to take so much more of the time than others that a split may pay."""
        return self.busiest is not None and (1 - MIN_GAIN) * self.busiest >= 1 / partitions

    def _is_vain(self, hottest: frozenset[int], now_us: int) -> bool:
        """Whether splitting most of these keys saved nothing not long ago."""
        keys, at_us = self._vain
        return now_us - at_us < VAIN_FOR_US and 2 * len(hottest & keys) > len(hottest)


def splittable_joins(queries: Iterable[Query]) -> list[Join]:
    """Return the joins whose rows partitions form and could split among them."""
    joins = [query for query in queries if isinstance(query, Join)]
    return [join for join in joins if any(columns_to_spread_by(join, n) is not None for n in range(len(join.inputs)))]


def spreadings_of(joins: Sequence[Join], tuples: Callable[[int], float]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the inputs of joins of one operator that may be spread in all of them, and by which columns, if by any.

    Those with most of the ``tuples`` come first; after them those that may be spread in the joins without GROUP BY.
    """
    spreadings = []
    for number in range(len(joins[0].inputs)) if joins else ():
        columns_of_joins = [columns_to_spread_by(join, number) for join in joins]
        grouped = [set(columns) for columns in columns_of_joins if columns]
        common = tuple(sorted(set.intersection(*grouped))) if grouped else ()
        if None not in columns_of_joins and bool(common) == bool(grouped):
            spreadings.append((number, common))
    spreadings.sort(key=lambda spreading: -tuples(spreading[0]))
    ungrouped_joins = [join for join in joins if join.grouping is None]
    return spreadings if len(ungrouped_joins) == len(joins) else spreadings + spreadings_of(ungrouped_joins, tuples)


def share_of_busiest(
    join: Join, number: int, by: Sequence[str], hot: Set[int], partitions: int, statistics: Statistics
) -> float:
    """Return which share of an input's tuples with hot keys goes to the busiest partition if they are spread by
    columns.

    All of them while no sample has such tuples.
    """
    if not by:
        return 1 / partitions
    join_input, hashed = join.inputs[number], placements_of(join)[number].hashed or ()
    keys = [key for key in join_input.keys if key is not None]
    sample = statistics.sample(join_input.input, {*by, *(name for place in hashed for name in columns_of(keys[place]))})
    if sample is None:
        return 1.0
    hashes = hash_keys([sample.value(keys[place]) for place in hashed], sample.length, SALT)
    is_hot = np.isin(hashes, np.array(sorted(hot), dtype=np.uint64))
    partition_of_tuple = key_groups([sample.columns[name] for name in by], sample.length, partitions, SALT)
    counts = np.bincount(partition_of_tuple[is_hot], minlength=partitions)
    return float(counts.max() / counts.sum()) if is_hot.any() else 1.0
