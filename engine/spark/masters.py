"""What a Spark master means for the job: how many cores there are, and what its executors must be told.

``local[…]`` runs tasks inside the driver's JVM. Any other master runs them in executors, JVMs of their own, elsewhere:
nothing of the driver's process is there but what Spark's configuration carries. ``local-cluster[EXECUTORS,CORES,MIB]``
is a cluster on one machine.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import braid

TASK_ATTEMPTS = 4
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_LOCAL_RETRIED = re.compile(r"local\[(\*|\d+),\d+\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_SPARK_FOLDERS = ("bin", "conf", "jars")
_PROJECT = Path(braid.__file__).parents[1]


def cores_of(master: str) -> int | None:
    """Return how many tasks run at once, None where only the cluster knows."""
    if match := _LOCAL.fullmatch(master) or _LOCAL_RETRIED.fullmatch(master):
        return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match[1]) * int(match[2])
    return None


def with_retries(master: str) -> str:
    """Let tasks be tried again on a local master, where Spark's default is to fail the job at once."""
    match = _LOCAL.fullmatch(master)
    return f"local[{match[1] or 1},{TASK_ATTEMPTS}]" if match else master


def is_one_machine(master: str) -> bool:
    """Whether all of Spark runs on this machine, so that nobody else needs to reach it."""
    return master.startswith("local")


def is_local_cluster(master: str) -> bool:
    """Whether the driver starts executors of its own on this machine."""
    return _LOCAL_CLUSTER.fullmatch(master) is not None


def has_executors(master: str) -> bool:
    """Whether tasks run in executors, and not in the driver's process."""
    return not (_LOCAL.fullmatch(master) or _LOCAL_RETRIED.fullmatch(master))


def options_of(master: str) -> dict[str, str]:
    """Return Spark's options for the executors of a master; none where there are no executors."""
    if not has_executors(master):
        return {}
    options = {
        # workers import the same packages as the driver, wherever that was started
        "spark.executorEnv.PYTHONPATH": str(_PROJECT),
        # a partition goes back to where its state is if there is room; else it goes elsewhere at once, which also
        # spreads partitions over executors that came later
        "spark.locality.wait": "0s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # executors log several lines a task unless they have the driver's log level, and never delete their logs
        "spark.executor.syncLogLevel.enabled": "true",
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": str(16 << 20),
        "spark.executor.logs.rolling.maxRetainedFiles": "4",
    }
    if match := _LOCAL_CLUSTER.fullmatch(master):
        options["spark.cores.max"] = str(cores_of(master))
        options["spark.executor.memory"] = f"{match[3]}m"
    return options


def scaled_options(master: str, executors: int) -> dict[str, str]:
    """Return Spark's options for executors that come and go while the job runs, ``executors`` of them at first.

    A standalone cluster ignores the number at first: it starts as many as there is room for.
    """
    if not has_executors(master):
        return {}
    return {"spark.decommission.enabled": "true", "spark.executor.instances": str(executors)}


def lay_out_home(home: Path, spark: Path) -> None:
    """Make ``home`` a Spark home for one machine, which links to the installation in ``spark``.

    ``local-cluster`` keeps its executors' folders in ``work`` below ``$SPARK_HOME`` and nowhere else, which may be
    read-only and is shared with other services. Of earlier starts the newest folder stays, for its logs.

    The installation's archive of PySpark, in ``python/lib``, is left out: Python processes would take PySpark from it
    instead of the same that is installed, and compile each of its modules in every process.
    """
    spark = (spark / "jars").resolve().parent  # when this is called again, it is a home like this one
    work = home / "work"
    work.mkdir(parents=True, exist_ok=True)
    for folder in sorted(work.iterdir())[:-1]:
        shutil.rmtree(folder, ignore_errors=True)
    for name in _SPARK_FOLDERS:
        link = home / name
        link.unlink(missing_ok=True)
        link.symlink_to(spark / name)
