"""Do once after installing what starts would do else, again and again: ``python -m braid.engine.spark.prepare``.

The kernels are compiled into numba's cache, and the classes that Spark's JVM loads until a job has warmed up are
archived (:mod:`braid.engine.spark.class_archive`). Where neither was done, starts take longer, and that is all.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from braid.engine.data_layout import BATCHES, WARM_UP_BATCHES
from braid.engine.pipeline import JobSettings, settle_partitions, start_job, start_spark
from braid.engine.sink import RouterSink
from braid.engine.spark import class_archive
from braid.engine.spark.spark_conf import DRIVER_OPTIONS
from braid.operators import kernels
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

WARM_UP_SECONDS = 300.0
EXIT_SECONDS = 120.0
POLL_SECONDS = 0.05


def prepare(archive: Path) -> None:
    """Compile the kernels, whose errors are raised, and try to write the archive of classes, all side by side."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as compilers:
        compiled = [compilers.submit(warm_up) for warm_up in kernels.WARM_UPS]
        try:
            archive_classes(archive, lambda: wait(compiled))
        except Exception as error:  # of Spark, py4j, the JVM or the disk: what is not there is done without
            print(f"The classes of Spark could not be archived, so starts take longer: {error}", flush=True)
        for each in compiled:
            each.result()


def archive_classes(archive: Path, before_job: Callable[[], object]) -> None:
    """Run a job until it has warmed up, and have its JVM write the archive as it ends; RuntimeError when it did not."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # a JVM that reads an archive cannot write one
    with (
        tempfile.TemporaryDirectory(prefix="braid-prepare-") as folder,
        tempfile.TemporaryDirectory(prefix=".part-", dir=archive.parent) as beside,
    ):
        tempfile.tempdir = folder
        part = Path(beside) / archive.name
        settings = JobSettings(
            uri=folder,
            master="local[2]",
            partitions=2,
            target_seconds=1.0,
            join_row_limit=1,
            spark_conf={DRIVER_OPTIONS: class_archive.writing_options(part)},
        )
        # a JVM accepts the archive as long as the jars of this one's class path are there, and are its own
        spark = start_spark(settings, archive.parent / "spark-home")
        before_job()
        _warm_up(spark, settings)
        _end(spark)
        if not part.exists():
            raise RuntimeError("the JVM ended without writing one.")
        part.replace(archive)


def _warm_up(spark: SparkSession, settings: JobSettings) -> None:
    """Run a job without streams until it would be ready."""
    storage = Storage(settings.uri)
    settle_partitions(storage, settings.partitions)
    query = start_job(spark, settings, RouterSink)
    batches = RecordLog(storage, BATCHES)
    deadline = time.monotonic() + WARM_UP_SECONDS
    while batches.latest() < WARM_UP_BATCHES:
        if not query.isActive:
            raise RuntimeError(f"the job that was to warm up ended: {query.exception()}.")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the job had not warmed up after {WARM_UP_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)
    query.stop()


def _end(spark: SparkSession) -> None:
    """Have the JVM end by itself, which it does when its standard input ends, and wait for it."""
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    jvm.stdin.close()
    jvm.wait(EXIT_SECONDS)


if __name__ == "__main__":
    prepare(class_archive.PATH)
