"""Joins over sessions against sessions made one by one, whose rows DuckDB joins."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators import partition
from braid.operators.joins.matches import formed_rows
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.kit.plans import plan_select
from tests.kit.random_joins import (
    CATALOG,
    SECOND,
    STREAMS,
    RandomJoin,
    plan,
    random_join,
    with_sessions,
)
from tests.operators.join_pipeline import JoinPipeline, changelog
from tests.operators.pipeline import Row
from tests.operators.random_join_run import run_random_joins


def random_session_join(rng: random.Random) -> RandomJoin:
    """Return a join of streams over sessions."""
    while True:
        query = with_sessions(random_join(rng), rng.choice([1, 2, 4]))
        if query is not None and plan(query) is not None:
            return query


@settings(max_examples=examples(5), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
@example(seed=3170).via("queries of one operator whose GROUP BY keys have different types")
def test_sessions_of_all_inputs_together(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    pipeline = JoinPipeline(Storage(str(tmp_path_factory.mktemp("data"))), STREAMS, rng)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(partition, "MAX_ENTRIES", rng.choice([0, 2, 64]))
        monkeypatch.setattr(formed_rows, "FORMED_AT_ONCE", rng.choice([1, 3, 1000]))
        run_random_joins(pipeline, rng, {f"q{number}": random_session_join(rng) for number in range(4)})
    for state in pipeline.states:
        assert len(state.data) <= 2, "a head, and an entry for the last tuples"


def test_a_session_goes_on_as_long_as_one_of_its_streams_does(tmp_path: Path) -> None:
    text = "SELECT x.v, y.v AS w FROM a [SESSION 2 SECONDS] x {} b [SESSION 2 SECONDS] y ON x.k = y.k"
    plans = [plan_select(text.format(kind), CATALOG) for kind in ("JOIN", "LEFT JOIN")]
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(2))
    nothing = {"k": 1, "m": 0, "x": 0.0, "s": "", "d": None}

    def at(seconds: float, value: int, **other: object) -> Row:
        return nothing | {"v": value, "t": int(seconds * SECOND)} | other

    changes = [changelog(1, [("inner", 0, plans[0]), ("left", 1, plans[1])])]
    # 2 s after the last tuple is the next session
    pipeline.run({"s-a": [at(1, 1), at(7, 3)], "s-b": [at(2.9, 11), at(4.8, 12)]}, changes)
    pipeline.run({"s-a": [at(8, 4, k=2), at(8, 5, k=None)], "s-b": [at(6.8, 13), at(8, 14, k=None)]})
    pipeline.run({"s-a": [at(50, 9, k=9)], "s-b": [at(50, 9, k=9)]})
    told = {
        name: [
            (row["window_start"].timestamp() % 60, row["window_end"].timestamp() % 60, row["v"], row["w"])
            for row in rows
        ]
        for name, rows in pipeline.rows.items()
    }
    assert told["inner"] == [(1.0, 6.8, 1, 11), (1.0, 6.8, 1, 12), (6.8, 9.0, 3, 13)]
    assert told["left"] == [*told["inner"], (8.0, 10.0, 4, None), (8.0, 10.0, 5, None)]


@pytest.mark.parametrize("formed_at_once", [500_000, 60, 20, 7])
def test_too_many_rows_of_sessions_are_left_out(
    formed_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formed_rows, "FORMED_AT_ONCE", formed_at_once)
    monkeypatch.setattr("braid.operators.joins.session_joins.MAX_FORMED", 99)
    text = "SELECT x.v FROM a [SESSION 2 SECONDS] x JOIN b [SESSION 2 SECONDS] y ON x.k = y.k WHERE x.v < {}"
    created = [(name, slot, plan_select(text.format(v), CATALOG)) for slot, (name, v) in enumerate(LIMITS.items())]
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(3), join_row_limit=60)
    rows = [{"k": 1, "m": 0, "v": v, "x": 0.0, "s": "", "d": None, "t": SECOND + v} for v in range(10)]
    pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, created)])
    end = [rows[0] | {"t": 50 * SECOND}]
    pipeline.run({"s-a": end, "s-b": end})
    assert {name: len(rows_of_query) for name, rows_of_query in pipeline.rows.items()} == {"all": 50, "cut": 60}
    assert "more than 99 of their rows" in pipeline.failures["none"]
    assert "the first 60, which are kept" in pipeline.failures["cut"]
    assert "all" not in pipeline.failures


LIMITS = {"all": 5, "cut": 9, "none": 10}
