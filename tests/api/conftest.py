"""What all tests of the API need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a service that a test starts in this process does to the logs of all that runs here after it."""
    loggers = [logging.getLogger(name) for name in ("", "braid", "uvicorn", "uvicorn.error", "uvicorn.access")]
    before = [(logger, logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    yield
    for logger, level, handlers, propagate in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate
