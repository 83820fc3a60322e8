"""Stock Spark Structured Streaming on the same queries: one streaming query each, as Spark offers it.

`python -m bench_driver.peers.spark_peer` reads `{"predicates": [text or null…], "seconds", "rows_per_batch",
"tuples_per_event_second"}` as JSON from standard input and writes one JSON object to standard output. Its source is
Spark's own `rate-micro-batch`, which gives every batch the same number of rows however long the last one took: so Spark
runs as fast as it can. The columns are made from the row's number inside Spark. Settings are those of
:func:`start_spark`; rows go to the `noop` sink.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from bench_driver import statistics
from bench_driver.first_mark_workload import GEM_PACKS, LEAST_CENTS, MOST_CENTS, USERS

WARM_UP_SHARE = 0.25
LONGEST_FACTOR = 4
POLL_SECONDS = 0.25


def start_spark(cores: int) -> SparkSession:
    """Start Spark with what suits many small batches on one machine; everything else is its default."""
    options = {
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # the default forks a process for every checkpoint file on a local disk
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    builder = SparkSession.builder.appName("stock-spark").master(f"local[{cores}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def purchases(spark: SparkSession, cores: int, rows_per_batch: int, tuples_per_event_second: int) -> DataFrame:
    """Return the stream of purchases; event time goes on by `rows_per_batch / tuples_per_event_second` a batch."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_per_batch)
        .option("numPartitions", cores)
        .option("startTimestamp", int(time.time() * 1000))
        .option("advanceMillisPerBatch", max(1, 1000 * rows_per_batch // tuples_per_event_second))
        .load()
    )
    cents = f.pmod(f.xxhash64("value", f.lit(2)), f.lit(MOST_CENTS - LEAST_CENTS + 1)) + LEAST_CENTS
    return rows.select(
        f.pmod(f.xxhash64("value", f.lit(0)), f.lit(USERS)).alias("user_id"),
        f.pmod(f.xxhash64("value", f.lit(1)), f.lit(GEM_PACKS)).alias("gem_pack"),
        (cents / 100).alias("price"),
        f.col("timestamp").alias("time"),
    )


def start_query(stream: DataFrame, predicate: str | None, checkpoint: str) -> StreamingQuery:
    """Start the query of the marks: the revenue of each user in each second."""
    chosen = stream.withWatermark("time", "0 seconds")
    if predicate is not None:
        chosen = chosen.where(predicate)
    revenue = chosen.groupBy(f.window("time", "1 second"), "user_id").agg(f.sum("price").alias("revenue"))
    return revenue.writeStream.outputMode("append").format("noop").option("checkpointLocation", checkpoint).start()


def committed(query: StreamingQuery) -> list[tuple[int, int]]:
    """Return `(batch, rows)` of the batches of a query that are done."""
    return [(progress["batchId"], progress["numInputRows"]) for progress in query.recentProgress]


def measure(queries: list[StreamingQuery], seconds: float) -> dict[str, Any]:
    """Watch the queries for `seconds`, longer if they need it for a few batches after the warm-up.

    What a stream of one rate would sustain is the mean over the queries of the rows each took in a second.
    """
    began = time.monotonic()
    points: list[list[tuple[float, float]]] = [[] for _ in queries]
    counted = [0] * len(queries)
    while (elapsed := time.monotonic() - began) < LONGEST_FACTOR * seconds:
        for i, query in enumerate(queries):
            if (error := query.exception()) is not None:
                raise RuntimeError(f"the streaming query {i} must run, it ended: {error}")
            done = committed(query)
            if len(done) > counted[i]:
                counted[i] = len(done)
                points[i].append((time.monotonic() - began, sum(rows for _, rows in done)))
        if elapsed >= seconds and all(len(statistics.after_warm_up(p, WARM_UP_SHARE)) > 2 for p in points):
            break
        time.sleep(POLL_SECONDS)
    rates = [statistics.rate(statistics.after_warm_up(p, WARM_UP_SHARE)) or 0.0 for p in points]
    return {
        "tuples_per_second": sum(rates) / len(rates),
        "slowest": min(rates),
        "fastest": max(rates),
        "batches": sum(counted),
        "seconds": time.monotonic() - began,
    }


def main() -> int:
    """Read the task, run it, write what was measured."""
    task = json.load(sys.stdin)
    cores = os.cpu_count() or 1
    spark = start_spark(cores)
    with tempfile.TemporaryDirectory(prefix="braid-spark-peer-", ignore_cleanup_errors=True) as folder:
        queries = [
            start_query(
                purchases(spark, cores, task["rows_per_batch"], task["tuples_per_event_second"]),
                predicate,
                f"{folder}/{i}",
            )
            for i, predicate in enumerate(task["predicates"])
        ]
        try:
            measured = measure(queries, task["seconds"])
        finally:
            for query in queries:
                query.stop()
            spark.stop()
    print(json.dumps(measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
