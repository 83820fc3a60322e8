"""A driver for `test_spark_executor`: says where it is, waits for two executors, and runs Python on both.

It has one executor of its own; the other must come from outside. Prints a JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import SparkSession

DEADLINE_SECONDS = 120
POLL_SECONDS = 0.1


def main() -> int:
    """Run until two executors have run a task each, or the time is up."""
    spark = (
        SparkSession.builder.master("local-cluster[1,1,512]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    context = spark.sparkContext
    conf = context.getConf()
    print(json.dumps({"port": conf.get("spark.driver.port"), "application": context.applicationId}), flush=True)
    until = time.monotonic() + DEADLINE_SECONDS
    tracker = context._jsc.sc().statusTracker()
    while len(tracker.getExecutorInfos()) < 3 and time.monotonic() < until:  # the driver is one of them
        time.sleep(POLL_SECONDS)

    def environment(_: object) -> list[str]:
        time.sleep(1)  # so that the other executor takes the other task
        return [os.environ.get("SPARK_EXECUTOR_POD_NAME", "of the driver")]

    print(json.dumps({"ran_on": sorted(context.parallelize(range(2), 2).mapPartitions(environment).collect())}))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
