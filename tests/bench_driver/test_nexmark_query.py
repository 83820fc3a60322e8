"""NEXMark's queries are those of the documentation, which a test of the oracle compares with DuckDB."""

from __future__ import annotations

import re

import pytest

from braid.bench_driver.dialects import braid
from braid.bench_driver.nexmark_query import BRAID, FLINK, NexmarkQuery, texts
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_load.probes import choose_probes
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.mixed_datasets import TABLE_COLUMNS
from braid.bench_driver.systems.spark_system import SparkSystem
from braid.bench_driver.systems.system import UnsupportedError
from braid.bench_driver.workload import load_workload
from tests.docs.pages import TOP, fences

PAGE = (TOP / "docs" / "nexmark.md").read_text(encoding="utf-8")
WORKLOAD = load_workload("nexmark")
PROBES = (4, 5, 7, 8, 12)
TIMES = re.compile(r"AS (?:latest|time_\d)\b")
WINDOWS = re.compile(r"(?:RANGE|INTERVAL) '?(\d+)'? (SECOND|MINUTE|DAY)")


@pytest.mark.parametrize("number", texts(BRAID))
def test_a_query_is_the_first_one_of_its_section_in_the_documentation(number: int) -> None:
    section = PAGE.partition(f"\n### q{number}\n")[2]
    _, printed = next(fences(section))
    assert braid.query_sql(NexmarkQuery(number), probe=False) == printed.rstrip().removesuffix(";")


def test_the_workload_has_the_streams_and_tables_of_the_documentation() -> None:
    for stream in WORKLOAD.streams:
        declared = PAGE.partition(f"CREATE STREAM {stream.name} (")[2].partition("WATERMARK")[0]
        columns = dict(column.removesuffix("(3)").split() for column in declared.strip(" ,\n").split(","))
        assert columns == dict(find_dataset(stream.dataset).columns)
    assert "CREATE TABLE side_input (key BIGINT, value VARCHAR)" in PAGE
    assert {name: TABLE_COLUMNS[name] for name in WORKLOAD.tables} == {
        "side_input": (("key", "BIGINT"), ("value", "VARCHAR"))
    }


def test_it_asks_each_query_once_and_chosen_ones_in_turns() -> None:
    numbers = [query.number for query in generate_queries(WORKLOAD, WORKLOAD.counts[0], 1)]
    assert sorted(numbers) == sorted(set(texts(BRAID)) - {13})
    chosen = load_workload("nexmark:queries=[13,5]")
    assert chosen.counts == (2,)
    assert generate_queries(chosen, 3, 1) == [NexmarkQuery(13), NexmarkQuery(5), NexmarkQuery(13)]
    with pytest.raises(ValueError, match=r"must be one of 0, 1, .*, got 19"):
        generate_queries(load_workload("nexmark:queries=[19]"), 1, 1)


@pytest.mark.parametrize(
    ("number", "streams", "slide_ms"),
    [
        (0, ("bid",), 0),
        (3, ("auction", "person"), 60_000),
        (4, ("auction", "bid"), 60_000),
        (5, ("bid",), 2000),
        (8, ("auction", "person"), 10_000),
        (13, ("bid",), 0),
        (15, ("bid",), 86_400_000),
        (18, ("bid",), 60_000),
    ],
)
def test_a_query_knows_its_streams_and_windows(number: int, streams: tuple[str, ...], slide_ms: int) -> None:
    query = NexmarkQuery(number)
    assert (query.streams, query.slide_ms, query.is_join) == (streams, slide_ms, len(streams) > 1)


@pytest.mark.parametrize("number", texts(BRAID))
def test_only_rows_of_windows_are_looked_at_for_how_late_they_come(number: int) -> None:
    query = NexmarkQuery(number)
    plain, probe = query.sql(BRAID, probe=False), query.sql(BRAID, probe=True)
    assert "/*" not in plain + probe
    assert bool(query.event_times) == (plain != probe) == (number in PROBES)
    outermost = probe.partition("FROM")[0]
    assert all(f" AS {name}" in outermost for name in query.event_times)


@pytest.mark.parametrize("number", WORKLOAD.options["queries"])
def test_flink_is_asked_the_same_with_windows_as_functions(number: int) -> None:
    query = NexmarkQuery(number)
    for probe in (False, True):
        ours, theirs = query.sql(BRAID, probe), query.sql(FLINK, probe)
        assert "/*" not in theirs
        assert " [RANGE" not in theirs
        assert sorted(TIMES.findall(theirs)) == sorted(TIMES.findall(ours))
        assert set(WINDOWS.findall(theirs)) == set(WINDOWS.findall(ours))


def test_probes_are_queries_whose_rows_tell_event_times() -> None:
    queries = generate_queries(WORKLOAD, 20, 1)
    probes = [queries[place] for place in choose_probes(queries, WORKLOAD.streams)]
    assert probes == [NexmarkQuery(4), NexmarkQuery(5), NexmarkQuery(12)], "the last quarter has none"
    assert choose_probes([NexmarkQuery(0)], WORKLOAD.streams) == []


def test_spark_is_not_asked() -> None:
    spark = SparkSystem("spark-queries")
    with pytest.raises(UnsupportedError, match="their peer is flink"):
        spark.deploy([NexmarkQuery(0)], 1.0)
