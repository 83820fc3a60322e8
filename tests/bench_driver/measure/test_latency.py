"""Definitions 1 to 4 on logs of pulls that are written by hand."""

from __future__ import annotations

import pytest

from braid.bench_driver.measure.latency import (
    Ingestion,
    Latency,
    event_time_latencies,
    latency_quantiles,
    latency_series,
    processing_time_latencies,
    quantiles,
)
from braid.bench_driver.queues.process import Pull
from braid.bench_driver.queues.schedule import RateSegment, Schedule
from braid.bench_driver.systems.system import SystemOutput

# tuple i comes at second 1000 + i / 10
SCHEDULE = Schedule((RateSegment(0, 1_000_000_000, 10),))


def pull(at: float, start: int, end: int, consumer: str = "a") -> Pull:
    """Return a pull `at` seconds after 1000."""
    return Pull(1000 + at, consumer, start, end)


def test_event_time_latency_is_from_the_newest_tuple_to_the_arrival() -> None:
    outputs = [
        SystemOutput(1005.0, 1004.5, 3),
        SystemOutput(1006.0, 1003.0, 1),
        SystemOutput(1007.0, 1002.0, 1),
        SystemOutput(1020.0, 1019, 1),
    ]
    latencies = event_time_latencies(outputs, 1005.0, 1010.0, since=1002.5)
    assert latencies == [Latency(1005.0, 0.5, 3), Latency(1006.0, 3.0, 1)], "of before the step, or after it"


def test_processing_time_latency_is_from_the_pull_of_the_newest_tuple() -> None:
    queue = Ingestion([pull(2, 0, 20), pull(4, 20, 40), pull(7, 40, 60)], SCHEDULE)
    # tuple 35, of 3.5 s, was pulled at 4 s; tuple 50, of 5.0 s, at 7 s
    outputs = [SystemOutput(1006.0, 1003.5, 2), SystemOutput(1009.0, 1005.0, 1)]
    assert processing_time_latencies(outputs, 1000, 1010, 1000, [queue]) == [
        Latency(1006.0, 2.0, 2),
        Latency(1009.0, 2.0, 1),
    ]
    assert [x.seconds for x in event_time_latencies(outputs, 1000, 1010, 1000)] == [2.5, 4.0]


def test_of_several_streams_the_greatest_ingestion_counts() -> None:
    early, late = Ingestion([pull(4, 0, 100)], SCHEDULE), Ingestion([pull(6, 0, 100)], SCHEDULE)
    latencies = processing_time_latencies([SystemOutput(1009.0, 1003.5, 1)], 1000, 1010, 1000, [early, late])
    assert [x.seconds for x in latencies] == [3.0]


def test_a_range_pulled_again_after_a_failure_counts_when_it_was_first_pulled() -> None:
    queue = Ingestion([pull(2, 0, 20), pull(5, 0, 20), pull(6, 10, 40)], SCHEDULE)
    assert queue.of(1001.5, 1010) == 1002
    assert queue.of(1002.5, 1010) == 1006


def test_ranges_pulled_side_by_side_are_there_when_the_last_is() -> None:
    queue = Ingestion([pull(3, 20, 40), pull(4, 0, 20)], SCHEDULE)
    assert queue.of(1003.0, 1010) == 1004


def test_of_several_consumers_the_middle_one_that_had_it_by_then_counts() -> None:
    pulls = [pull(at, 0, 20, name) for at, name in [(2, "a"), (3, "b"), (4, "c"), (9, "d")]]
    queue = Ingestion(pulls, SCHEDULE)
    assert queue.of(1001.0, 1005) == 1003
    assert queue.of(1001.0, 1002.5) == 1002


def test_what_was_not_pulled_by_then_has_no_processing_time() -> None:
    queue = Ingestion([pull(5, 0, 20)], SCHEDULE)
    assert queue.of(1001.0, 1004.0) is None
    assert queue.of(1003.0, 1010.0) is None
    assert queue.of(999.0, 1010.0) is None
    assert Ingestion([], SCHEDULE).of(1001.0, 1010.0) is None
    assert processing_time_latencies([SystemOutput(1004.0, 1001.0, 1)], 1000, 1010, 1000, [queue]) == []


def test_a_tuple_does_not_reach_the_system_before_it_comes() -> None:
    # a queue that is pulled from ahead of time hands tuples over as they come
    queue = Ingestion([pull(0, 0, 100)], SCHEDULE)
    latencies = processing_time_latencies([SystemOutput(1006.0, 1005.0, 1)], 1000, 1010, 1000, [queue])
    assert [x.seconds for x in latencies] == [1.0]


def test_a_schedule_that_began_anew_maps_times_of_its_last_segment() -> None:
    # of the first segment 20 tuples were pulled by second 5, the rest was dropped
    schedule = Schedule((RateSegment(0, 1_000_000_000, 10), RateSegment(20, 1_005_000_000, 100)))
    queue = Ingestion([pull(2, 0, 20), pull(5.5, 20, 60), pull(6, 60, 120)], schedule)
    assert queue.of(1005.2, 1010) == 1005.5
    assert queue.of(1005.7, 1010) == 1006


def test_quantiles_weigh_rows() -> None:
    latencies = [Latency(1000 + i, float(i), 1) for i in range(1, 100)] + [Latency(1200, 500.0, 900)]
    weighed = latency_quantiles(latencies)
    assert weighed == {"p50": 500.0, "p95": 500.0, "p99": 500.0, "max": 500.0}
    unweighed = quantiles([float(i) for i in range(1, 101)])
    assert unweighed == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def test_a_single_firing_gives_no_quantiles() -> None:
    assert latency_quantiles([]) is None
    assert latency_quantiles([Latency(1000.0, 1.0, 10), Latency(1000.0, 2.0, 10)]) is None
    assert quantiles([]) is None


def test_the_series_has_a_point_for_every_second_in_which_something_came() -> None:
    latencies = [Latency(1000.2, 1.0, 3), Latency(1000.9, 4.0, 1), Latency(1003.5, 2.0, 1)]
    assert latency_series(latencies, 1000.0) == [[0.0, 1.0, 4.0], [3.0, 2.0, 2.0]]


@pytest.mark.parametrize("rows", [0, -1])
def test_outputs_without_rows_are_none(rows: int) -> None:
    assert event_time_latencies([SystemOutput(1005.0, 1004.5, rows)], 1000, 1010, 1000) == []
