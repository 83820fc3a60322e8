"""The texts of each system's dialect: Braid's planner takes them, Spark gives the rows of a recomputation by hand.

Flink is no dependency of the tests, so its texts are compared with ones that a real Flink 2.3 has run.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from braid.bench_driver.dialects import braid, flink, spark
from braid.bench_driver.dialects.common import event_time_columns
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_spec import ColumnRef, Comparison, JoinSpec, QuerySpec, WindowSpec
from braid.bench_driver.queues.datasets import DATASETS
from braid.bench_driver.workload import StreamSpec, load_workload
from braid.operators.queries import Aggregation
from braid.session.commands.statements import read_create_stream, to_definition
from tests.kit.plans import plan_select

LOCATION = "grpc://127.0.0.1:8815"
AGGREGATION = QuerySpec(
    streams=("a",),
    window=WindowSpec(3000, 1000),
    comparisons=(Comparison("a", "field1", ">=", 3),),
    keys=(ColumnRef("a", "key"),),
    measure=ColumnRef("a", "field0"),
)
JOIN = QuerySpec(
    streams=("a", "b"),
    window=WindowSpec(2000, 2000),
    comparisons=(Comparison("a", "field1", "<", 7), Comparison("b", "field2", ">", 2)),
    joins=(JoinSpec(ColumnRef("a", "key"), ColumnRef("b", "key")),),
    columns=(ColumnRef("a", "key"), ColumnRef("a", "field0"), ColumnRef("b", "key"), ColumnRef("b", "field3")),
)
COMPLEX = QuerySpec(
    streams=("a", "b", "c"),
    window=WindowSpec(2500, 1000),
    comparisons=(Comparison("a", "field1", "<=", 6), Comparison("c", "field2", "=", 5)),
    joins=(
        JoinSpec(ColumnRef("a", "key"), ColumnRef("b", "key")),
        JoinSpec(ColumnRef("c", "key"), ColumnRef("b", "key")),
    ),
    keys=(ColumnRef("a", "key"),),
    measure=ColumnRef("b", "field0"),
)


def test_a_row_s_event_time_is_in_the_columns_of_a_probe() -> None:
    assert [event_time_columns(spec) for spec in (AGGREGATION, JOIN, COMPLEX)] == [
        ("latest",),
        ("time_0", "time_1"),
        ("latest",),
    ]


# Braid


@pytest.mark.parametrize("dataset", DATASETS)
def test_braid_takes_the_streams_of_all_datasets(dataset: str) -> None:
    columns = DATASETS[dataset].columns
    created = read_create_stream(braid.stream_sql("some", columns, LOCATION, "it's"))
    assert created.connector == "flight"
    assert created.options == {"location": LOCATION, "path": "it's"}
    assert (created.schema.event_time, created.schema.lateness_us) == (DATASETS[dataset].time, 0)
    assert [(field.name, str(field.type)) for field in created.schema.fields] == list(columns)


@pytest.mark.parametrize("name", ["rovio-aggregation", "large-windows-sliding", "one-key", "astream-sc1"])
@pytest.mark.parametrize("probe", [False, True])
def test_braid_takes_aggregations(name: str, probe: bool) -> None:
    workload = load_workload(name)
    (stream,) = workload.streams
    created = read_create_stream(braid.stream_sql(stream.name, DATASETS[stream.dataset].columns, LOCATION, "p"))
    catalog = {stream.name: to_definition(created, "s-1", "", 0)}
    for spec in generate_queries(workload, 40, 1):
        query = plan_select(braid.query_sql(spec, probe), catalog)
        assert isinstance(query, Aggregation)
        assert (query.window.size_us, query.window.slide_us) == (
            spec.window.size_ms * 1000,
            spec.window.slide_ms * 1000,
        )
        names = ["window_start", "window_end", "total", *(["latest"] if probe else [])]
        assert [output.name for output in query.outputs] == names
        assert (query.where is not None) == bool(spec.comparisons)


def test_braid_s_joins_have_the_thesis_s_form() -> None:
    assert braid.query_sql(JOIN, probe=True) == (
        "SELECT a.key AS a_key, a.field0, b.key AS b_key, b.field3, a.time AS time_0, b.time AS time_1"
        " FROM a [RANGE 2 SECONDS SLIDE 2 SECONDS], b [RANGE 2 SECONDS SLIDE 2 SECONDS]"
        " WHERE a.key = b.key AND a.field1 < 7 AND b.field2 > 2"
    )
    assert braid.query_sql(COMPLEX, probe=True) == (
        "SELECT SUM(b.field0) AS total, GREATEST(MAX(a.time), MAX(b.time), MAX(c.time)) AS latest"
        " FROM a [RANGE 2500 MILLISECONDS SLIDE 1 SECONDS], b [RANGE 2500 MILLISECONDS SLIDE 1 SECONDS],"
        " c [RANGE 2500 MILLISECONDS SLIDE 1 SECONDS]"
        " WHERE a.key = b.key AND c.key = b.key AND a.field1 <= 6 AND c.field2 = 5 GROUP BY a.key"
    )


# Spark

Tuples = dict[str, list[dict[str, Any]]]
COMPARE = {"=": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


@pytest.fixture(scope="module")
def tuples() -> Tuples:
    """Tuples of three streams over some seconds."""
    rng = random.Random(3)
    by_stream: Tuples = {}
    for stream in "abc":
        event_time = datetime(2026, 1, 1)
        by_stream[stream] = []
        for i in range(60):
            event_time += timedelta(milliseconds=rng.randrange(200))
            fields = {f"field{j}": rng.randrange(10) for j in range(5)}
            by_stream[stream].append({"key": i % 4, **fields, "time": event_time})
    return by_stream


@pytest.fixture(scope="module")
def spark_session(tuples: Tuples) -> Iterator[SparkSession]:
    """Spark with a view of each stream."""
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # it runs few queries once: compiling them for speed costs more than it brings
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    for stream, rows in tuples.items():
        session.createDataFrame(pa.Table.from_pylist(rows)).createOrReplaceTempView(stream)
    yield session
    session.stop()


def _recompute(spec: QuerySpec, tuples: Tuples) -> Counter[tuple[Any, ...]]:
    """Return the probe's rows by brute force: all combinations of tuples in all windows."""
    size, slide = (timedelta(milliseconds=ms) for ms in (spec.window.size_ms, spec.window.slide_ms))
    epoch = datetime(1970, 1, 1)
    rows: Counter[tuple[Any, ...]] = Counter()
    groups = defaultdict(list)
    for combination in itertools.product(*(_selected(spec, stream, tuples) for stream in spec.streams)):
        by_stream = dict(zip(spec.streams, combination, strict=True))

        def value(column: ColumnRef, by_stream: dict[str, Any] = by_stream) -> Any:
            return by_stream[column.stream][column.column]

        if any(value(step.left) != value(step.right) for step in spec.joins):
            continue
        times = [row["time"] for row in combination]
        start = epoch + (max(times) - epoch) // slide * slide
        while start + size > max(times):
            if start <= min(times):
                if spec.measure:
                    groups[start, *map(value, spec.keys)].append((value(spec.measure), max(times)))
                else:
                    rows[(*map(value, spec.columns), *times)] += 1
            start -= slide
    for members in groups.values():
        rows[sum(total for total, _ in members), max(latest for _, latest in members)] += 1
    return rows


