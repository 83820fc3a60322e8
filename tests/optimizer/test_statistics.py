"""Statistics of batch records: rates that follow what comes, selectivities of the newest tuples; old ones go."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from braid.operators.expressions import Column
from braid.operators.report import draw_sample
from braid.optimizer.statistics import SAMPLE_KEPT, TIME_CONSTANT_SECONDS, Rate, Spent, Statistics
from braid.sources.core.schema import VARCHAR
from tests.session.queries import PRICE, above

SECOND = 1_000_000


def record(second: float, tuples: int = 0, report: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"committed_us": int(second * SECOND), "streams": {"s-1": {"tuples": tuples}}, "report": report}


def told(
    sources: dict[str, int], partitions: dict[str, int] | None = None, prices: list[float | None] | None = None
) -> dict[str, Any]:
    sample = draw_sample(pa.RecordBatch.from_pydict({"price": pa.array(prices or [], pa.float64())}), ["price"], 1)
    return {
        "sources": {"busy_us": sources, "chunks": {name: [100, 2, 7] for name in sources}},
        "partitions": {"busy_us": partitions or {}, "chunks": {}},
        "samples": {} if prices is None else {"s-1": [sample]},
    }


def test_a_rate_follows_what_comes_and_forgets() -> None:
    rate = Rate()
    assert rate.value == 0
    for _ in range(100):
        rate.add(50, 0.5)
    assert rate.value == pytest.approx(100)
    rate.add(0, TIME_CONSTANT_SECONDS)
    assert 0 < rate.value < 40


def test_tuples_and_time_become_rates() -> None:
    statistics = Statistics()
    for second in range(20):
        statistics.observe(record(second, 1000, told({"a": 200_000, "b": 100_000}, {"a": 50_000})))
        statistics.observe(record(second + 0.5, 500))
    assert statistics.tuples_per_second("s-1") == pytest.approx(1500, rel=0.05)
    assert statistics.tuples_per_second("s-2") == 0
    assert statistics.source_cores(["a", "b"]) == pytest.approx(0.3)
    assert statistics.partition_cores(["a", "b"]) == pytest.approx(0.05)
    assert statistics.all_cores() == pytest.approx(0.35)
    assert statistics.distinct_keys(["a", "gone"]) == 7
    assert statistics.distinct_keys(["gone"]) is None


def test_an_operator_that_is_gone_is_forgotten() -> None:
    statistics = Statistics()
    for second in range(3):
        statistics.observe(record(second, 0, told({"a": 1000})))
    for second in range(3, 3 + int(25 * TIME_CONSTANT_SECONDS)):
        statistics.observe(record(second, 0, told({"b": 1000})))
    assert statistics.source_cores(["a"]) == 0
    assert statistics.distinct_keys(["a"]) is None
    assert statistics.source_cores(["b"]) == pytest.approx(0.001)


def test_samples_and_totals_are_kept_of_what_there_is() -> None:
    statistics = Statistics()
    for second in range(3):
        statistics.observe(record(second, 10, told({"a": 1000, "b": 1000}, {"x": 500, "y": 500}, [1.0])))
    before = statistics.spent(["a"], "x", ["s-1"])
    assert before.tuples == 20
    statistics.keep({"a", "x", "s-1"})
    assert statistics.spent(["a"], "x", ["s-1"]) == before
    assert statistics.spent(["b"], "y", ["s-1"]) == Spent(0, 0, before.tuples, before.seconds)
    assert statistics.sample("s-1", ["price"]) is not None
    statistics.keep({"a", "x"})
    assert statistics.spent(["a"], "x", ["s-1"]).tuples == 0
    assert statistics.sample("s-1", ["price"]) is None


def test_selectivity_is_the_share_of_the_newest_tuples() -> None:
    statistics = Statistics()
    assert statistics.selectivity("s-1", above(5.0)) is None
    everything = statistics.selectivity("s-1", None)
    assert everything is not None
    assert everything.share == 1
    statistics.observe(record(0, 4, told({}, prices=[1.0, None, 6.0, 7.0])))
    selectivity = statistics.selectivity("s-1", above(5.0))
    assert selectivity is not None
    assert (selectivity.share, selectivity.sampled) == (0.5, 4)
    for second in range(SAMPLE_KEPT):
        statistics.observe(record(second, 2, told({}, prices=[9.0, 9.0])))
    selectivity = statistics.selectivity("s-1", above(5.0))
    assert selectivity is not None
    assert (selectivity.share, selectivity.sampled) == (1.0, SAMPLE_KEPT)


def test_distinct_values_are_those_of_what_is_selected() -> None:
    statistics = Statistics()
    assert statistics.distinct_values("s-1", None, PRICE, 100) is None
    prices = [1.0, 1.0, 2.0, None, 6.0, 7.0, 7.0, 8.0]
    statistics.observe(record(0, 8, told({}, prices=prices)))
    # four of the seven prices: each that came once stands for as many as the root of 28 / 7
    assert statistics.distinct_values("s-1", None, PRICE, 28) == pytest.approx(2 + 3 * 2)
    assert statistics.distinct_values("s-1", above(5.0), PRICE, 16) == pytest.approx(1 + 2 * 2)
    assert statistics.distinct_values("s-1", None, PRICE, 5) == 5, "no more than there are tuples"
    assert statistics.distinct_values("s-1", above(9.0), PRICE, 0) == 1
    assert statistics.distinct_values("s-1", None, Column("note", VARCHAR), 28) is None


def test_a_predicate_over_a_column_that_is_not_sampled_has_no_selectivity() -> None:
    statistics = Statistics()
    statistics.observe(record(0, 1, told({}, prices=[1.0])))
    assert statistics.selectivity("s-2", above(5.0)) is None
