"""Which keys of joins are split among lanes, decided while they run (scaling up, thesis 5.4.3, 5.6.2).

A lane that has a frequent key forms all of its rows, as many as the product of its tuples in each input, while others
wait. How the rows that an operator forms are spread over keys is estimated from sampled tuples, and so is how much less
the busiest lane would have to do if the most frequent keys were split. Where that is much, they are. What it saves is
measured then, by the share of the busiest lane in the time of all; a split that saves nothing is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from operators.expressions import columns_of
from operators.joins.key_splits import NOT_SPLIT, KeySplit
from operators.joins.parts import SALT, can_split, placements_of
from operators.key_groups import hash_keys
from operators.predicates.query_set import Bools
from operators.queries import Join, Query
from optimizer.plan_changes import CHANGES_KEPT, Member, PlanChange
from optimizer.statistics import Statistics

LEAST_SAMPLE = 256
LEAST_SEEN = 8
"""A key counts that occurs so many times in the sample of each input."""
MOST_KEYS = 64
LEAST_CORES = 0.1
"""How many cores an operator's lanes must keep busy."""
LEAST_GAIN = 0.2
"""Which part of the busiest lane's work a split must be expected to save."""
LEAST_SAVED = 0.03
"""Which part of its share of the time it must have saved to be kept."""
LOOKS_MEASURED = 4
"""The share of the busiest lane is that in the time between so many looks."""
LOOKS_ON_TRIAL = 6
"""So many looks after a split the lanes' shares are measured again."""


@dataclass(frozen=True)
class Rows:
    """How the rows of an operator are spread over the keys that have most of them, and over all ``others`` together.

    Shape (keys,): the ``hashes`` of keys, and the share of the rows of each, the largest first. ``tuples`` are the
    tuples a second of each input with such keys, shape (inputs, keys).
    """

    hashes: npt.NDArray[np.uint64]
    shares: npt.NDArray[np.float64]
    others: float
    tuples: npt.NDArray[np.float64]

    def busiest(self, split: Set[int], lanes: int) -> float:
        """Return the share of the rows that the busiest of so many lanes forms while some keys are split."""
        is_split = self._is_in(split)
        lane = (self.hashes % np.uint64(lanes)).astype(np.int64)
        own = np.bincount(lane[~is_split], weights=self.shares[~is_split], minlength=lanes)
        return float(own.max() + (self.others + self.shares[is_split].sum()) / lanes)

    def hottest(self, lanes: int) -> frozenset[int]:
        """Return the keys with most rows, as many as it takes for no lane to have much more to do than others."""
        found: frozenset[int] = frozenset()
        for key in self.hashes[:MOST_KEYS].tolist():
            if self.busiest(found, lanes) <= (1 + LEAST_GAIN / 2) / lanes:
                break
            found |= {key}
        return found

    def tuples_of(self, split: Set[int], number: int) -> float:
        """Return how many tuples a second of an input have one of some keys."""
        return float(self.tuples[number][self._is_in(split)].sum())

    def _is_in(self, split: Set[int]) -> Bools:
        return np.isin(self.hashes, np.array(sorted(split), dtype=np.uint64))


def rows_by_key(
    join: Join, statistics: Statistics, least_sample: int = LEAST_SAMPLE, least_seen: int = LEAST_SEEN
) -> Rows | None:
    """Return how the rows of joins with these inputs are spread over keys; None while samples are small.

    Predicates are left out: those of many queries together let most tuples through.
    """
    counted: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = []
    rates: list[float] = []
    for each, placement in zip(join.inputs, placements_of(join), strict=True):
        attributes = [key for key in each.keys if key is not None]
        keys = [attributes[number] for number in placement.hashed or ()]
        sample = statistics.sample(each.input, {name for key in keys for name in columns_of(key)}) if keys else None
        if sample is None or sample.length < least_sample:
            if keys:
                return None
            counted.append((np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)))
            rates.append(0.0)
            continue
        values = [sample.value(key) for key in keys]
        is_known = reduce(np.logical_and, (np.asarray(pc.is_valid(value)) for value in values))
        counted.append(np.unique(hash_keys(values, sample.length, SALT)[is_known], return_counts=True))
        rates.append(statistics.tuples_per_second(each.stream) / sample.length)
    having = [number for number, rate in enumerate(rates) if rate]
    if not having:
        return None
    common = reduce(np.intersect1d, (counted[number][0] for number in having))
    seen = np.zeros((len(rates), len(common)))
    pairs = np.ones(len(common))
    for place, number in enumerate(having):
        hashes, many = counted[number]
        seen[number] = many[np.searchsorted(hashes, common)]
        # an input that occurs twice has one sample: a tuple is not to be paired with itself
        again = sum(join.inputs[earlier].input == join.inputs[number].input for earlier in having[:place])
        pairs *= np.maximum(seen[number] - again, 0.0)
    if not pairs.sum():
        return None
    shares = pairs / pairs.sum()
    frequent = (seen[having] >= least_seen).all(axis=0)
    order = np.flatnonzero(frequent)[np.argsort(-shares[frequent])]
    return Rows(common[order], shares[order], float(shares[~frequent].sum()), seen[:, order] * np.array(rates)[:, None])


