"""Live queries: applying changelogs, and changelog-sets (thesis 4.2.1.2, figures 4.4 and 4.5)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bitarray import bitarray
from bitarray.util import ones
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.joins.inputs import live_inputs_over
from braid.operators.joins.query import Join, JoinInput
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.predicates.query_set import unpack
from braid.operators.queries import Aggregation, Selection
from braid.operators.query_parts import AGGREGATION, JOIN, SELECTION
from braid.operators.windows import Window
from tests.operators.pipeline import STREAM, K, aggregation, changelog


def changelog_set(live: LiveQueries, epoch: int) -> str:
    bits = unpack(live.changelog_set_since(epoch), np.arange(live.capacity))[0]
    return "".join("01"[int(b)] for b in bits)


def apply(live: LiveQueries, created: dict[str, int], gone: dict[str, int], capacity: int) -> None:
    live.apply(
        changelog(
            live.epoch + 1,
            [(name, slot, aggregation()) for name, slot in created.items()],
            list(gone.items()),
            list(gone.items()),
            capacity,
        ),
        {},
    )


def test_figure_4_4_a_refilled_slot_is_unset() -> None:
    live = LiveQueries()
    apply(live, {"Q1": 0, "Q2": 1}, {}, 2)
    apply(live, {"Q3": 1}, {"Q2": 1}, 2)
    assert changelog_set(live, 1) == "10"
    t5, t4, t7 = 0b10, 0b11, 0b01  # the thesis writes slot 1 first; here bit 0 is slot 0
    since = int(live.changelog_set_since(1)[0, 0])
    assert t5 & since == 0, "t5 has Q2 only, and Q2 is gone"
    assert t7 & t4 & since == 0b01, "joining t7 and t4 gives Q1"


def test_figure_4_5_changelog_sets_between_any_two_times() -> None:
    """T1: Q1+. T2: Q2+ Q3+. T3: Q2-. T4: Q4+ in Q2's place, Q5+. T5: Q3-, Q6+ in its place, Q7+."""
    live = LiveQueries()
    seen: list[list[str]] = []
    for created, gone, capacity in (
        ({"Q1": 0}, {}, 1),
        ({"Q2": 1, "Q3": 2}, {}, 3),
        ({}, {"Q2": 1}, 3),
        ({"Q4": 1, "Q5": 3}, {}, 4),
        ({"Q6": 2, "Q7": 4}, {"Q3": 2}, 5),
    ):
        apply(live, created, gone, capacity)
        seen.append([changelog_set(live, epoch) for epoch in range(1, live.epoch)])
    assert seen == [[], ["100"], ["100", "101"], ["1000", "1010", "1010"], ["10000", "10000", "10000", "11010"]]


@given(st.integers(0, 2**32))
def test_it_is_the_and_of_the_changelog_sets_in_between(seed: int) -> None:
    rng = random.Random(seed)
    live, slots, names = LiveQueries(), 0, 0
    held: dict[int, str] = {}
    sets: dict[int, bitarray] = {}
    for epoch in range(1, 12):
        gone = {name: slot for slot, name in held.items() if rng.random() < 0.3}
        unchanged = ones(slots)
        for slot in gone.values():
            unchanged[slot] = 0
            del held[slot]
        created: dict[str, int] = {}
        for _ in range(rng.randint(0, 3)):
            slot = next(s for s in range(slots + 1) if s not in held)
            if slot == slots:
                slots += 1
                unchanged.append(0)
            unchanged[slot] = 0
            created[f"q{names}"] = slot
            held[slot] = f"q{names}"
            names += 1
        apply(live, created, gone, slots)
        sets[epoch] = unchanged
        for earlier in range(epoch):
            between = ones(slots)
            for number in range(earlier + 1, epoch + 1):
                between &= sets[number] + bitarray(slots - len(sets[number]))  # slots not there yet are unset
            got = bitarray(changelog_set(live, earlier))
            for slot in range(slots):  # a slot that stays empty has no query whose tuples could be mixed up
                assert slot not in held or got[slot] == between[slot]
                assert slot in held or not got[slot]


def test_a_query_sees_from_the_clock_at_its_first_batch_to_that_at_its_deletion() -> None:
    live = LiveQueries()
    live.apply(changelog(1, [("a", 0, aggregation())]), {})
    live.apply(changelog(2, [("b", 1, aggregation())], [("a", 0)]), {STREAM.id: 50})
    a, b = live.by_slot[0], live.by_slot[1]
    assert (a.after(STREAM.id), a.until(STREAM.id)) == (EARLIEST, 50)
    assert (b.after(STREAM.id), b.until(STREAM.id)) == (50, LATEST)
    live.apply(changelog(3, [], [("a", 0), ("b", 1)]), {STREAM.id: 60})
    assert live.by_slot[0].until(STREAM.id) == 50, "deleting again changes nothing"
    assert live.by_slot[1].until(STREAM.id) == 60


def test_deleted_before_the_stream_had_a_tuple_sees_none() -> None:
    live = LiveQueries()
    live.apply(changelog(1, [("a", 0, aggregation())]), {STREAM.id: None})
    live.apply(changelog(2, [], [("a", 0)]), {STREAM.id: None})
    assert live.by_slot[0].until(STREAM.id) == EARLIEST


