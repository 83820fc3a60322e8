"""``max_future`` in the whole job: tuples of the far future change nothing for anybody, whenever the batch runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.engine.planning.offsets import Offset
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import SECOND, WatermarkOptions
from tests.kit.examples import examples
from tests.operators.job_in_process import Job

NOW = 1_700_000_000 * SECOND
LIMIT = 10 * SECOND
SCHEMA = StreamSchema((Field("k", BIGINT), Field("v", BIGINT), Field("t", TIMESTAMP)), "t", SECOND)
STREAMS = [
    StreamDefinition(f"s-{name}", name, SCHEMA, "push", "json", watermark=WatermarkOptions(max_future_us=LIMIT))
    for name in "ab"
]
QUERIES = {
    "selected": "SELECT k, v, t FROM a WHERE v > 2",
    "summed": "SELECT k, SUM(v) AS total, COUNT(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "sessions": "SELECT k, MAX(v) AS top FROM b [SESSION 1 SECOND] GROUP BY k",
    "told": "SELECT COUNT(*) AS n FROM a [RANGE 5 SECONDS] EMIT STREAM",
    "joined": "SELECT a.k, a.v, b.v AS w FROM a [RANGE 3 SECONDS] AS a, b [RANGE 3 SECONDS] AS b WHERE a.k = b.k",
}

# a batch: the stream's name, how long after the beginning it is planned, and its tuples
Batches = list[tuple[str, int, list[dict[str, int]]]]


@contextmanager
def job(streams: list[StreamDefinition] = STREAMS, queries: dict[str, str] = QUERIES) -> Iterator[Job]:
    with TemporaryDirectory() as folder:
        running = Job(Path(folder), streams, queries)
        try:
            yield running
        finally:
            running.close()


def drawn(rng: random.Random) -> Batches:
    """Draw batches of tuples that lie around the time at which they are planned, up to the limit."""
    batches = []
    for second in range(0, 16, 2):
        planned_us = NOW + second * SECOND
        for stream in "ab":
            times = [planned_us + rng.randint(-3 * SECOND, LIMIT // 5) for _ in range(rng.randint(0, 6))]
            if rng.random() < 0.2:
                times.append(planned_us + LIMIT)
            rows = [{"k": rng.randint(0, 2), "v": rng.randint(0, 9), "t": us} for us in times]
            batches.append((stream, planned_us, rows))
    return batches


def with_future(batches: Batches, rng: random.Random) -> tuple[Batches, dict[str, int]]:
    """Add tuples beyond the limit in random places; return how many of each stream, too."""
    added = {"a": 0, "b": 0}
    found = []
    for stream, planned_us, rows in batches:
        more = list(rows)
        for _ in range(rng.choice([0, 0, 1, 3])):
            ahead = rng.choice([1, SECOND, 10**9 * SECOND])
            row = {"k": rng.randint(0, 2), "v": 9, "t": planned_us + LIMIT + ahead}
            more.insert(rng.randint(0, len(more)), row)
            added[stream] += 1
        found.append((stream, planned_us, more))
    return found, added


def outcome(batches: Batches) -> tuple[dict[str, list[Any]], dict[str, Any], dict[str, int], list[list[str]]]:
    """Return the rows of each query, the last clocks and watermarks, malformed tuples, and reasons of dead letters."""
    malformed = {"a": 0, "b": 0}
    times: dict[str, Any] = {}
    with job() as running:
        for stream, planned_us, rows in batches:
            running.push(stream, rows)
            for record in running.run(planned_us):
                times = {"clocks": record["clocks"], "watermarks": record["watermarks"]}
                for name in malformed:
                    malformed[name] += record["streams"][f"s-{name}"]["malformed"]
        found = {name: running.rows(name) for name in QUERIES}
        letters = [sorted(letter["reason"] for letter in running.dead_letters(stream)) for stream in "ab"]
    return found, times, malformed, letters


@pytest.mark.long
@settings(max_examples=examples(6), deadline=None)
@given(st.randoms(use_true_random=False))
def test_tuples_of_the_far_future_never_change_rows(rng: random.Random) -> None:
    batches = drawn(rng)
    with_more, added = with_future(batches, rng)
    rows, times, malformed, letters = outcome(batches)
    rows_of_more, times_of_more, malformed_of_more, letters_of_more = outcome(with_more)

    def comparable(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The selection's rows are in no order, and processing times are those of batches."""
        return {name: sorted(map(str, each)) for name, each in found.items()}

    assert comparable(rows_of_more) == comparable(rows)
    assert times_of_more == times
    assert (malformed, malformed_of_more) == ({"a": 0, "b": 0}, added)
    expected = [sorted(old + ["malformed"] * added[name]) for old, name in zip(letters, "ab", strict=True)]
    assert letters_of_more == expected


def test_a_batch_that_runs_again_later_decides_the_same() -> None:
    with job(queries={"all": "SELECT v FROM a"}) as running:
        running.push("a", [{"v": 1, "t": NOW + LIMIT}, {"v": 2, "t": NOW + LIMIT + 1}])
        end = running.planner.latest(running.offset, NOW)
        first = told(running, end)
        logged = Offset.from_json(end.to_json())
        assert told(running, logged) == first, "the wall clock has gone on, the batch's has not"
        record = running.batch(logged)
        assert (record["streams"]["s-a"]["tuples"], record["streams"]["s-a"]["malformed"]) == (1, 1)
        assert running.rows("all") == [{"v": 1}]


def told(running: Job, end: Offset) -> Any:
    """Return what a batch would record of streams, clocks and watermarks."""
    progress = [body for kind, body in running.attempt(end) if kind == "progress"]
    return [{name: each[name] for name in ("streams", "clocks", "watermarks", "idle")} for each in progress]


def test_without_the_limit_the_far_future_closes_all_windows() -> None:
    streams = [replace(stream, watermark=WatermarkOptions(max_future_us=None)) for stream in STREAMS]
    with job(streams, {"summed": "SELECT SUM(v) AS total FROM a [RANGE 4 SECONDS]"}) as running:
        running.push("a", [{"v": 1, "t": NOW}, {"v": 2, "t": NOW + 10**9 * SECOND}])
        running.run(NOW)
        assert [row["total"] for row in running.rows("summed")] == [1]
        running.push("a", [{"v": 1, "t": NOW + SECOND}])
        running.run(NOW + SECOND)
        assert [letter["reason"] for letter in running.dead_letters("a")] == ["late"]