class KeySplitting:
    """Proposes splits of keys; it is asked again and again, with all operators as they are now."""

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}
        self._lanes: deque[dict[int, float]] = deque([{}], maxlen=1 + LOOKS_MEASURED)
        self._vain: dict[str, frozenset[int]] = {}
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)
        """The newest changes."""

    def propose(
        self,
        now_us: int,
        operators: Mapping[str, Sequence[Member]],
        splits: Mapping[str, KeySplit],
        numbers: Iterator[int],
        lanes: int,
        statistics: Statistics,
    ) -> list[PlanChange]:
        """Return what should change now: of operators whose keys may be split, given the ``splits`` that they have.

        A new split gets the next of ``numbers``. There are so many lanes.
        """
        self._trials = {name: trial for name, trial in self._trials.items() if name in operators}
        self._vain = {name: split for name, split in self._vain.items() if name in operators}
        self._lanes.append(statistics.lane_seconds())
        found = []
        for name, members in operators.items() if lanes > 1 else ():
            joins = _forming([member.query for member in members])
            spreads = _may_be_spread(joins)
            if name not in splits or not spreads:
                continue
            trial = self._trials.get(name)
            if trial is None:
                change = self._look(now_us, name, joins, spreads, splits[name], numbers, lanes, statistics)
            else:
                change = self._judge(now_us, name, trial, splits[name])
            if change is not None:
                found.append(change)
        self.log.extend(found)
        return found

    def _look(
        self,
        now_us: int,
        name: str,
        joins: Sequence[Join],
        spreads: Sequence[int],
        split: KeySplit,
        numbers: Iterator[int],
        lanes: int,
        statistics: Statistics,
    ) -> PlanChange | None:
        cores, rows = statistics.lane_cores([name]), rows_by_key(joins[0], statistics)
        if rows is None or (cores < LEAST_CORES and not split.hashes):
            return None
        before, unsplit = rows.busiest(split.hashes, lanes), rows.busiest(frozenset(), lanes)
        if split.hashes and unsplit <= (1 + LEAST_GAIN / 2) * before:
            why = "no key has so many rows any more that it must be split"
            return PlanChange(now_us, name, "unsplit", why, {}, (before * cores, unsplit * cores), split=NOT_SPLIT)
        hottest = rows.hottest(lanes)
        after = rows.busiest(hottest, lanes)
        if after > (1 - LEAST_GAIN) * before or hottest == self._vain.get(name):
            return None
        spread = max(spreads, key=lambda number: rows.tuples_of(hottest, number))
        share = 1 - rows.others - float(rows.shares[len(hottest) :].sum())
        many = f"{len(hottest)} key{'s' * (len(hottest) > 1)}"
        why = (
            f"{many} of {joins[0].inputs[spread].alias} and what is joined with it have {share:.0%} of the rows:"
            f" split among {lanes} lanes, the busiest should have {after:.0%} of them instead of {before:.0%}"
        )
        found = KeySplit(next(numbers), hottest, spread)
        change = PlanChange(now_us, name, "split", why, {}, (before * cores, after * cores), split=found)
        self._trials[name] = _Trial(change, found.number, self._busiest_lane())
        return change

    def _busiest_lane(self) -> float | None:
        """Return the share of the busiest lane in the time that all lanes took lately, None if they took none."""
        first, last = self._lanes[0], self._lanes[-1]
        busy = [seconds - first.get(lane, 0.0) for lane, seconds in last.items()]
        return max(busy) / sum(busy) if sum(busy) > 0 else None

    def _judge(self, now_us: int, name: str, trial: _Trial, split: KeySplit) -> PlanChange | None:
        """Return what ends a split that saves nothing; it is measured once its windows have fired for a while."""
        trial.looks += split.number == trial.number
        if trial.looks < LOOKS_ON_TRIAL:
            return None
        del self._trials[name]
        before, after = trial.before, self._busiest_lane()
        if before is None or after is None:
            return None
        trial.change.busiest_lane = before, after
        if after <= (1 - LEAST_SAVED) * before:
            return None
        self._vain[name] = split.hashes
        why = (
            f"With split keys the busiest lane had {after:.0%} of the work, before {before:.0%}: they are split no more"
        )
        return PlanChange(now_us, name, "undone", why, {}, split=NOT_SPLIT)


@dataclass
class _Trial:
    """A split that is on trial, the share of the busiest lane before it, and how many looks there were since."""

    change: PlanChange
    number: int
    before: float | None
    looks: int = 0


def _forming(queries: Iterable[Query]) -> list[Join]:
    """Return the joins of which lanes form rows that may be split."""
    joins = [query for query in queries if isinstance(query, Join)]
    return [join for join in joins if any(can_split(join, number) for number in range(len(join.inputs)))]


def _may_be_spread(joins: Sequence[Join]) -> list[int]:
    """Return the inputs of joins of one operator that may be spread in all of them."""
    numbers = range(len(joins[0].inputs)) if joins else range(0)
    return [number for number in numbers if all(can_split(join, number) for join in joins)]
