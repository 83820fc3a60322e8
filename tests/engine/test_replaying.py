"""What a batch reads of replays: their share, which of them waits, and when one has joined."""

from __future__ import annotations

import pytest

from braid.engine.planning.replaying import ReplayBudget, held_back, joined_replays, replayed_extents
from braid.sources.connectors.connector import Extent, GappedExtent

SECOND = 10**6


def test_a_replay_has_joined_once_it_begins_where_its_origin_does() -> None:
    begins = {
        "s-1": {"0": 5, "1": 7},
        "s-1.q-2": {"0": 5, "1": 7},
        "s-1.q-3": {"0": 5, "1": 6},
        "s-2.q-1": {},
        "s-2": {},
    }
    assert joined_replays(begins) == {"s-1.q-2": "s-1"}


def test_a_replay_begins_with_the_oldest_and_ends_with_its_origin() -> None:
    extents = {"0": Extent(90, 100), "1": GappedExtent(0, 50, 30)}
    replayed = replayed_extents(extents, {"0": 10, "1": 30})
    assert replayed == {"0": Extent(10, 100), "1": Extent(30, 50)}
    assert replayed["1"].skip_to == 30, "what is gone is done without, as by the origin"


@pytest.mark.parametrize(
    ("watermarks", "waiting"),
    [
        ({"a.q-1": 10, "b.q-1": 20}, {"b.q-1"}),
        ({"a.q-1": 10, "b.q-1": None}, {"a.q-1"}),
        ({"a.q-1": 10, "b.q-1": 10}, set()),
        ({}, set()),
    ],
)
def test_of_replays_that_are_joined_the_one_ahead_waits(watermarks: dict[str, int | None], waiting: set[str]) -> None:
    streams = [("a.q-1", "b.q-1"), ("c.q-1",), ("a.q-1", "s")]
    assert held_back({"a.q-1", "b.q-1", "c.q-1"}, streams, watermarks) == waiting


def test_a_replay_waits_for_none_that_has_joined() -> None:
    assert held_back({"a.q-1"}, [("a.q-1", "b.q-1")], {"a.q-1": 20, "b.q-1": 10}) == set()


def test_replays_take_little_while_live_tuples_come_and_all_otherwise() -> None:
    budget = ReplayBudget(0.2)
    assert budget.most(0, 100, 1000, 0) == 1000, "nobody is live"
    assert not budget.is_live(0)
    assert budget.most(900, 100, 1000, SECOND) == pytest.approx(180)
    assert budget.most(10, 100, 1000, 2 * SECOND) == pytest.approx(20), "a fifth of what a usual batch takes"
    assert budget.most(0, 9000, 1000, 3 * SECOND) == pytest.approx(200), "there were live tuples a second ago"
    assert budget.is_live(3 * SECOND)
    assert budget.most(0, 100, 1000, 5 * SECOND) == 1000
