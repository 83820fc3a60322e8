"""Rows of joins are as many, whether they are counted for each query or for all of them in pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from braid.operators.aggregation.firing import Predicates
from braid.operators.joins.matches import counts as join_counts
from braid.operators.joins.matches import fire as joins
from braid.operators.joins.matches.counts import CountedJoins
from braid.operators.joins.matches.firing import DueJoins, WindowId
from braid.sources.core.storage import Storage
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG, SECOND, STREAMS
from tests.operators.join_pipeline import JoinPipeline, changelog
from tests.operators.pipeline import Row

CONDITIONS = ("v > {0}", "v < {0}", "v <> {0}", "v = {0} OR v > 4", "m < {0}", "k > {0}", "v > {0} AND m < 3", "TRUE")
WINDOWS = ("RANGE 4 SECONDS", "RANGE 4 SECONDS SLIDE 2 SECONDS", "RANGE 3 SECONDS SLIDE 1 SECONDS")


def random_sql(rng: random.Random) -> str:
    """Return a join of two streams by one or two columns, with a condition on each."""
    window = rng.choice(WINDOWS)
    left, right = (rng.choice(CONDITIONS).format(rng.randrange(6)).replace("v ", f"{x}.v ") for x in "xy")
    left, right = (c.replace("m ", f"{x}.m ").replace("k ", f"{x}.k ") for c, x in ((left, "x"), (right, "y")))
    keys = rng.choice(["x.k = y.k", "x.k = y.k AND x.m = y.m"])
    return f"SELECT x.v, y.v AS w FROM a [{window}] x, b [{window}] y WHERE {keys} AND ({left}) AND ({right})"


def random_rows(rng: random.Random, first: int, last: int) -> list[Row]:
    """Return rows of a few keys, some of them NULL, with event times in ``[first, last)`` seconds."""
    times = sorted(rng.randrange(first * SECOND, last * SECOND) for _ in range(rng.choice([0, 3, 40])))
    return [
        {
            "k": rng.choice([1, 2, 3, None]),
            "m": rng.randrange(4),
            "v": rng.choice([*range(6), None]),
            "x": 0.0,
            "s": "",
            "d": None,
            "t": time,
        }
        for time in times
    ]


@pytest.mark.parametrize("seed", range(25))
def test_rows_counted_in_pairs_are_those_of_each_query(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    queries = [plan_select(random_sql(rng), CATALOG) for _ in range(12)]
    batches = []
    for second in range(5, 20, 3):
        rows = {stream.id: random_rows(rng, second, second + 3) for stream in STREAMS}
        batches.append((rows, [(f"q{second}-{i}", second * 100 + i, rng.choice(queries)) for i in range(3)]))
    nothing = {"k": 9, "m": 9, "v": 9, "x": 0.0, "s": "", "d": None, "t": 99 * SECOND}
    batches.append(({stream.id: [nothing] for stream in STREAMS}, []))
    windows_counted: list[int] = []

    def count_together(due: DueJoins, predicates: Predicates) -> tuple[CountedJoins, list[WindowId]]:
        counted, uncounted = join_counts.count_together(due, predicates)
        windows_counted.append(len(counted.windows))
        return counted, uncounted

    monkeypatch.setattr(joins, "count_together", count_together)
    rows_by_query: list[dict[str, list[dict[str, Any]]]] = []
    counts = []
    for steps in (0, 1000):
        monkeypatch.setattr(join_counts, "STEPS_PER_KEY", steps)
        windows_counted.clear()
        pipeline = JoinPipeline(Storage(str(tmp_path / str(steps))), STREAMS, random.Random(0))
        for epoch, (rows, created) in enumerate(batches, start=1):
            pipeline.run(rows, [changelog(epoch, created)])
        assert not pipeline.failures
        counts.append(sum(windows_counted))
        by_text = {name: sorted(rows_of_query, key=str) for name, rows_of_query in pipeline.rows.items()}
        rows_by_query.append(by_text)
    assert rows_by_query[0] == rows_by_query[1]
    assert rows_by_query[0]
    assert counts[0] == 0 < counts[1]


def test_more_rows_than_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that may be beyond 64 bits are not formed."""
    monkeypatch.setattr(join_counts, "_MAX_ROWS", 100.0)
    monkeypatch.setattr(join_counts, "STEPS_PER_KEY", 10**9)
    window = "[RANGE 4 SECONDS]"
    query = plan_select(f"SELECT x.v FROM a {window} x JOIN b {window} y ON x.k = y.k", CATALOG)
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    rows = [{"k": 1, "m": 0, "v": i, "x": 0.0, "s": "", "d": None, "t": 5 * SECOND + i} for i in range(30)]
    pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, [("q", 0, query)])])
    pipeline.run({stream: [rows[0] | {"k": 2, "t": 50 * SECOND}] for stream in ("s-a", "s-b")})
    assert len(pipeline.rows["q"]) == 900
