"""Keys are split among partitions where a few have most of the rows, and only as long as that pays."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from braid.operators.joins.inputs import SALT
from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit
from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from braid.operators.report import draw_sample
from braid.operators.state.key_groups import hash_keys
from braid.optimizer.key_splitting import KeySplitting, NoSplits, splittable_joins, spreadings_of
from braid.optimizer.plan_changes import Member, PlanChange, Situation
from braid.optimizer.statistics import Statistics
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

SECOND = 1_000_000
PERIOD = 5
PARTITIONS = 2
TESTED = "SELECT x.v FROM a [RANGE 1 SECOND] AS x, b [RANGE 1 SECOND] AS y WHERE x.k = y.k AND x.v < y.v"
Keys = npt.NDArray[np.int64]


def plan_join(sql: str) -> Join:
    planned = plan_select(sql, CATALOG)
    assert isinstance(planned, Join)
    return planned


def hash_of(key: int) -> int:
    return int(hash_keys([pa.array([key])], 1, SALT)[0])


def key_of_partition(partition: int, but: int = -1) -> int:
    """Return the least key of a partition that is another one."""
    return next(key for key in range(1000) if key != but and hash_of(key) % PARTITIONS == partition)


class World:
    """A join whose keys are those of `keys` in both streams, and what the optimizer makes of it."""

    def __init__(self, sql: str = TESTED, cores: float = 0.8) -> None:
        self.query: Query = plan_select(sql, CATALOG)
        self.others: list[Query] = []
        self.name = operator_of(self.query)
        self.cores = cores
        self.partition_shares = (0.9, 0.1)
        self.fires_every = 1
        self.rates = {"s-a": 1000, "s-b": 3000}
        self.split = NOT_SPLIT
        self.keys: Keys = np.zeros(64, dtype=np.int64)
        self.texts = ["a"]
        self.statistics = Statistics()
        self.policy = KeySplitting()
        self._numbers = count(1)
        self._second = 0

    def pass_seconds(self, seconds: int = PERIOD) -> None:
        """Let tuples come, windows fire, and the job tell of them."""
        rng = np.random.default_rng(self._second)
        for _ in range(seconds):
            self._second += 1
            samples = {}
            for stream in self.rates:
                batches = [
                    {"k": pa.array(rng.choice(self.keys, 64)), "s": pa.array(rng.choice(self.texts, 64))}
                    for _ in range(8)
                ]
                chunks = [pa.RecordBatch.from_pydict(batch) for batch in batches]
                samples[stream] = [draw_sample(chunk, ["k", "s"], self._second) for chunk in chunks]
            fires = self._second % self.fires_every == 0
            busy_us = round(self.cores * SECOND * self.fires_every) if fires else 0
            each_partition = [{self.name: round(share * busy_us)} for share in self.partition_shares]
            partitions = {"busy_us": {self.name: busy_us}, "chunks": {}}
            sources: dict[str, Any] = {"busy_us": {}, "chunks": {}}
            record: dict[str, Any] = {
                "committed_us": self._second * SECOND,
                "streams": {stream: {"tuples": rate} for stream, rate in self.rates.items()},
                "report": {
                    "sources": sources,
                    "partitions": partitions,
                    "each_partition": each_partition,
                    "samples": samples,
                },
            }
            self.statistics.observe(record)

    def look(self, may_split: bool = True, partitions: int = PARTITIONS, is_taken: bool = True) -> PlanChange | None:
        """Let some time pass and the optimizer look, and do what it says."""
        self.pass_seconds()
        splits: dict[str, KeySplit] = {self.name: self.split} if may_split else {}
        queries = [self.query, *self.others]
        members = {self.name: [Member(f"q-{n}", query, 0) for n, query in enumerate(queries, 1)]}
        now_us = self._second * SECOND
        situation = Situation(now_us, members, splits, self._numbers, partitions, self.statistics)
        changes = self.policy.propose(situation)
        for change in changes if is_taken else ():
            assert change.split is not None
            self.split = change.split
            self.policy.note(change)
        return changes[0] if changes else None

    def look_until_change(self, max_looks: int = 20) -> PlanChange:
        """Look until something changes."""
        return next(change for change in (self.look() for _ in range(max_looks)) if change is not None)


def skewed(*hot: int, share: float = 0.3) -> Keys:
    """Return keys to draw from: some that are frequent, and a thousand others."""
    other_count = round(1000 * (1 - share * len(hot)))
    return np.concatenate([np.arange(1000, 1000 + other_count), *(np.full(round(1000 * share), key) for key in hot)])


def test_a_frequent_key_is_split_and_the_larger_input_spread() -> None:
    world = World()
    world.keys = skewed(7)
    change = world.look()
    assert change is not None
    assert (change.kind, world.split.hashes, world.split.spread) == ("split", {hash_of(7)}, 1)
    document = change.to_json()
    assert document["keys"] == 1
    assert document["estimated_cores"] == pytest.approx({"before": 0.8, "after": 0.4}, abs=0.01)
    assert "1 key of y and what is joined with it have 99% of the rows: split among 2 partitions" in document["why"]
    assert "the busiest should have 50% of them instead of 100%" in document["why"]


def test_what_is_measured_of_a_split_is_told() -> None:
    world = World()
    world.keys = skewed(7)
    change = world.look()
    assert change is not None
    assert world.look(may_split=False) is None  # windows from before are not over
    world.partition_shares = (0.55, 0.45)
    assert [world.look() for _ in range(4)] == [None] * 4
    assert change.to_json()["measured_busiest_partition"] == {"before": 0.9, "after": 0.55}
    assert list(world.policy.log) == [change]


def test_a_split_that_saves_nothing_is_ended_and_not_made_again_for_a_while() -> None:
    world = World()
    world.keys = skewed(7)
    assert world.look() is not None
    undone = world.look_until_change()
    assert (undone.kind, world.split) == ("undone", NOT_SPLIT)
    assert "the busiest partition had 90% of the work, before 90%" in undone.why
    assert [world.look() for _ in range(4)] == [None] * 4
    world.keys = skewed(8)  # this is something else
    for _ in range(3):  # until the newest samples are of these keys
        world.pass_seconds()
    assert world.look() is not None
    assert world.split.hashes == {hash_of(8)}


def test_windows_that_fire_seldom_are_waited_for() -> None:
    world = World()
    world.keys, world.fires_every = skewed(7), 60
    change = world.look_until_change()
    assert change.kind == "split"
    world.partition_shares = (0.5, 0.5)
    assert [world.look() for _ in range(60)] == [None] * 60
    assert change.busiest_partition == pytest.approx((0.9, 0.5))


def test_partitions_that_are_alike_busy_have_nothing_split() -> None:
    world = World()
    world.keys, world.partition_shares = skewed(7), (0.5, 0.5)  # queries' predicates leave the key out
    assert [world.look() for _ in range(4)] == [None] * 4


def test_other_keys_are_split_when_they_become_frequent() -> None:
    world = World()
    world.keys = skewed(7)
    assert world.look() is not None
    world.partition_shares = (0.5, 0.5)
    assert [world.look() for _ in range(4)] == [None] * 4
    world.keys, world.partition_shares = skewed(8), (0.9, 0.1)
    change = world.look_until_change()
    assert (change.kind, world.split.hashes) == ("split", {hash_of(8)})
    world.partition_shares = (0.5, 0.5)
    assert [world.look() for _ in range(4)] == [None] * 4


def test_a_split_that_was_not_made_is_proposed_again() -> None:
    world = World()
    world.keys = skewed(7)
    assert world.look(is_taken=False) is not None
    assert world.look() is not None
    assert len(world.policy.log) == 1


def test_with_splits_off_those_that_are_there_are_ended() -> None:
    world, split = World(), KeySplit(3, frozenset([1]))
    policy = NoSplits()
    members = {world.name: [Member("q-1", world.query, 0)]}
    situation = Situation(0, members, {world.name: split}, count(1), PARTITIONS, world.statistics)
    (change,) = policy.propose(situation)
    assert (change.kind, change.split) == ("unsplit", NOT_SPLIT)
    assert policy.propose(replace(situation, splits={world.name: NOT_SPLIT})) == []


def test_a_split_is_ended_when_its_keys_are_frequent_no_more() -> None:
    world = World()
    world.keys = skewed(7)
    assert world.look() is not None
    world.partition_shares = (0.5, 0.5)
    assert [world.look() for _ in range(4)] == [None] * 4
    world.keys = np.arange(64)
    for _ in range(3):
        world.pass_seconds()
    change = world.look()
    assert change is not None
    assert (change.kind, world.split) == ("unsplit", NOT_SPLIT)


def test_frequent_keys_of_different_partitions_are_left_where_they_are() -> None:
    world = World()
    key = key_of_partition(0)
    world.keys = skewed(key, key_of_partition(1))
    assert world.look() is None
    world = World()
    world.keys = skewed(key, key_of_partition(0, but=key))
    assert world.look() is not None
    assert world.split.hashes == {hash_of(key), hash_of(key_of_partition(0, but=key))}


@pytest.mark.parametrize(
    ("sql", "cores", "partitions", "keys"),
    [
        (TESTED, 0.05, PARTITIONS, skewed(7)),  # there is little to save
        (TESTED, 0.8, 1, skewed(7)),
        (TESTED, 0.8, PARTITIONS, np.arange(500)),
        (TESTED.partition(" AND ")[0], 0.8, PARTITIONS, skewed(7)),  # rows are counted, not formed
        (TESTED.replace("x.v FROM", "x.k, COUNT(*) AS n FROM") + " GROUP BY x.k", 0.8, PARTITIONS, skewed(7)),
    ],
    ids=["idle", "one partition", "no frequent key", "counted", "grouped"],
)
def test_nothing_is_split_in_vain(sql: str, cores: float, partitions: int, keys: Keys) -> None:
    world = World(sql, cores)
    world.keys = keys
    assert [world.look(partitions=partitions) for _ in range(4)] == [None] * 4


GROUPED = (
    "SELECT x.k, COUNT(*) AS n FROM a [RANGE 1 SECOND] AS x, b [RANGE 1 SECOND] AS y"
    " WHERE x.k = y.k AND x.v < y.v GROUP BY x.k, x.s"
)


def test_what_is_grouped_is_split_by_what_it_is_grouped_by() -> None:
    world = World(GROUPED)
    world.keys, world.texts = skewed(7), [f"{n}" for n in range(40)]
    change = world.look()
    assert change is not None
    assert (change.kind, world.split.hashes) == ("split", {hash_of(7)})
    assert (world.split.spread, world.split.by) == (0, ("s",)), "though the other input is larger"
    assert "split among 2 partitions by s, the busiest should have" in change.why


def test_what_is_grouped_is_not_split_by_a_column_with_hardly_any_values() -> None:
    world = World(GROUPED)
    world.keys, world.texts = skewed(7), [*["a"] * 9, "b"]
    assert [world.look() for _ in range(4)] == [None] * 4
    world.others.append(plan_join(TESTED))
    assert operator_of(world.others[0]) == world.name
    assert world.look() is not None
    assert (world.split.spread, world.split.by) == (1, ()), "the join without groups is split alone"


def test_joins_with_and_without_groups_are_split_together_where_they_can_be() -> None:
    ungrouped, by_s, by_both, by_v, by_key = (
        plan_join(text)
        for text in (
            TESTED, GROUPED, f"{GROUPED}, x.v", GROUPED.replace("x.s", "x.v"), GROUPED.replace(", x.s", ""),
        )
    )  # fmt: skip
    assert spreadings_of([ungrouped], [1, 2].__getitem__) == [(1, ()), (0, ())]
    assert spreadings_of([by_both], [1, 2].__getitem__) == [(0, ("s", "v"))]
    assert spreadings_of([ungrouped, by_both, by_s], [2, 1].__getitem__) == [(0, ("s",)), (0, ()), (1, ())]
    assert spreadings_of([ungrouped, by_v, by_s], [1, 2].__getitem__) == [(1, ()), (0, ())], (
        "groups stay where they are"
    )
    assert spreadings_of([by_v, by_s], [1, 2].__getitem__) == []
    assert splittable_joins([by_key, by_s, ungrouped]) == [by_s, ungrouped]


def test_outer_inputs_are_not_spread() -> None:
    world = World(
        "SELECT x.v FROM a [RANGE 1 SECOND] AS x LEFT JOIN b [RANGE 1 SECOND] AS y ON x.k = y.k"
        " WHERE COALESCE(y.v, 0) + x.v > 0"
    )
    world.keys = skewed(7)
    assert world.look() is not None
    assert world.split.spread == 0