@pytest.mark.parametrize("drain", [True, False])
def test_created_and_deleted_in_one_changelog(drain: bool) -> None:
    live = LiveQueries()
    live.apply(changelog(1, [("a", 0, aggregation())], [("a", 0)], [] if drain else [("a", 0)]), {STREAM.id: 9})
    if drain:
        assert live.by_slot[0].after(STREAM.id) == live.by_slot[0].until(STREAM.id) == 9
    else:
        assert live.by_slot == {}


def test_a_slot_is_freed_and_refilled_by_one_changelog() -> None:
    live = LiveQueries()
    live.apply(changelog(1, [("a", 0, aggregation())]), {STREAM.id: 1})
    live.apply(changelog(2, [("b", 0, aggregation())], [("a", 0)], [("a", 0)]), {STREAM.id: 2})
    assert live.by_slot[0].id == "b"
    assert live.by_slot[0].active_to is None
    assert not live.changelog_set_since(1).any()
    live.apply(changelog(3, [], [], [("a", 0)]), {})
    assert live.by_slot[0].id == "b", "freeing goes by id, not by slot"


def test_changelogs_apply_in_order() -> None:
    live = LiveQueries()
    with pytest.raises(ValueError, match="epoch 1 must be next, got 2"):
        live.apply(changelog(2), {})
    assert live.epoch == 0


def test_queries_are_found_by_stream_operator_and_slot() -> None:
    live = LiveQueries()
    selection = Selection(STREAM.id, None, ())
    other = Selection("s-2", None, ())
    created: list[Any] = [("c", 5, aggregation()), ("a", 2, selection), ("b", 1, other), ("d", 0, aggregation())]
    live.apply(changelog(1, created, streams=[STREAM]), {})
    assert [q.id for q in live.over(STREAM.id, SELECTION)] == ["a"]
    assert {name: [q.id for q in found] for name, found in live.by_operator(AGGREGATION, STREAM.id).items()} == {
        "k": ["d", "c"]
    }
    live.apply(changelog(2, dropped=[STREAM.id]), {})
    assert live.streams == {}


def join(*streams: str) -> Join:
    """Return a join of streams by their first column."""
    inputs = tuple(JoinInput(stream, f"i{n}", None, (K,)) for n, stream in enumerate(streams))
    return Join(inputs, Window(10, 10), ())


class Counted(dict[int, LiveQuery]):
    """Queries by slot that count how often all of them are gone through."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_queries_are_found_by_what_they_read_without_going_through_all() -> None:
    live, rng, slots = LiveQueries(), random.Random(5), dict[str, int]()
    for epoch in range(1, 40):
        streams = [f"s-{rng.randrange(4)}" for _ in range(3)]
        kinds = (Selection(streams[0], None, ()), replace(aggregation(), stream=streams[0]), join(*streams))
        freed = rng.sample(sorted(slots.items()), min(len(slots), rng.randrange(3)))
        slots = {name: slot for name, slot in slots.items() if (name, slot) not in freed}
        free = [slot for slot in range(100) if slot not in slots.values()]
        created = {"id": f"q{epoch}", "slot": rng.choice(free), "operator": "o", "query": rng.choice(kinds).to_json()}
        slots[created["id"]] = created["slot"]
        live.apply({**changelog(epoch, (), freed[:1], freed), "created": [created]}, {})
        live.by_slot = counted = Counted(live.by_slot)
        queries = [live.by_slot[slot] for slot in sorted(live.by_slot)]
        for stream in ("s-0", "s-1", "s-2", "s-3", "gone"):
            mine = [q for q in queries if stream in q.query.streams]
            assert live.inputs(stream) == ({stream: ()} if mine else {})
            assert live.over(stream, SELECTION) == [q for q in mine if isinstance(q.query, Selection)]
            found = [q for each in live.by_operator(AGGREGATION, stream).values() for q in each]
            assert found == [q for q in mine if isinstance(q.query, Aggregation)]
            assert live.over(stream, JOIN) == [q for q in mine if isinstance(q.query, Join)]
            assert {part.query.slot for parts in live_inputs_over(live, stream).values() for part in parts} == {
                q.slot for q in mine if isinstance(q.query, Join)
            }
        assert counted.times == 1


def test_words_cover_slots_above_the_capacity() -> None:
    live = LiveQueries()
    live.apply(changelog(1, [("a", 64, aggregation())], capacity=1), {})
    assert live.words == 2


def test_json_round_trip() -> None:
    live = LiveQueries()
    created: list[Any] = [("a", 0, aggregation()), ("b", 3, Selection(STREAM.id, None, ()))]
    live.apply(changelog(1, created, streams=[STREAM], capacity=4), {STREAM.id: None})
    live.apply(changelog(2, [], [("a", 0)], capacity=4), {STREAM.id: 7})
    back = LiveQueries(live.to_json())
    assert (back.by_slot, back.streams) == (live.by_slot, live.streams)
    assert (back.epoch, back.capacity) == (2, 4)
