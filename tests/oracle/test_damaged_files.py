"""Files of a data folder that a service really wrote, damaged one by one: nothing wrong is told, and nobody crashes for
ever. What is needed to go on is a start refused, by name; results are a gap.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.client import BraidClient
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long]

DEVICES = 20_000
START_SECONDS = 120
STREAM = (
    "CREATE STREAM {} (device INT, volts BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'push', format = 'json')"
)
TABLE = "CREATE TABLE places (device INT, place VARCHAR) WITH (connector = 'file', path = '{}', format = 'csv')"
QUERIES = {
    "sums": "SELECT device, SUM(volts) AS total FROM taps [RANGE 10 SECONDS] GROUP BY device",
    "pairs": "SELECT t.device, t.volts, k.volts AS knock FROM taps [RANGE 10 SECONDS] AS t"
    " JOIN knocks [RANGE 10 SECONDS] AS k ON t.device = k.device",
    "places": "SELECT t.volts, p.place FROM taps AS t JOIN places AS p ON t.device = p.device",
    "all": "SELECT device, volts FROM taps",
}
ENVIRONMENT = {"BRAID_CHANGELOG_TIMEOUT_SECONDS": "0.1", "BRAID_LANES": "2", "BRAID_MASTER": "local[2]"}


def events(second: int) -> list[dict[str, object]]:
    return [
        {"device": device, "volts": 7 * device + second, "time": f"2026-01-01T12:00:{second:02d}Z"}
        for device in range(DEVICES)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with closed windows in results and open ones in the state of lanes."""
    folder = tmp_path_factory.mktemp("written")
    service = RunningService(folder / "data", folder / "service.log", ENVIRONMENT)
    try:
        service.start()
        (folder / "places.csv").write_text("device,place\n1,cellar\n")
        with BraidClient(service.url, timeout=60) as braid:
            for stream in ("taps", "knocks"):
                braid.create_stream(STREAM.format(stream))
            braid.create_table(TABLE.format(folder / "places.csv"))
            braid.delete_query(braid.create_query(QUERIES["all"], wait=60)["id"])
            ids = {name: braid.create_query(sql, name=name, wait=60)["id"] for name, sql in QUERIES.items()}
            for second in (1, 12):
                for stream in ("taps", "knocks"):
                    braid.push(stream, events(second))
            braid.push("taps", [{"device": "no number", "volts": 1, "time": "2026-01-01T12:00:13Z"}])
            wait_until(
                lambda: all(braid.stream(s)["tuples"] == 2 * DEVICES for s in ("taps", "knocks")), 60, "all are read"
            )
            wait_until(lambda: braid.results(ids["pairs"]).rows, 60, "windows have fired")
        service.stop()
        yield service.data_dir
    finally:
        service.end_everything()


def test_x(written: Path) -> None:
    subprocess.run(["find", str(written), "-type", "f", "-size", "+0", "-printf", "%s %P\n"])
    shutil.rmtree("/tmp/h/work/data", ignore_errors=True)
    shutil.copytree(written, "/tmp/h/work/data")
