"""Files of a data folder that a service really wrote, damaged one by one: nothing wrong is told, and nobody crashes for
ever. What is needed to go on is a start refused, by name; results are a gap.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from braid.client import Client
from tests.kit.damage import Damage, Damaged, flipped, removed
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long]

DEVICES = 60_000  # so many that buckets are files
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
    "placed": "SELECT t.volts, p.place FROM taps AS t JOIN places AS p ON t.device = p.device",
    "all": "SELECT device, volts FROM taps",
}
ENVIRONMENT = {"BRAID_CHANGELOG_TIMEOUT_SECONDS": "0.1", "BRAID_PARTITIONS": "2", "BRAID_MASTER": "local[2]"}


def events(second: int) -> list[dict[str, object]]:
    return [
        {"device": device, "volts": 7 * device + second, "time": f"2026-01-01T12:00:{second:02d}Z"}
        for device in range(DEVICES)
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with closed windows in results and open ones in the state of partitions."""
    folder = tmp_path_factory.mktemp("written")
    service = RunningService(folder / "data", folder / "service.log", ENVIRONMENT)
    try:
        service.start()
        (folder / "places.csv").write_text("device,place\n1,cellar\n")
        with Client(service.url, timeout=60) as braid:
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


DAMAGES: dict[str, Damage] = {
    "flipped": flipped,
    "cut": lambda data: data[: len(data) // 2],
    "removed": removed,
}
NEEDED = {
    "buckets/*": "buckets/",
    "tuples/*": "tuples/",
    "states/*": "states/",
    "partitions.json": r"partitions\.json",
    "session.json": r"session\.json|requests|changelogs/",
    "queries/*": "queries/",
    "finished/*": "finished/",
    "tables/*": "tables/",
    "activations/*": "activations",
    "changelogs/*[!1].json": "changelogs/",
    "batches/*13.json": "batches/",
}


def files(data_dir: Path, pattern: str) -> list[Path]:
    """Return files of a data folder, some at least."""
    found = sorted(data_dir.glob(pattern))
    assert found
    return found


@pytest.mark.parametrize("pattern", NEEDED)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_without_a_file_that_is_needed_is_refused_by_its_name(
    written: Path, pattern: str, damage: str, tmp_path: Path
) -> None:
    service = RunningService(written, tmp_path / "service.log", ENVIRONMENT)
    newest = pattern.replace("*13.json", f"*{len(list(written.glob('batches/*.json'))):03d}.json")
    with Damaged(files(written, newest), DAMAGES[damage]):
        ended = subprocess.run(
            service.command(), env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=START_SECONDS
        )
    assert ended.returncode == 1, ended.stderr
    assert re.search(NEEDED[pattern], ended.stderr)
    assert "from a backup" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_rows_that_are_lost_are_told_once_in_every_form_and_the_rest_is_read(written: Path, tmp_path: Path) -> None:
    service = RunningService(written, tmp_path / "service.log", ENVIRONMENT)
    blocks = files(written, "results/*") + files(written, "dead-letters/*")
    with Damaged(blocks, flipped):
        try:
            service.start()
            with Client(service.url, timeout=60) as braid:
                ids = {query["name"]: query["id"] for query in braid.queries() if query["name"]}
                for name, query_id in ids.items():
                    page = braid.results(query_id)
                    assert page.rows == []
                    assert page.gap is not None, name
                    assert "results/" in str(page.gap["detail"])
                    assert braid.results(query_id, after=page.cursor).gap is None
                    url = f"{service.url}/queries/{query_id}/results"
                    for form in ("application/x-ndjson", "application/vnd.apache.arrow.stream"):
                        answer = httpx.get(url, headers={"Accept": form})
                        assert answer.status_code == 200
                        assert "cannot be read" in answer.headers["Braid-Gap"]
                    with httpx.stream("GET", f"{url}/stream", timeout=60) as events_of_query:
                        assert "event: gap" in itertools.islice(events_of_query.iter_lines(), 4)
                letters = braid.dead_letters("taps")
                assert letters["rows"] == []
                assert letters["gap"]["rows"] == 1
                braid.push("taps", [{"device": -2, "volts": 99, "time": "2026-01-01T12:00:14Z"}])  # it has no pair
                cursor = braid.results(ids["all"]).cursor
                assert braid.results(ids["all"], after=cursor, wait=60).rows == [{"device": -2, "volts": 99}]
            service.stop()
        finally:
            service.end_everything()


@pytest.mark.parametrize("pattern", ["buckets/*", "states/*", "partitions.json"])
def test_damage_that_the_running_job_finds_is_told_by_readyz_and_ends_the_job(
    written: Path, pattern: str, tmp_path: Path
) -> None:
    shutil.copytree(written, kept := tmp_path / "kept")
    service = RunningService(written, tmp_path / "service.log", ENVIRONMENT)
    try:
        service.start()
        with Damaged(files(written, pattern), lambda data: data[: len(data) // 2]):
            os.kill(json.loads((written / "job.json").read_bytes())["pid"], signal.SIGKILL)
            wait_until(lambda: (written / "damaged.json").exists(), 120, "the job finds it")
            wait_until(lambda: not (written / "job.json").exists(), 60, "the job is gone")
            answer = httpx.get(f"{service.url}/readyz")
            assert answer.status_code == 503
            assert pattern.strip("*") in answer.json()["detail"]
            assert "from a backup" in answer.json()["detail"]
        service.stop()
    finally:
        service.end_everything()
        shutil.rmtree(written)
        shutil.copytree(kept, written)


@pytest.mark.parametrize("damage", DAMAGES)
def test_tuples_of_joins_that_are_damaged_under_a_running_job_end_it_by_their_name_and_give_no_wrong_row(
    written: Path, damage: str, tmp_path: Path
) -> None:
    shutil.copytree(written, kept := tmp_path / "kept")
    service = RunningService(written, tmp_path / "service.log", ENVIRONMENT)
    try:
        service.start()
        with Client(service.url, timeout=60) as braid:
            pairs = next(query["id"] for query in braid.queries() if query["name"] == "pairs")
            before = braid.get_query(pairs)["rows_out"]
            with Damaged(files(written, "tuples/*"), DAMAGES[damage]):
                for stream in ("taps", "knocks"):  # so that the window of the tuples is over
                    braid.push(stream, [{"device": -1, "volts": 0, "time": "2026-01-01T12:00:30Z"}])
                wait_until(lambda: (written / "damaged.json").exists(), 120, "the job finds it")
                wait_until(lambda: not (written / "job.json").exists(), 60, "the job is gone")
                detail = httpx.get(f"{service.url}/readyz").json()["detail"]
                assert re.search("The file tuples/.*from a backup", detail)
                assert braid.get_query(pairs)["rows_out"] == before
                service.stop()
                assert "The file tuples/" in service.refusal()
            service.start()
            wait_until(
                lambda: braid.get_query(pairs)["rows_out"] == before + DEVICES,
                120,
                lambda: f"{before + DEVICES} pairs are there, not {braid.get_query(pairs)['rows_out']}",
            )
        service.stop()
    finally:
        service.end_everything()
        shutil.rmtree(written)
        shutil.copytree(kept, written)


def test_tuples_of_joins_that_are_cut_while_partitions_hold_them_end_no_process(tmp_path: Path) -> None:
    service = RunningService(tmp_path / "data", tmp_path / "service.log", ENVIRONMENT)
    try:
        service.start()
        with Client(service.url, timeout=60) as braid:
            for stream in ("taps", "knocks"):
                braid.create_stream(STREAM.format(stream))
            pairs = braid.create_query(QUERIES["pairs"].replace("10 SECONDS", "20 SECONDS SLIDE 10 SECONDS"), wait=60)
            for stream in ("taps", "knocks"):
                braid.push(stream, events(1))
                braid.push(stream, [{"device": -1, "volts": 0, "time": "2026-01-01T12:00:15Z"}])
            wait_until(lambda: braid.get_query(pairs["id"])["rows_out"] == DEVICES, 60, "a window has fired")
            cursor = read_all(braid, pairs["id"])
            whole = {file: file.read_bytes() for file in files(service.data_dir, "tuples/*")}
            for file in whole:
                os.truncate(file, 1)
            for stream in ("taps", "knocks"):
                braid.push(stream, [{"device": -1, "volts": 0, "time": "2026-01-01T12:00:25Z"}])

            def are_all_there() -> bool:
                return bool(braid.get_query(pairs["id"])["rows_out"] == 2 * DEVICES + 1)

            # a worker that has the tuples goes on with them, one that has not says which file is damaged
            damage = service.data_dir / "damaged.json"
            wait_until(lambda: are_all_there() or damage.exists(), 120, "all pairs are there, or a file is named")
            if not damage.exists():
                assert braid.results(pairs["id"], after=cursor).gap is not None, "results refer to what was cut"
            assert "Python worker exited unexpectedly" not in (service.data_dir / "logs" / "job.log").read_text()
            service.stop()
            assert "The file tuples/" in service.refusal(), "a start reads it again"
            for file, data in whole.items():
                file.write_bytes(data)
            service.start()
            wait_until(are_all_there, 120, "all pairs are there")
        service.stop()
    finally:
        service.end_everything()


def read_all(braid: Client, query_id: str) -> str:
    """Read all rows that are there, and return the cursor after them."""
    cursor = None
    while True:
        page = braid.results(query_id, after=cursor)
        if page.cursor == cursor or not page.rows:
            return page.cursor
        cursor = page.cursor
