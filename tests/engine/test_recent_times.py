"""Percentiles of the last event times: what is kept of them, and the watermark that follows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.engine.planning.offsets import Offset
from braid.engine.planning.recent_times import (
    LAST_TUPLES,
    MAX_POINTS,
    POINTS_OF_CHUNK,
    keep_last,
    merged,
    percentile_of,
    sum_up,
)
from braid.sources.core.watermark_options import SECOND, WatermarkOptions
from tests.operators.job_in_process import Job
from tests.operators.pipeline import STREAM

NOW = 1_700_000_000 * SECOND
LATENESS = STREAM.schema.lateness_us

TIMES = st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50)
PERCENTILES = st.floats(0.001, 100)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def nearest_rank(times: list[int], percentile: float) -> int:
    """The definition, in words of its own."""
    return sorted(times)[math.ceil(round(percentile / 100 * len(times), 6)) - 1]


@given(st.lists(TIMES, min_size=1, max_size=6), PERCENTILES, st.randoms(use_true_random=False))
def test_few_times_give_the_exact_percentile_however_they_are_dealt_out(
    chunks: list[list[int]], percentile: float, rng: Any
) -> None:
    all_times = [us for chunk in chunks for us in chunk]
    expected = nearest_rank(all_times, percentile)
    sums = [sum_up(numbers(*chunk)) for chunk in chunks]
    assert percentile_of(sums, percentile) == expected
    assert percentile_of([merged(sums)], percentile) == expected
    shuffled = rng.sample(sums, len(sums))
    assert merged(shuffled) == merged(sums)


@pytest.mark.parametrize(("percentile", "expected"), [(100, 10), (99.5, 10), (90, 9), (90.1, 10), (50, 5), (0.1, 1)])
def test_percentiles_of_ten(percentile: float, expected: int) -> None:
    assert percentile_of([sum_up(np.arange(1, 11))], percentile) == expected


def test_nothing_has_no_percentile() -> None:
    assert percentile_of([], 50) is None
    assert percentile_of([sum_up(numbers())], 50) is None


def test_many_times_are_summed_up_evenly() -> None:
    rng = np.random.default_rng(7)
    times = rng.permutation(1_000_000)
    whole = sum_up(times)
    assert len(whole["us"]) == MAX_POINTS
    assert sum(whole["tuples"]) == len(times)
    chunks = [sum_up(chunk, points=POINTS_OF_CHUNK) for chunk in np.array_split(times, 8)]
    parts = merged([merged(chunks[:3]), merged(chunks[3:])])
    assert sum(parts["tuples"]) == len(times)
    for percentile in (1, 50, 95, 99.5, 100):
        rank = percentile / 100 * len(times)
        assert percentile_of([whole], percentile) == pytest.approx(rank, abs=len(times) / MAX_POINTS + 1)
        assert percentile_of([parts], percentile) == pytest.approx(rank, abs=2.5 * len(times) / MAX_POINTS)
    assert whole["us"][-1] == parts["us"][-1] == len(times) - 1, "the greatest stays"


@given(st.lists(st.integers(1, 700), max_size=12))
def test_batches_are_forgotten_once_those_after_them_suffice(sizes: list[int]) -> None:
    last_sums: list[dict[str, list[int]]] = []
    for number, size in enumerate(sizes):
        last_sums = keep_last([*last_sums, sum_up(np.full(size, number))])
    counts = [sum(batch_sum["tuples"]) for batch_sum in last_sums]
    assert sum(counts) == sum(sizes) or sum(counts) >= LAST_TUPLES
    assert sum(counts[1:]) < LAST_TUPLES
    assert [batch_sum["us"][0] for batch_sum in last_sums] == list(range(len(sizes) - len(last_sums), len(sizes)))


def run(batches: list[list[int]], percentile: float | None) -> list[dict[str, Any]]:
    """Run batches of tuples with these event times; return their records."""
    stream = replace(STREAM, watermark=WatermarkOptions(None, None, percentile))
    records = []
    with TemporaryDirectory() as folder:
        job = Job(Path(folder), [stream], {"q": "SELECT v FROM s"})
        for times in batches:
            job.push("s", [{"k": 1, "v": 1, "s": "", "t": us} for us in times])
            end = job.planner.latest(job.offset, NOW)
            first = [body for kind, body in job.attempt(end) if kind == "progress"]
            again = [body for kind, body in job.attempt(Offset.from_json(end.to_json())) if kind == "progress"]
            assert [body["watermarks"] for body in first] == [body["watermarks"] for body in again]
            assert [body["recent"] for body in first] == [body["recent"] for body in again]
            records.append(job.batch(end))
        job.close()
    return records


@settings(max_examples=10, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=5), PERCENTILES)
def test_the_watermark_follows_the_percentile_and_the_clock_the_greatest_time(
    batches: list[list[int]], percentile: float
) -> None:
    seen: list[int] = []
    reached = -math.inf
    for times, record in zip(batches, run(batches, percentile), strict=True):
        seen += times
        reached = max(reached, nearest_rank(seen, percentile) - LATENESS)
        assert record["watermarks"] == {STREAM.id: reached}
        assert record["clocks"] == {STREAM.id: max(seen)}


def test_one_tuple_far_ahead_closes_nothing() -> None:
    ordinary = [list(range(NOW + 100 * n, NOW + 100 * n + 100)) for n in range(3)]
    ordinary[1].append(NOW + 10**12)
    (_, second, third) = run(ordinary, 99.0)
    assert second["watermarks"] == {STREAM.id: NOW + 198 - LATENESS}
    assert third["streams"][STREAM.id]["late"] == 0
    (_, second, third) = run(ordinary, None)
    assert second["watermarks"] == {STREAM.id: NOW + 10**12 - LATENESS}
    assert third["streams"][STREAM.id]["late"] == 100
    assert third["recent"] == {}
