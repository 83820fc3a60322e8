"""A copy of the data directory goes on where the service was stopped, once it is back at its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from braid.client import Client
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long]

STREAM = (
    "CREATE STREAM taps (device INT, volts BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'push', format = 'json')"
)
TABLE = "CREATE TABLE places (device INT, place VARCHAR) WITH (connector = 'file', path = '{}', format = 'csv')"
SUMS = "SELECT device, SUM(volts) AS total FROM taps [RANGE 10 SECONDS] GROUP BY device"
PLACES = "SELECT t.volts, p.place FROM taps AS t JOIN places AS p ON t.device = p.device"


def tap(second: int, volts: int) -> dict[str, object]:
    return {"device": 1, "volts": volts, "time": f"2026-01-01T12:00:{second:02d}Z"}


def test_a_backup_goes_on_where_it_was_taken(fresh_service: FreshService, tmp_path: Path) -> None:
    places = tmp_path / "places.csv"
    places.write_text("device,place\n1,cellar\n")
    service = fresh_service()
    with Client(service.url, timeout=60) as braid:
        braid.create_stream(STREAM)
        braid.create_table(TABLE.format(places))
        ids = [braid.create_query(sql, wait=60)["id"] for sql in (SUMS, PLACES)]
        braid.push("taps", [tap(1, 3), tap(2, 4)])
        wait_until(lambda: braid.stream("taps")["tuples"] == 2, 60, "the tuples are in an open window")
        cursor = braid.results(ids[1], wait=60).cursor
        braid.push("taps", [tap(5, 10)])  # may or may not be in a batch when the service stops
    service.stop()
    places.unlink()  # queries keep the rows that they were deployed with
    backup = shutil.copytree(service.data_dir, tmp_path / "backup")
    shutil.rmtree(service.data_dir)
    shutil.copytree(backup, service.data_dir)
    restored = fresh_service(data_dir=service.data_dir)
    with Client(restored.url, timeout=60) as braid:
        braid.push("taps", [tap(40, 1)])
        wait_until(lambda: braid.stream("taps")["tuples"] == 4, 60, "all tuples are taken in")
        rows = braid.results(ids[0], wait=60).rows
        assert [(row["device"], row["total"]) for row in rows] == [(1, 17)]
        rows = braid.results(ids[1], after=cursor, wait=60).rows
        assert [(row["volts"], row["place"]) for row in rows] == [(10, "cellar"), (1, "cellar")]
