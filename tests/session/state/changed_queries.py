"""Pause, resume and replace queries of a driver's session, and look at their states."""

from __future__ import annotations

from typing import Any

from braid.session.commands.query_requests import Replacement
from tests.session.driver import SELECTION, Driver

CHEAP = SELECTION.format("purchases", 5)


def pause(driver: Driver, query_id: str) -> dict[str, Any]:
    """Pause a query and return its body."""
    return driver.session.queries.begin_pause(query_id).wait()[0]


def resume(driver: Driver, query_id: str) -> dict[str, Any]:
    """Resume a query and return its body."""
    return driver.session.queries.begin_resume(query_id).wait()[0]


def replace(driver: Driver, query_id: str, sql: str = CHEAP, drain: bool = True, **changes: Any) -> dict[str, Any]:
    """Replace a query and return the body of the new one."""
    return driver.session.queries.begin_replace(query_id, Replacement(sql, changes), drain).wait()[0]


def step(driver: Driver, **batch: Any) -> None:
    """Let a changelog be cut, and commit a batch."""
    driver.flush()
    driver.batch(**batch)


def state(driver: Driver, query_id: str) -> str:
    """Return the state of a query."""
    return str(driver.session.lookup.describe(query_id)["state"])
