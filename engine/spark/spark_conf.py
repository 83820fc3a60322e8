"""Spark's configuration: what Braid decides, what it suggests, and what a user may give besides.

What is given wins over what is suggested. What is decided cannot be given, since results or exactly-once rest on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from braid.engine.spark.masters import cores_of, is_one_machine, options_of
from braid.sources.core.errors import NotAllowed

CLUSTER_SLOTS = 8
"""The number of tasks at once that is taken for a cluster whose size the configuration does not say."""
KUBERNETES_EXECUTORS = 2
"""How many executors Spark asks Kubernetes for unless it is told."""

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
# The work is done in Python, so the JVM makes do with its first compiler, which starts sooner and takes less of the
# cores. By default that reserves 48 MB for code, of which Spark fills 42 within two minutes; a full cache ends all
# compiling.
JAVA_OPTIONS = ("-Xss4m", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")

DECIDED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.worker.reuse": "true",
    # a source task whose output was lost with an executor runs again and names other files; Spark would take them for
    # other tuples and end the query. That they are the same tuples is checked where a batch is published
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
# Each batch takes and frees hundreds of megabytes in Python processes. What they gave back they would get again page by
# page, each set to zero by the kernel first. So they keep what they free, up to half a gigabyte at the end of the heap,
# and Arrow takes from the same heap. glibc reads this when a process starts; other libraries ignore it.
KEPT_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the most glibc allows; what is larger is given back
}
SUGGESTED = {f"spark.executorEnv.{name}": value for name, value in KEPT_MEMORY.items()} | {
    # else Spark writes a file of checksums beside each file, and starts a process for each of the two to set its mode
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.driver.memory": "2g",
    DRIVER_OPTIONS: " ".join(JAVA_OPTIONS),
    EXECUTOR_OPTIONS: " ".join(JAVA_OPTIONS),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stopTimeout": "5000",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.python.daemon.module": "braid.engine.spark.task_daemon",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "120",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

# What the JVM sends a Python process in several pieces waits 40 ms on TCP, until the piece before is acknowledged. The
# name of a Unix domain socket is a path of up to 107 bytes, of which Spark takes 42 for the name of the file.
SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
LONGEST_SOCKET_FOLDER = 64

_SET_ELSEWHERE = {
    "spark.master": "the setting master says it",
    "spark.submit.deployMode": "the driver runs beside the service",
    "spark.app.name": "it is braid",
}
_NAME = re.compile(r"spark\.[A-Za-z0-9_.-]+")


def combined(master: str, user_conf: Mapping[str, str], temporary_folder: str = "/tmp") -> dict[str, str]:
    """Return all that Spark is started with; Java options of the user are added to ours."""
    conf = SUGGESTED | (LOOPBACK if is_one_machine(master) else {}) | options_of(master)
    if len(os.fsencode(temporary_folder)) <= LONGEST_SOCKET_FOLDER:
        conf |= SOCKETS
    conf |= user_conf
    for name in {DRIVER_OPTIONS, EXECUTOR_OPTIONS} & user_conf.keys():
        conf[name] = f"{SUGGESTED[name]} {user_conf[name]}"
    return conf | DECIDED


def slots(master: str, conf: Mapping[str, str]) -> int:
    """Return how many tasks run at once with a master and a configuration."""
    cores = cores_of(master)
    if cores is not None:
        return cores
    executors = conf.get("spark.executor.instances", str(KUBERNETES_EXECUTORS) if master.startswith("k8s://") else "")
    return int(executors) * int(conf.get("spark.executor.cores", "1")) if executors else CLUSTER_SLOTS


def check_spark_conf(conf: object) -> None:
    """Check what is given: a map of texts by names of Spark; NotAllowed names what does not fit."""
    if not isinstance(conf, Mapping):
        raise NotAllowed(f"The setting spark_conf must be a table of names and values; got {conf!r}.")
    for name, value in conf.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise NotAllowed(f"The setting spark_conf must have names that begin with 'spark.'; got {name!r}.")
        if not isinstance(value, str):
            raise NotAllowed(f"The setting spark_conf must have a text for {name!r}; got {value!r}.")
        if name in DECIDED:
            raise NotAllowed(
                f"The setting spark_conf must leave out {name!r}: results rest on it being {DECIDED[name]}."
            )
        if name in _SET_ELSEWHERE:
            raise NotAllowed(f"The setting spark_conf must leave out {name!r}: {_SET_ELSEWHERE[name]}.")
    for name in ("spark.executor.instances", "spark.executor.cores"):
        if name in conf and not re.fullmatch(r"[1-9]\d*", conf[name]):
            raise NotAllowed(
                f"The setting spark_conf must have a whole number above 0 for {name!r}; got {conf[name]!r}."
            )


def flattened(table: object, prefix: str = "") -> Any:
    """Return a table of TOML or JSON as names and texts; what cannot be one of Spark's values stays as it is.

    TOML reads ``spark.executor.cores = 2`` as tables in tables.

    >>> flattened({"spark": {"executor": {"cores": 2}, "ui.enabled": True}})
    {'spark.executor.cores': '2', 'spark.ui.enabled': 'true'}
    """
    if not isinstance(table, Mapping):
        return table
    texts: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            texts |= flattened(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            texts[f"{prefix}{name}"] = str(value).lower()
        else:
            texts[f"{prefix}{name}"] = str(value) if isinstance(value, (int, float)) else value
    return texts