def _selected(spec: QuerySpec, stream: str, tuples: Tuples) -> list[dict[str, Any]]:
    chosen = [c for c in spec.comparisons if c.stream == stream]
    return [row for row in tuples[stream] if all(COMPARE[c.operator](row[c.column], c.constant) for c in chosen)]


@pytest.mark.long
@pytest.mark.parametrize("spec", [AGGREGATION, JOIN, COMPLEX], ids=["aggregation", "join", "complex"])
def test_spark_gives_the_rows_of_a_recomputation(spec: QuerySpec, spark_session: SparkSession, tuples: Tuples) -> None:
    expected = _recompute(spec, tuples)
    assert len(expected) > 10
    assert Counter(map(tuple, spark_session.sql(spark.query_sql(spec, probe=True)).collect())) == expected


@pytest.mark.long
def test_spark_runs_joins_and_aggregations_of_streams(
    spark_session: SparkSession, tuples: Tuples, tmp_path: Path
) -> None:
    # a stateful operator refuses inputs with several watermarks, which a table's plan does not show
    streaming = spark_session.newSession()
    for stream in tuples:
        table = spark_session.table(stream)
        table.write.parquet(str(tmp_path / stream))
        source = streaming.readStream.schema(table.schema).parquet(str(tmp_path / stream))
        source.withWatermark("time", "0 seconds").createOrReplaceTempView(stream)
    rows: list[Row] = []
    query = (
        streaming.sql(spark.query_sql(COMPLEX, probe=True))
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(rows) > 5
    # windows that were open when the tuples ended are missing
    assert Counter(map(tuple, rows)) <= _recompute(COMPLEX, tuples)


@pytest.mark.long
def test_spark_s_queries_select_no_event_times_unless_they_are_probes(spark_session: SparkSession) -> None:
    assert spark_session.sql(spark.query_sql(COMPLEX, probe=False)).columns == ["total"]
    assert spark_session.sql(spark.query_sql(JOIN, probe=False)).columns == ["a_key", "field0", "b_key", "field3"]


@pytest.mark.long
@pytest.mark.parametrize("spec", [AGGREGATION, COMPLEX], ids=["aggregation", "complex"])
def test_a_fused_query_gives_the_sums_of_each_query(
    spec: QuerySpec, spark_session: SparkSession, tuples: Tuples
) -> None:
    specs = [
        replace(spec, comparisons=comparisons)
        for comparisons in ((), spec.comparisons, (Comparison("a", "field3", "=", 4), Comparison("a", "key", ">", 0)))
    ]
    rows = spark_session.sql(spark.fused_sql(specs, probe=True)).collect()
    assert rows[0].asDict().keys() == {"q0", "q1", "q2", "latest"}
    for i, fused_spec in enumerate(specs):
        sums = Counter(row[f"q{i}"] for row in rows if row[f"q{i}"] is not None)
        expected = Counter(total for total, _ in _recompute(fused_spec, tuples).elements())
        assert expected
        assert sums == expected
    assert Counter(row["latest"] for row in rows) == Counter(
        latest for _, latest in _recompute(specs[0], tuples).elements()
    )


@pytest.mark.parametrize("other_spec", [JOIN, COMPLEX, None], ids=["join", "complex", "other window"])
def test_queries_of_different_kinds_are_not_fused(other_spec: QuerySpec | None) -> None:
    with pytest.raises(ValueError, match="fused queries must be aggregations"):
        spark.fused_sql([AGGREGATION, other_spec or replace(AGGREGATION, window=WindowSpec(3000, 3000))], probe=False)
    with pytest.raises(ValueError, match="fused queries must be aggregations"):
        spark.fused_sql([JOIN, JOIN], probe=False)


# Flink


@pytest.mark.parametrize(
    ("window", "source", "group"),
    [
        (
            WindowSpec(3000, 1000),
            "TABLE(HOP(TABLE `a`, DESCRIPTOR(`time`), INTERVAL '1' SECOND(2, 3), INTERVAL '3' SECOND(2, 3))) AS `a`",
            "`a`.window_start, `a`.window_end",
        ),
        (
            WindowSpec(120_000, 120_000),
            "TABLE(TUMBLE(TABLE `a`, DESCRIPTOR(`time`), INTERVAL '120' SECOND(3, 3))) AS `a`",
            "`a`.window_start, `a`.window_end",
        ),
        # what HOP as a table-valued function refuses
        (WindowSpec(2500, 1000), "`a`", "HOP(`a`.`time`, INTERVAL '1' SECOND(2, 3), INTERVAL '2.500' SECOND(2, 3))"),
    ],
)
def test_flink_aggregates_windows_that_it_has(window: WindowSpec, source: str, group: str) -> None:
    assert flink.query_sql(replace(AGGREGATION, window=window), probe=True) == (
        f"SELECT SUM(`a`.`field0`) AS total, MAX(`a`.`time`) AS latest FROM {source}"
        f" WHERE `a`.`field1` >= 3 GROUP BY {group}, `a`.`key`"
    )


def test_flink_joins_windows_and_attributes() -> None:
    assert flink.query_sql(JOIN, probe=False) == (
        "SELECT `a`.`key` AS a_key, `a`.`field0`, `b`.`key` AS b_key, `b`.`field3` FROM"
        " (SELECT * FROM TABLE(TUMBLE(TABLE `a`, DESCRIPTOR(`time`), INTERVAL '2' SECOND(2, 3))) AS `a`"
        " WHERE `a`.`field1` < 7) AS `a` JOIN"
        " (SELECT * FROM TABLE(TUMBLE(TABLE `b`, DESCRIPTOR(`time`), INTERVAL '2' SECOND(2, 3))) AS `b`"
        " WHERE `b`.`field2` > 2) AS `b`"
        " ON `a`.window_start = `b`.window_start AND `a`.window_end = `b`.window_end AND `a`.`key` = `b`.`key`"
    )
    text = flink.query_sql(COMPLEX, probe=False)
    assert text.endswith(
        " ON `b`.window_start = `c`.window_start AND `b`.window_end = `c`.window_end AND `c`.`key` = `b`.`key`"
        " GROUP BY TUMBLE(`a`.window_time, INTERVAL '0.001' SECOND(2, 3)), `a`.`key`"
    )


def test_flink_makes_up_tuples_like_the_datasets() -> None:
    stream = StreamSpec("some", "purchases", {"users": 50, "gem_packs": 1})
    assert flink.source_sql(stream, DATASETS["purchases"].columns, 500) == (
        "CREATE TABLE `some` (`user_id` BIGINT, `gem_pack` INT, `price` DOUBLE, `time` AS LOCALTIMESTAMP,"
        " WATERMARK FOR `time` AS `time` - INTERVAL '0.001' SECOND) WITH ('connector' = 'datagen',"
        " 'rows-per-second' = '500', 'fields.user_id.min' = '0', 'fields.user_id.max' = '49',"
        " 'fields.gem_pack.min' = '0', 'fields.gem_pack.max' = '0', 'fields.price.min' = '0.99',"
        " 'fields.price.max' = '99.99')"
    )


@pytest.mark.parametrize(
    ("dataset", "options", "limits"),
    [
        ("astream", {"keys": 30, "fields_max": 20}, {"key": 29, "field0": 19, "field4": 19}),
        ("astream", {"one_key": True}, {"key": 0, "field0": 999}),
        ("ajoin", {}, {"a0": 499, "a5": 499}),
        ("ads", {}, {"user_id": 999, "gem_pack": 9}),
    ],
)
def test_flink_s_columns_have_the_ranges_of_the_dataset(
    dataset: str, options: dict[str, Any], limits: dict[str, int]
) -> None:
    text = flink.source_sql(StreamSpec("s", dataset, options), DATASETS[dataset].columns, None)
    for column, greatest in limits.items():
        assert f"'fields.{column}.max' = '{greatest}'" in text
    assert f"'rows-per-second' = '{flink.UNLIMITED}'" in text
