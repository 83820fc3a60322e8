"""Queries over a folder of files through the service, which is killed while files come."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

START = datetime(2026, 1, 1, tzinfo=UTC)
PER_FILE = 500


def line(number: int) -> str:
    at = START + timedelta(milliseconds=20 * number)
    return json.dumps({"device": number % 7, "volts": number % 100, "time": f"{at:%FT%T.%f}"}) + "\n"


def put(folder: Path, name: str, text: str) -> Path:
    """Write a file and move it into the folder."""
    hidden = folder / f".{name}"
    hidden.write_text(text)
    return hidden.rename(folder / name)


@pytest.mark.long
def test_files_are_read_once_each_whatever_stops_in_between(fresh_service: FreshService, tmp_path: Path) -> None:
    service = fresh_service(BRAID_TABLE_FOLDER=str(tmp_path))
    folder = tmp_path / "events"
    with Api(service.url) as api:
        refused = api.request("POST", "/streams", json={"sql": create("outside", "../elsewhere")})
        assert refused.status_code == 422
        assert "must lie below" in refused.json()["detail"]
        api.create_stream(create("readings", "events"))
        error = wait_until(lambda: api.stream("readings")["error"], 60, "the stream says what is wrong")
        assert "'events' must be there" in str(error)
        (folder / "later").mkdir(parents=True)
        put(folder, "first.json", '{"device": 1, "volts": 1, "time": "2025-01-01T00:00:00Z"}\n')
        api.create_queries([{"sql": "SELECT volts FROM readings WHERE volts < 0"}])  # it is read from the first on
        wait_until(lambda: bool(api.stream("readings")["tuples"] == 1), 60, "what is there already is read")
        selection, sums = (
            answer["id"]
            for answer in api.create_queries(
                [
                    {"sql": text, "start": "now"}
                    for text in (
                        "SELECT volts, time FROM readings WHERE volts > 95",
                        "SELECT device, SUM(volts) AS total FROM readings [RANGE 2 SECONDS] GROUP BY device",
                    )
                ]
            )
        )
        for query in (selection, sums):
            api.wait_state(query, "RUNNING")
        for number in range(3):
            lines = [line(n) for n in range(number * PER_FILE, (number + 1) * PER_FILE)]
            path = put(folder / "later" if number else folder, f"{number}.json", "no JSON\n\n" + "".join(lines))
            if number == 1:
                service.kill()
                service.revive()
        tuple_count = 1 + 3 * PER_FILE
        wait_until(
            lambda: bool(api.stream("readings")["tuples"] == tuple_count), 90, lambda: str(api.stream("readings"))
        )
        with path.open("a") as file:
            file.write(line(0))
        error = wait_until(lambda: api.stream("readings")["error"], 60, "the stream says that a file was changed")
        assert "2.json' must stay as it was" in str(error)
        path.unlink()
        put(folder, "last.json", line(100_000))  # half an hour later: all windows end
        wait_until(
            lambda: bool(api.stream("readings")["tuples"] == tuple_count + 1), 90, lambda: str(api.stream("readings"))
        )
        wait_until(lambda: api.stream("readings")["error"] is None, 30, lambda: str(api.stream("readings")))

        expected = sorted(n % 100 for n in range(3 * PER_FILE) if n % 100 > 95)
        wait_until(lambda: len(api.page(selection)["rows"]) >= len(expected), 60, "all selected tuples come")
        assert sorted(row["volts"] for row in api.page(selection)["rows"]) == expected
        totals: dict[tuple[datetime, int], int] = defaultdict(int)
        for n in range(3 * PER_FILE):
            totals[START + timedelta(seconds=20 * n // 1000 // 2 * 2), n % 7] += n % 100
        wait_until(lambda: len(api.page(sums)["rows"]) >= len(totals), 60, "all windows come")
        rows = api.page(sums)["rows"]
        assert {(datetime.fromisoformat(r["window_start"]), r["device"]): r["total"] for r in rows} == totals
        assert len(rows) == len(totals)
        stream = api.stream("readings")
        assert (stream["malformed"], stream["late"]) == (3, 0)
        reasons = [letter["detail"] for page in api.dead_letters("readings") for letter in page]
        assert all(", line 1 must be JSON" in reason for reason in reasons)


def create(name: str, path: str) -> str:
    return (
        f"CREATE STREAM {name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '15' MINUTE)"
        f" WITH (connector = 'file', path = '{path}', format = 'json')"
    )
