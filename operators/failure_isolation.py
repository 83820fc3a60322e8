"""Containment: what goes wrong while queries are evaluated ends these queries, not the job that all others share.

An error that would come again when the batch runs again must not leave an operator: Spark would run the batch for ever.
For what the machine or its disks do wrong, on the other hand, no query is to blame, and the next attempt may do better.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager

from braid.sources.core.errors import ServiceError

log = logging.getLogger("braid.operators")

_observer: Callable[[Sequence[str]], None] | None = None
_NOT_CONTAINED = (MemoryError, OSError, ServiceError)


@contextmanager
def isolate_failures(queries: Iterable[str], failures: MutableMapping[str, str]) -> Iterator[None]:
    """Instead of raising an error, put its message into ``failures`` for each of ``queries``, which are ids."""
    if _observer is not None:
        queries = list(queries)
        _observer(queries)
    try:
        yield
    except _NOT_CONTAINED:
        raise
    except Exception as problem:
        if _observer is not None:
            _observer(())
        message = describe(problem)
        ids = list(dict.fromkeys(queries))
        log.exception("%d queries fail, %s first: %s", len(ids), ids[0] if ids else "none", message)
        failures.update(dict.fromkeys(ids, message))
    else:
        if _observer is not None:
            _observer(())


def observe(observer: Callable[[Sequence[str]], None]) -> None:
    """Have ``observer`` told which queries are being evaluated from now on, and then that none is."""
    global _observer
    _observer = observer


def describe(problem: Exception) -> str:
    """Return what a query is told of an error: its type and its message."""
    return f"{type(problem).__name__}: {problem}"
