"""Queries that are paused, resumed and replaced, with kill -9 in between, against DuckDB; and what their sinks get."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until
from tests.oracle.driver import Driver, Registered
from tests.oracle.model import SECOND, Aggregation, Push
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, COUNT, GEM_PACK, HOP, REVENUE, SCHEMA, TUMBLE
from tests.oracle.verify import verify

pytestmark = [pytest.mark.service, pytest.mark.long]

CHANGES = Aggregation((GEM_PACK, COUNT, REVENUE), HOP, ("gem_pack",), emit="EMIT STREAM")
DRAIN_SECONDS = 60.0


def in_files(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that a sink wrote."""
    texts = [path.read_text() for path in sorted(folder.glob("*.ndjson"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def drain(driver: Driver, paused: list[Registered], seed: int) -> None:
    """Push until paused queries hold no slot."""
    driver.push(Push(60, seed=seed, span=20 * SECOND))
    driver.settle()
    for registered in paused:
        query = partial(driver.api.query, registered.id)
        wait_until(lambda query=query: query()["slot"] is None, DRAIN_SECONDS, f"{registered.id} has drained")  # type: ignore[misc]


def test_no_row_is_lost_or_doubled_over_pauses_and_crashes(fresh_service: FreshService, tmp_path: Path) -> None:
    service = fresh_service(BRAID_DRAIN_TIMEOUT="600")
    with Api(service.url, on_unreachable=service.revive) as api:
        driver = Driver(api, SCHEMA, follow=4)
        everything, groups, changes, tumbling = driver.create(
            [ALL, BY_GEM_PACK, CHANGES, Aggregation((COUNT,), TUMBLE)]
        )
        folders = {query: tmp_path / f"{number}" for number, query in enumerate((ALL, BY_GEM_PACK))}
        sinks = [
            {
                "sql": query.sql(driver.stream, SCHEMA),
                "sink": {"connector": "file", "path": str(path), "flush_seconds": 0},
            }
            for query, path in folders.items()
        ]
        answers = api.create_queries(sinks)
        with_sinks = [driver.adopt(query, answer["id"]) for query, answer in zip(folders, answers, strict=True)]
        pausing = [everything, groups, changes, *with_sinks]
        driver.push(Push(150, seed=1, span=10 * SECOND))
        driver.pause(pausing)
        service.kill()
        driver.push(Push(100, seed=2, span=5 * SECOND))
        replacing = driver.replace(tumbling, Aggregation((COUNT, REVENUE), TUMBLE))
        drain(driver, pausing, seed=3)
        api.wait_state(tumbling.id, "RETIRED")
        assert {api.query(registered.id)["state"] for registered in pausing} == {"PAUSED"}
        driver.push(Push(100, seed=4, span=5 * SECOND))
        driver.resume(pausing)
        service.kill()
        for registered in pausing:
            info = api.wait_state(registered.id, "RUNNING")
            assert len(info["deployments"]) == 1
        driver.push(Push(150, seed=5, span=10 * SECOND))
        driver.pause([everything, replacing])
        driver.resume([everything, replacing])  # while they drain
        drain(driver, [], seed=6)
        for registered in (everything, replacing):
            api.wait_state(registered.id, "RUNNING")
        driver.push(Push(100, seed=7, span=5 * SECOND))
        driver.finish()
        verify(driver)
        assert [len(registered.lives(driver.stream)) for registered in (everything, groups, replacing)] == [3, 2, 2]
        for registered, folder in zip(with_sinks, folders.values(), strict=True):
            rows = json.loads(json.dumps(registered.rows, default=float))
            wait_until(
                lambda rows=rows, folder=folder: in_files(folder) == rows,  # type: ignore[misc]
                DRAIN_SECONDS,
                lambda query=registered.id: f"all rows of {query} arrive: {api.query(query)['delivery']}",  # type: ignore[misc]
            )
            api_state = partial(api.query, registered.id)
            wait_until(lambda state=api_state: state()["delivery"]["state"] == "DONE", DRAIN_SECONDS, "it is over")  # type: ignore[misc]
    service.stop()
