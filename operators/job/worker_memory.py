"""Keeps what a Python worker of Spark holds between tasks out of its garbage collections.

PySpark's workers collect garbage after every task (``pyspark/daemon.py``), and a collection looks at every object that
could be part of a cycle: with numba, numpy and pandas loaded that is a tenth of a second of a core, several times a
batch. Objects that outlived a collection are therefore set aside (``gc.freeze``) until all are looked at again.
"""

from __future__ import annotations

import gc
import itertools

_TASKS_BETWEEN_FULL_COLLECTIONS = 1000

_tasks = itertools.count(1)


def set_aside() -> None:
    """Take everything that is alive out of garbage collections; call it when a task begins.

    The collection after the task before has just freed all cycles, so nothing is set aside that is garbage already.
    What becomes garbage later goes by its reference count, or, in a cycle, with the next full collection.
    """
    if next(_tasks) % _TASKS_BETWEEN_FULL_COLLECTIONS == 0:
        gc.unfreeze()
    else:
        gc.freeze()
