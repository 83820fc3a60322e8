"""When groups change: at first and after many changes all, in between only new queries; and never for long in vain."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.kinds import operator_of, source_operators
from braid.operators.live_queries import UNGROUPED
from braid.operators.queries import Query
from braid.operators.report import draw_sample
from braid.optimizer import regrouping
from braid.optimizer.grouping import Numbers, SampledWorkload, group_queries
from braid.optimizer.plan_changes import Member, PlanChange
from braid.optimizer.regrouping import Regrouping
from braid.optimizer.statistics import SAMPLE_KEPT, Statistics
from braid.optimizer.workloads import MIN_SAMPLE
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

SECOND = 1_000_000
CLUSTERS = 10
WIDTH = 100
KEYS = 3000  # so many that hardly two tuples share a query-set and a key while queries are in one group
QUERIES = 300
INPUT = "s-a"
PERIOD = 5


def planned(sql: str) -> Query:
    return plan_select(sql, CATALOG)


def clustered(number: int) -> Query:
    """Return a query of one of some clusters: a range of `v` that the others do not want, and part of `m`."""
    rng = random.Random(number)
    low = number % CLUSTERS * WIDTH
    return planned(
        f"SELECT k, SUM(v) AS total FROM a [RANGE 4 SECONDS] WHERE v >= {low + rng.randrange(10)}"
        f" AND v < {low + WIDTH - rng.randrange(10)} AND m < {rng.randrange(1, 100)} GROUP BY k"
    )


class World:
    """An operator whose source tasks take some time for a tuple, and what the optimizer makes of it."""

    def __init__(self, queries: dict[str, Query], rate: int = 3_000_000) -> None:
        self.queries = dict(queries)
        self.groups = dict.fromkeys(queries, UNGROUPED)
        self.statistics = Statistics()
        self.rate = rate
        self.us_a_tuple = 0.5
        self.partition_us_a_tuple = 0.0
        self.regrouping = Regrouping(share=0.5)
        self._second = 0
        self._rng = np.random.default_rng(5)

    def pass_seconds(self, seconds: int = PERIOD) -> None:
        """Let tuples come, and the job tell of them."""
        for _ in range(seconds):
            self._second += 1
            n = SAMPLE_KEPT // PERIOD
            chunks = [
                pa.RecordBatch.from_pydict(
                    {
                        "v": pa.array(self._rng.integers(0, CLUSTERS * WIDTH, 64), pa.int64()),
                        "m": pa.array(self._rng.integers(0, 100, 64), pa.int64()),
                    }
                )
                for _ in range(n // 64)
            ]
            samples = [draw_sample(chunk, ["v", "m"], self._second) for chunk in chunks]
            (source,) = {name for query in self.queries.values() for name in source_operators(query)}
            busy = {source: round(self.us_a_tuple * self.rate)}
            in_partitions = {
                operator_of(query): round(self.partition_us_a_tuple * self.rate) for query in self.queries.values()
            }
            report: dict[str, Any] = {
                "sources": {"busy_us": busy, "chunks": {source: [self.rate // 2, 1, KEYS]}},
                "partitions": {"busy_us": in_partitions, "chunks": {}},
                "samples": {INPUT: samples},
            }
            counted = {INPUT: {"tuples": self.rate}}
            self.statistics.observe({"committed_us": self._second * SECOND, "streams": counted, "report": report})

    def look(self) -> PlanChange | None:
        """Let the optimizer look, and do what it says."""
        operators: dict[str, list[Member]] = {}
        for name, query in self.queries.items():
            operators.setdefault(operator_of(query), []).append(Member(name, query, self.groups[name]))
        changes = self.regrouping.propose(self._second * SECOND, operators, self.statistics)
        for change in changes:
            self.groups |= change.groups
        return changes[0] if changes else None

    def look_after(self, seconds: int = PERIOD) -> PlanChange | None:
        """Let some time pass and look."""
        self.pass_seconds(seconds)
        return self.look()

    def create(self, *numbers: int) -> None:
        """Let queries come."""
        for number in numbers:
            self.queries[f"q-{number}"] = clustered(number)
            self.groups[f"q-{number}"] = UNGROUPED

    def delete(self, *numbers: int) -> None:
        """Let queries go."""
        for number in numbers:
            del self.queries[f"q-{number}"], self.groups[f"q-{number}"]


def of_clusters(count: int = QUERIES) -> dict[str, Query]:
    return {f"q-{number}": clustered(number) for number in range(count)}


def grouped() -> World:
    """Return a world whose groups were found to be worth it."""
    world = World(of_clusters())
    assert world.look_after() is None, "what it took before is not known yet"
    assert world.look_after() is not None
    world.us_a_tuple = 0.2
    world.look_after()
    assert world.look_after() is None
    return world


def test_queries_are_grouped_by_what_they_select() -> None:
    world = World(of_clusters())
    assert world.look_after() is None, "what it took before is not known yet"
    change = world.look_after()
    assert change is not None
    assert (change.kind, len(change.groups)) == ("holistic", QUERIES)
    assert "first plan" in change.why
    assert change.estimated is not None
    assert change.estimated[1] < 0.8 * change.estimated[0]
    assert UNGROUPED not in change.groups.values()
    groups = len(set(change.groups.values()))
    assert groups >= 3
    places = {(int(name[2:]) % CLUSTERS, group) for name, group in change.groups.items()}
    assert len(places) <= groups * CLUSTERS / 2, "queries of a cluster are together"


def test_groups_that_save_something_stay_and_what_they_save_is_told() -> None:
    world = grouped()
    (change,) = world.regrouping.log
    measured = change.to_json()["measured_us_per_tuple"]
    assert measured == {"before": pytest.approx(0.5), "after": pytest.approx(0.2)}
    assert world.look_after() is None


def test_groups_that_save_nothing_are_dissolved_and_not_tried_again() -> None:
    world = World(of_clusters())
    world.look_after()
    assert world.look_after() is not None
    world.look_after()
    change = world.look_after()
    assert change is not None
    assert (change.kind, set(change.groups.values()), len(change.groups)) == ("undone", {UNGROUPED}, QUERIES)
    assert [world.look_after() for _ in range(5)] == [None] * 5
    world.create(*range(QUERIES, QUERIES + 400))
    tried = world.look_after()
    assert tried is not None
    assert tried.kind == "holistic"
    assert "400 queries came or went" in tried.why


def test_groups_that_cost_partitions_what_they_save_source_tasks_are_dissolved() -> None:
    world = World(of_clusters())
    world.look_after()
    assert world.look_after() is not None
    world.us_a_tuple, world.partition_us_a_tuple = 0.3, 0.3
    world.look_after()
    change = world.look_after()
    assert change is not None
    assert (change.kind, "took 0.6 µs a row, before 0.5 µs" in change.why) == ("undone", True)


def test_nothing_is_tried_where_predicates_are_a_small_part() -> None:
    world = World(of_clusters())
    world.partition_us_a_tuple = 10.0
    assert [world.look_after() for _ in range(4)] == [None] * 4


def test_new_queries_join_groups_of_their_like_and_nobody_moves() -> None:
    world = grouped()
    before = dict(world.groups)
    world.delete(4, 14)
    world.create(1003, 1007)
    change = world.look_after()
    assert change is not None
    assert (change.kind, sorted(change.groups)) == ("incremental", ["q-1003", "q-1007"])
    assert all(world.groups[name] == group for name, group in before.items() if name in world.groups)
    for number in (1003, 1007):
        with_it = {name for name, group in world.groups.items() if group == world.groups[f"q-{number}"]}
        assert any(int(name[2:]) % CLUSTERS == number % CLUSTERS for name in with_it - {f"q-{number}"})


def test_more_than_half_that_came_or_went_make_a_full_plan() -> None:
    query = planned("SELECT k, SUM(v) AS total FROM a [RANGE 4 SECONDS] WHERE v >= 0 AND m >= 0 GROUP BY k")
    world = World({f"q-{number}": query for number in range(QUERIES)})
    assert [world.look_after() for _ in range(2)] == [None] * 2, "they select the same"
    world.create(*range(1000, 1300))
    assert world.look_after() is None, "they are half of all"
    world.delete(*range(QUERIES))
    change = world.look_after()
    assert change is not None
    assert change.kind == "holistic"
    assert "600 queries came or went" in change.why


def test_new_queries_are_placed_where_a_full_plan_would_save_little() -> None:
    world = grouped()
    world.delete(*range(76))
    world.create(*range(1000, 1076))
    change = world.look_after()
    assert change is not None
    assert (change.kind, len(change.groups)) == ("incremental", 76)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT v FROM a WHERE v > {0} AND m < {0}",
        "SELECT k, SUM(v) AS total FROM a [RANGE 4 SECONDS] WHERE v > {0} GROUP BY k",
        "SELECT k, SUM(v) AS total FROM a [SESSION 4 SECONDS] WHERE v > {0} AND m < {0} GROUP BY k",
    ],
)
def test_queries_for_which_groups_do_not_matter_have_none(sql: str) -> None:
    if "SESSION" in sql:
        sql = (
            "SELECT k, SUM(v) AS total FROM TABLE(SESSION(TABLE a, DESCRIPTOR(t), INTERVAL '4' SECOND))"
            " WHERE v > {0} AND m < {0} GROUP BY k, window_start, window_end"
        )
    world = World({f"q-{number}": planned(sql.format(number)) for number in range(QUERIES)})
    assert [world.look_after() for _ in range(4)] == [None] * 4


def test_nothing_is_decided_without_tuples_queries_or_work() -> None:
    few, idle, slow = World(of_clusters(10)), World(of_clusters()), World(of_clusters(), rate=1000)
    assert [few.look_after() for _ in range(3)] == [None] * 3
    assert [idle.look() for _ in range(3)] == [None] * 3
    assert [slow.look_after() for _ in range(3)] == [None] * 3, "there is hardly anything to save"
    slow.rate = 3_000_000
    assert slow.look_after(60) is not None, "the rate is another one now"


@pytest.mark.long
def test_what_was_looked_for_in_vain_is_looked_for_again_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding groups takes long; rates that go up and down must not make it happen every few seconds."""
    full_plans: list[int] = []

    def group(workload: SampledWorkload) -> Numbers:
        full_plans.append(look)
        return group_queries(workload)

    monkeypatch.setattr(regrouping, "group_queries", group)
    world = World(of_clusters())
    world.us_a_tuple = 100.0  # whatever is planned saves but a small part of it
    rates = [1_000_000, 100_000, 400_000, 1_900_000, 1_000]
    for look in range(200):
        world.rate = rates[look % len(rates)]
        assert world.look_after() is None
    assert full_plans == [1, 2, 3, 5, 9, 17, 33, 65, 129, 193]
    world.rate, look = 4_000_000, 200
    world.look_after()
    assert full_plans[-1] == 200, "so many were never there"


