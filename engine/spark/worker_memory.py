"""The memory of Spark's Python workers: how much each may take, and what is kept out of garbage collections.

A worker that would take more than its limit gets a MemoryError, or ends: the machine and the processes of others do
not. The batch runs again then, and in the end without the query that takes so much
(:mod:`braid.engine.recovery.isolation`).

PySpark's workers collect garbage after every task (``pyspark/daemon.py``), and a collection looks at every object that
could be part of a cycle: with numba, numpy and pandas loaded that is a tenth of a second of a core, several times a
batch. Objects that outlived a collection are therefore set aside (``gc.freeze``) until all are looked at again.
"""

from __future__ import annotations

import gc
import itertools
import os
import resource
from pathlib import Path

_TASKS_BETWEEN_FULL_COLLECTIONS = 1000

_tasks = itertools.count(1)


def freeze_garbage() -> None:
    """Take everything that is alive out of garbage collections; call it when a task begins.

    The collection after the task before has just freed all cycles, so nothing is set aside that is garbage already.
    What becomes garbage later goes by its reference count, or, in a cycle, with the next full collection.
    """
    if next(_tasks) % _TASKS_BETWEEN_FULL_COLLECTIONS == 0:
        gc.unfreeze()
    else:
        gc.freeze()


WORKER_MEMORY = "BRAID_WORKER_MEMORY_BYTES"
"""The variable by which workers are told how much memory each may take (bytes)."""
MIN_MEMORY = 768 << 20
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def limit_memory(size: int) -> None:
    """Let this process, and those that it forks, have so many bytes of memory of their own; 0 sets no limit."""
    if size:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        size = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def default_limit(cores: int) -> int:
    """Return how much memory each of the workers on so many cores may take: half of what there is, shared (bytes)."""
    return max(MIN_MEMORY, memory_there_is() // 2 // max(1, cores))


def memory_there_is() -> int:
    """Return the memory of the machine, or of the control group where that is less (bytes)."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in (*_own_cgroups(), *map(Path, _CGROUP_LIMITS)):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            sizes.append(int(text))
    return min(sizes)


def _own_cgroups() -> list[Path]:
    """Return where the limits of the control groups of this process may be read."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            found.append(Path(f"/sys/fs/cgroup{group}/memory.max"))
        elif "memory" in controllers.split(","):
            found.append(Path(f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"))
    return found
