"""A driver for `test_spark_executor`: says where it is, and runs Python on two executors at once.

It has one executor of its own; the other must come from outside. Prints a JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

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
    here = Path.cwd() / "here"
    here.mkdir()

    def environment(number: int, _: object) -> list[str]:
        """Run until the other task runs, too: an executor has one core, so that is on the other one."""
        (here / str(number)).touch()
        until = time.monotonic() + DEADLINE_SECONDS
        while len(list(here.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return [os.environ.get("SPARK_EXECUTOR_POD_NAME", "of the driver")]

    ran_on = context.parallelize(range(2), 2).mapPartitionsWithIndex(environment).collect()
    print(json.dumps({"ran_on": sorted(ran_on)}))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
