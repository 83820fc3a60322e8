"""The Spark job: composite source, shuffle, and the sink that it is given, whose tasks run partitions.

Its plan never changes while it runs; queries and streams come and go inside it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery

from braid.engine.composite_source import CompositeSource
from braid.engine.data_layout import PARTITIONS, read_partitions
from braid.engine.planning.replaying import DEFAULT_SHARE
from braid.engine.spark import class_archive
from braid.engine.spark.masters import is_local_cluster, is_one_machine, lay_out_home, scaled_options, with_retries
from braid.engine.spark.spark_conf import DRIVER_OPTIONS, EXECUTOR_OPTIONS, combined
from braid.engine.spark.worker_memory import WORKER_MEMORY
from braid.operators.state.key_groups import spread_over_partitions
from braid.sources.core.storage import Storage

CHECKPOINT = "checkpoint"
EXECUTORS = "executors"


@dataclass(frozen=True)
class JobSettings:
    """``uri`` is the data folder; ``partitions`` is fixed by the first start, for state is kept by key group.

    ``flush_batches``: all that a batch wrote is flushed to disk before its record is written.

    A worker may take ``worker_memory_bytes`` of memory of its own, 0 for any; a batch may take ``batch_limit_seconds``.

    ``spark_conf`` is what the user adds to Spark's configuration. ``executors`` is how many to begin with where their
    number is the service's to decide, else None.
    """

    uri: str
    master: str
    partitions: int
    target_seconds: float
    join_row_limit: int
    replay_share: float = DEFAULT_SHARE
    flush_batches: bool = True
    worker_memory_bytes: int = 0
    batch_limit_seconds: float = 60.0
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    executors: int | None = None


def settle_partitions(storage: Storage, partitions: int) -> None:
    """Fix the number of partitions of this data folder, unless an earlier start did: it never changes."""
    if read_partitions(storage) is None:
        storage.put_json(PARTITIONS, {"partitions": partitions})


def start_spark(settings: JobSettings, home: Path | None = None) -> SparkSession:
    """Start the JVM with the options of :mod:`braid.engine.spark.spark_conf` and of the user.

    On one machine Spark's home is laid out in ``home``, by default in the folder of temporary files, or in the data
    folder where it keeps logs of executors.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    temporary = tempfile.gettempdir()
    options = {"spark.local.dir": temporary} | combined(settings.master, settings.spark_conf, temporary)
    os.environ[WORKER_MEMORY] = options[f"spark.executorEnv.{WORKER_MEMORY}"] = str(settings.worker_memory_bytes)
    if settings.executors is not None:
        options |= scaled_options(settings.master, settings.executors)
    started_here = [DRIVER_OPTIONS]
    if is_one_machine(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        home = home or _home(settings, temporary)
        lay_out_home(home, Path(_find_spark_home()))
        os.environ["SPARK_HOME"] = str(home)
        started_here.append(EXECUTOR_OPTIONS)
    for name in started_here:
        options[name] = f"-Djava.io.tmpdir={temporary} {class_archive.reading_options()} {options[name]}"
    builder = SparkSession.builder.appName("braid").master(with_retries(settings.master))
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def _home(settings: JobSettings, temporary: str) -> Path:
    local_root = Storage(settings.uri).local_root
    if is_local_cluster(settings.master) and local_root is not None:
        return local_root / EXECUTORS
    return Path(temporary) / "spark-home"


def start_job(spark: SparkSession, settings: JobSettings, sink: type[DataSource]) -> StreamingQuery:
    """Start the streaming query; it goes on from its checkpoint when there is one."""
    partitions = spread_over_partitions(settings.partitions)
    spark.dataSource.register(CompositeSource)
    spark.dataSource.register(sink)
    source = (
        spark.readStream.format(CompositeSource.name())
        .option("uri", settings.uri)
        .option("partitions", orjson.dumps(partitions).decode())
        .option("target_seconds", str(settings.target_seconds))
        .option("replay_share", str(settings.replay_share))
        .load()
    )
    return (
        source.repartition(len(partitions), "partition")
        .writeStream.format(sink.name())
        .option("uri", settings.uri)
        .option("partitions", orjson.dumps(partitions).decode())
        .option("join_row_limit", str(settings.join_row_limit))
        .option("flush_batches", str(settings.flush_batches))
        .option("checkpointLocation", f"{settings.uri}/{CHECKPOINT}")
        .queryName("braid")
        .start()
    )
