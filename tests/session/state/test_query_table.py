"""The table of queries, against a dict."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.session.state import query_table
from braid.session.state.query_record import (
    FAILED,
    FINAL_STATES,
    FINISHED,
    PENDING,
    RETIRED,
    RUNNING,
    STATES,
    QueryRecord,
)
from braid.session.state.query_table import QueryTable
from tests.session.records import record

STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "move"]), st.integers(0, 100)), max_size=60)


@given(STEPS)
def test_the_table_counts_and_pages_as_a_dict_would(steps: list[tuple[str, int]]) -> None:
    table, model, next_number = QueryTable(), dict[str, QueryRecord](), 1
    for step, number in steps:
        chosen = list(model.values())[number % len(model)] if model else None
        if step == "add":
            next_number += 1 + number % 3
            new = record(next_number, STATES[number % len(STATES)])
            table.add(new)
            model[new.id] = new
        elif step == "remove" and chosen is not None:
            table.remove(chosen)
            del model[chosen.id]
        elif step == "move" and chosen is not None:
            former_state, chosen.state = chosen.state, STATES[number % len(STATES)]
            table.moved(former_state, chosen)
        assert dict(table) == model
        assert table.find("q-0") is None
        counts = Counter(r.state for r in model.values())
        assert {state: table.states[state] for state in STATES} == {state: counts[state] for state in STATES}
        assert table.unfinished == sum(counts.values()) - sum(counts[state] for state in FINAL_STATES)
        following = [r for r in model.values() if int(r.id[2:]) > number]
        assert table.after(number, 3) == following[:3]
        assert table.after(0, 1000) == list(model.values())


def test_ids_that_are_gone_take_no_room_for_ever() -> None:
    table = QueryTable()
    kept = record(1, RUNNING)
    table.add(kept)
    for number in range(2, 5000):
        passing = record(number, PENDING)
        table.add(passing)
        table.remove(passing)
    assert table.after(0, 10) == [kept]
    assert len(table._ids) < 2000


def test_finished_queries_that_can_be_read_settle_once_so_many_came_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_table, "READABLE", 2)
    table = QueryTable()
    kinds = {1: FINISHED, 2: RETIRED, 3: FINISHED, 4: FINISHED, 5: FAILED, 6: FINISHED}
    for number, state in kinds.items():
        table.add(each := record(number, state, is_subquery=number == 4))
        table.finish(each)
    assert [each.id for each in table.settled(0)] == ["q-1", "q-2", "q-4", "q-5"], "q-4 is nobody's to read"
    assert [each.id for each in table.settled(0, before_us=7)] == list(table), "their retention has passed"
