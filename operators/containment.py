"""Containment: what goes wrong while queries are evaluated ends these queries, not the job that all others share.

An error that would come again when the batch runs again must not leave an operator: Spark would run the batch for ever.
For what the machine or its disks do wrong, on the other hand, no query is to blame, and the next attempt may do better.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager

from sources.errors import BraidError

log = logging.getLogger("braid.operators")

_NOT_CONTAINED = (MemoryError, OSError, BraidError)


@contextmanager
def contained(queries: Iterable[str], failures: MutableMapping[str, str]) -> Iterator[None]:
    """Instead of raising an error, put its message into ``failures`` for each of ``queries``, which are ids."""
    try:
        yield
    except _NOT_CONTAINED:
        raise
    except Exception as problem:
        message = describe(problem)
        ids = list(dict.fromkeys(queries))
        log.exception("%d queries fail, %s first: %s", len(ids), ids[0] if ids else "none", message)
        failures.update(dict.fromkeys(ids, message))


def describe(problem: Exception) -> str:
    """Return what a query is told of an error: its type and its message."""
    return f"{type(problem).__name__}: {problem}"
