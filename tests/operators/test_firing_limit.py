"""How far windows fire in one batch: a leap of the watermark is worked off in pieces, and every row comes, in order."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.engine.planning.batch_budget import FiringBudget
from braid.engine.planning.offsets import Offset
from braid.operators.aggregation.partition import AggregationPartition
from braid.operators.live_queries import LiveQueries
from braid.operators.queries import Aggregation
from braid.operators.query_parts import COUNT_ALL
from braid.operators.windowing.firing_limit import FiringLimit
from braid.operators.windowing.slicing import due_windows
from braid.operators.windows import Window
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from tests.kit.examples import examples
from tests.operators.job_in_process import Job
from tests.operators.pipeline import STREAM, live_of, predicate_of
from tests.operators.test_firing import buckets_of

SECOND = 10**6
NOW = 1_700_000_000 * SECOND
SCHEMA = StreamSchema((Field("k", BIGINT), Field("v", BIGINT), Field("t", TIMESTAMP)), "t", 0)
STREAMS = [StreamDefinition(name, name, SCHEMA, "push", "json") for name in "ab"]
QUERIES = {
    "hops": "SELECT MOD(v, 3) AS g, SUM(v) AS s FROM a [RANGE 3 SECONDS SLIDE 1 SECONDS] GROUP BY MOD(v, 3)",
    "sessions": "SELECT k, COUNT(*) AS n FROM a [SESSION 2 SECONDS] GROUP BY k",
    "distinct": "SELECT COUNT(DISTINCT k) AS n FROM a [RANGE 5 SECONDS]",
    "joined": "SELECT a.v, b.v AS w FROM a [RANGE 4 SECONDS] AS a, b [RANGE 4 SECONDS] AS b WHERE a.k = b.k",
    "of_b": "SELECT COUNT(*) AS n FROM b [RANGE 1 SECONDS]",
}


def rows_of(folder: Path, budget_us: float | None, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[Any]]:
    """Push two backlogs at once, run what there is to do; return the rows of each query, and the records."""
    with monkeypatch.context() as patch:
        if budget_us is not None:
            patch.setattr(FiringBudget, "learn", lambda *_: None)
        job = Job(folder, STREAMS, QUERIES)
        if budget_us is not None:
            job.planner._firing.us = budget_us
        for stream, step in (("a", 1), ("b", 3)):
            rows = [{"k": i % 7, "v": i, "t": NOW - 10**9 * 5 + i * step * SECOND} for i in range(0, 900, step)]
            job.push(stream, rows)
        records = job.run(NOW)
        job.push("a", [{"k": 0, "v": 0, "t": NOW}])
        job.push("b", [{"k": 0, "v": 0, "t": NOW}])
        records += job.run(NOW + SECOND)
        rows = {query: job.rows(query) for query in QUERIES}
        job.close()
    return rows, records


def test_a_backlog_fires_in_pieces_with_the_same_rows_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, records = rows_of(tmp_path / "whole", None, monkeypatch)
    assert all(record["fired"] == record["watermarks"] for record in records)
    pieces, records = rows_of(tmp_path / "pieces", 5_000.0, monkeypatch)
    assert pieces == whole
    assert all(whole.values())
    behind = [record for record in records if record["fire_to"]]
    assert len(behind) >= 5
    assert all(
        record["streams"][stream]["tuples"] == 0
        for before, record in itertools.pairwise(records)
        for stream in before["fire_to"]
    ), "nothing is read of a stream that has more to fire"
    assert records[-1]["fired"] == records[-1]["watermarks"] == {"a": NOW, "b": NOW}


def test_a_batch_that_stopped_between_windows_runs_again_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FiringBudget, "learn", lambda *_: None)
    job = Job(tmp_path, STREAMS, QUERIES)
    job.planner._firing.us = 3_000.0
    job.push("a", [{"k": i % 7, "v": i, "t": NOW - 10**9 + i * SECOND} for i in range(300)])
    attempts = 0
    while (end := job.planner.latest(job.offset, NOW)) is not job.offset:
        first, again = job.attempt(end), job.attempt(Offset.from_json(end.to_json()))
        for one, other in zip(first, again, strict=True):
            assert one[0] == other[0]
            if one[0] == "progress":
                assert (one[1]["fired"], one[1]["watermarks"]) == (other[1]["fired"], other[1]["watermarks"])
            if one[0] == "block":
                assert (one[1]["slots"], one[1]["counts"]) == (other[1]["slots"], other[1]["counts"])
        job.batch(end)
        attempts += 1
    assert attempts > 5
    job.close()


WINDOWS = st.builds(Window, st.integers(1, 40), st.integers(1, 20), st.integers(0, 5))
TIMES = st.lists(st.integers(0, 10_000), min_size=1, max_size=60)


def limit_of(live: LiveQueries) -> FiringLimit:
    return FiringLimit(AggregationPartition(live, predicate_of).ends())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(WINDOWS, min_size=1, max_size=3, unique=True), TIMES, st.integers(-50, 10_000), st.floats(0, 1e5))
def test_a_partition_fires_the_next_windows_at_least_and_all_that_the_budget_allows(
    windows: list[Window], times: list[int], fired: int, budget_us: float
) -> None:
    live = live_of(*(Aggregation(STREAM.id, window, None, (), (COUNT_ALL,), ()) for window in windows))
    buckets = buckets_of(live, STREAM, [{"k": 1, "v": 1, "s": "", "t": time} for time in times])
    watermark = max(*times, fired + 1)
    by_operator: dict[str, list[Any]] = {}
    for bucket in buckets:
        by_operator.setdefault(bucket.operator, []).append(bucket)
    limit = limit_of(live)
    (reached,) = limit.affordable(lambda: by_operator, {STREAM.id: fired}, {STREAM.id: watermark}, budget_us).values()
    assert fired < reached <= watermark
    slices = [bucket.slices for bucket in buckets]
    ends = sorted(
        {end for window in windows for each in slices for _, end in due_windows(each, window, fired, watermark)}
    )
    assert not ends or reached >= ends[0]
    everything = limit.affordable(lambda: by_operator, {STREAM.id: fired}, {STREAM.id: watermark}, 1e12)
    assert everything == {STREAM.id: watermark}


def test_streams_without_windows_are_fired_up_to_their_watermarks() -> None:
    limit = FiringLimit()
    assert limit.fired_after({"a": None, "b": 5}, {"a": 10**15, "b": 10**15}, {"a": 0}, {}, 0.0) == {
        "a": 10**15,
        "b": 10**15,
    }
