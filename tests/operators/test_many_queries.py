"""Many queries at once: each gets what it would get alone, and windows that hardly share an edge stay exact."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from braid.operators.queries import Aggregation, Query
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.windows import Window
from braid.sources.core.storage import Storage
from tests.kit.examples import IS_LONG
from tests.operators.pipeline import K, Pipeline, Row, V, aggregation, changelog, compare
from tests.operators.test_shared_aggregation import random_query, random_tuples

pytestmark = pytest.mark.usefixtures("some_alone")

SECOND = 1_000_000
MINUTES = 10
# `make test-long` takes all
WINDOWS = 2000 if IS_LONG else 80

Numbers = npt.NDArray[np.int64]


def rows_of(folder: Path, queries: Iterable[tuple[int, Query]], batches: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Return what each query gets that is created after the first batch, by its number."""
    pipeline = Pipeline(Storage(str(folder)))
    created = [(str(number), slot, query) for slot, (number, query) in enumerate(queries)]
    for i, tuples in enumerate(batches):
        pipeline.run(tuples, [changelog(1, created, capacity=len(created))] if i == 1 else [])
    return {name: sorted(map(repr, pipeline.rows.get(name, []))) for name, _, _ in created}


def test_a_query_gets_the_same_rows_alone_and_among_a_thousand(tmp_path: Path) -> None:
    rng = random.Random(11)
    queries = [random_query(rng) for _ in range(1000)]
    batches: list[list[Row]] = []
    time = 0
    for _ in range(8):
        tuples, time = random_tuples(rng, time)
        batches.append(tuples)
    batches.append([{"k": 0, "v": 0, "s": "end", "t": time + 10_000}])
    together = rows_of(tmp_path / "together", enumerate(queries), batches)
    looked_at = rng.sample(range(1000), 25)
    for number in looked_at:
        alone = rows_of(tmp_path / str(number), [(number, queries[number])], batches)
        assert together[str(number)] == alone[str(number)], queries[number]
    assert sum(len(together[str(number)]) for number in looked_at) > 200


def test_windows_of_all_sizes_over_ten_minutes(tmp_path: Path) -> None:
    rng = random.Random(12)
    queries = [random_windows(rng) for _ in range(WINDOWS)]
    times = sorted(rng.randrange(MINUTES * 60 * SECOND) for _ in range(50 * 6 * MINUTES))
    tuples = [{"k": rng.randrange(4), "v": rng.randrange(100), "s": "", "t": t} for t in times]
    pipeline = Pipeline(Storage(str(tmp_path)))
    created = [(str(i), i, query) for i, query in enumerate(queries)]
    pipeline.run([], [changelog(1, created, capacity=len(created))])
    for begin in range(0, MINUTES * 60 * SECOND, 10 * SECOND):
        pipeline.run([row for row in tuples if begin <= row["t"] < begin + 10 * SECOND])
    pipeline.run([{"k": 0, "v": 0, "s": "", "t": 3 * MINUTES * 60 * SECOND}])
    t, k, v = (np.array([row[name] for row in tuples], dtype=np.int64) for name in "tkv")
    for name, _, query in created:
        got = {(start, end, *keys): tuple(values) for start, end, keys, *values in pipeline.rows.get(name, [])}
        assert got == expected(query, t, k, v), query


def random_windows(rng: random.Random) -> Aggregation:
    """Return a query whose window has any size, slide and offset in whole milliseconds."""
    size = round(1000 * 300 ** rng.random())
    slide = max(1, round(size / rng.uniform(1, 8)))
    window = Window(size * 1000, rng.choice([size, slide]) * 1000, rng.randrange(size) * 1000)
    where = compare(V, rng.choice(["<", ">="]), rng.randrange(100)) if rng.random() < 0.8 else None
    return aggregation(where, rng.choice([(), (K,)]), window, (COUNT_ALL, Measure("sum", V)))


def expected(query: Aggregation, t: Numbers, k: Numbers, v: Numbers) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return count and sum by window and key."""
    where, window = query.where, query.window
    assert isinstance(window, Window)
    if where is not None:
        limit = where.arguments[1].value  # type: ignore[attr-defined]
        mine = v < limit if where.function == "<" else v >= limit  # type: ignore[attr-defined]
        t, k, v = t[mine], k[mine], v[mine]
    first = (t - window.offset_us - window.size_us) // window.slide_us + 1
    windows = (t - window.offset_us) // window.slide_us - first + 1
    row = np.repeat(np.arange(len(t)), windows)
    number = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(windows) - windows, windows)
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for n, key, value in zip(number.tolist(), k[row].tolist(), v[row].tolist(), strict=True):
        start = n * window.slide_us + window.offset_us
        group = (start, start + window.size_us, *([key] if query.keys else []))
        count, total = found.get(group, (0, 0))
        found[group] = count + 1, total + value
    return found
