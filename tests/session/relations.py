"""A query that others read, one that reads it, and what is there of them in a session."""

from __future__ import annotations

from tests.session.driver import Driver

INNER = "SELECT gem_pack, SUM(price) AS n FROM purchases [RANGE 8 SECONDS] GROUP BY gem_pack"
OVER = "SELECT MAX(n) AS m FROM {} [RANGE 1 MINUTE]"


def states(driver: Driver) -> dict[str, str]:
    """Return the states of queries by id."""
    return {query.id: query.state for query in driver.state.queries.values()}


def streams(driver: Driver) -> set[str]:
    """Return the ids of all streams, hidden ones among them."""
    return {stream.definition.id for stream in driver.state.catalog.states()}
