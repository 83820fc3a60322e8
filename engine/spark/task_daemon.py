"""PySpark's daemon, which forks the processes of tasks, with all in memory that tasks need.

Spark starts it as ``python -m braid.engine.spark.task_daemon WORKER_MODULE``. Each process that PySpark's own daemon
forks imports operators and loads kernels by itself, which takes a second of a core; processes forked here have them,
also one that comes in the place of one that was killed. Spark has daemons for a few other modules too, whose processes
only look a class up or plan: for these nothing is loaded.
"""

from __future__ import annotations

import gc
import os
import sys

from pyspark import daemon

from braid.engine.spark.worker_memory import WORKER_MEMORY, limit_memory


def load() -> None:
    """Import what runs in tasks, and load compiled kernels."""
    from braid.engine import partition_task, source_task  # noqa: F401
    from braid.operators import kernels

    kernels.warm_up()
    gc.freeze()  # what is loaded stays, and stays in pages that all processes share


if __name__ == "__main__":
    limit_memory(int(os.environ.get(WORKER_MEMORY, "0")))
    if sys.argv[1:] == ["pyspark.worker"]:
        load()
    daemon.manager()