def test_one_wrong_measurement_does_not_keep_groups_away() -> None:
    world = World(of_clusters())
    world.us_a_tuple = 100.0  # as when the first batches compile what they call
    assert [world.look_after() for _ in range(2)] == [None] * 2
    world.us_a_tuple = 0.5
    assert world.look_after() is None
    change = world.look_after()
    assert change is not None
    assert "nothing was found 2 looks ago" in change.why


def test_a_sample_must_be_large_enough() -> None:
    world = World(of_clusters())
    world.pass_seconds(1)
    world.look()
    world.pass_seconds(0)
    batch = world.statistics.sample(INPUT, {"v", "m"})
    assert batch is not None
    assert batch.length < MIN_SAMPLE
    assert world.look_after(0) is None


def test_groups_of_operators_have_numbers_of_their_own() -> None:
    world = World(of_clusters())
    world.look_after()
    members = [Member(name, query, UNGROUPED) for name, query in world.queries.items()]
    other_members = [replace(member, id=f"{member.id}'", group=7) for member in members[:20]]
    operators = {operator_of(members[0].query): members, "other": other_members}
    world.regrouping.propose(0, operators, world.statistics)
    world.pass_seconds()
    (change,) = world.regrouping.propose(0, operators, world.statistics)
    assert change.operator != "other"
    assert min(change.groups.values()) > 7
