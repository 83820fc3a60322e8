"""A data folder of the same format that an earlier version left goes on: no row is lost, doubled or changed.

`data_of_earlier_versions/make.py` made each folder, by the service of the commit that it is named after.
"""

from __future__ import annotations

import datetime as dt
import json
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.kit.client import Api
from tests.kit.duck import connected
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until
from tests.oracle.changes import fold
from tests.oracle.data_of_earlier_versions.make import tuples
from tests.oracle.wire import parse_time

pytestmark = [pytest.mark.service, pytest.mark.long]

FOLDER = Path(__file__).parent / "data_of_earlier_versions"
VERSIONS = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))
FOR_EVER = str(10**9)  # what was kept then must still be there, whenever the test runs
RETENTION = {"BRAID_RETENTION_SECONDS": FOR_EVER, "BRAID_RESULT_RETENTION_SECONDS": FOR_EVER}
CLOSING = -1

Row = dict[str, Any]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_data_folder_of_an_earlier_version_goes_on(version: str, fresh_service: FreshService, tmp_path: Path) -> None:
    made = json.loads((FOLDER / f"{version}.json").read_text())
    with tarfile.open(FOLDER / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "data" / "home.json").unlink()  # the folder was made elsewhere, and nothing but this names the place
    service = fresh_service(tmp_path / "data", **made["environment"], **RETENTION)
    pushed = made["tuples"]
    with Api(service.url) as api:

        def push(stream: str, rows: list[Row]) -> None:
            api.push(stream, "application/json", json.dumps(rows).encode())
            pushed[stream] += rows

        def are_read() -> bool:
            return all(api.stream(stream)["tuples"] == len(rows) for stream, rows in pushed.items())

        def close(minute: int) -> None:
            for stream, value in (("bids", "price"), ("asks", "asked")):
                push(stream, [{"item": CLOSING, value: CLOSING, "time": f"2026-01-01T12:{minute}:00Z"}])
            wait_until(are_read, 60, "all tuples are read")

        assert are_read(), "what was read then is not read again"
        (added,) = api.create_queries([{"sql": "SELECT item, price FROM bids WHERE item >= 0"}])
        for second in range(26, 40):
            for stream, rows in tuples(second).items():
                if rows:
                    push(stream, rows)
        close(10)
        ids = {query["name"]: query["id"] for query in made["queries"]}
        running = [*(query for name, query in ids.items() if name != "retired"), added["id"]]
        for query in running:
            api.delete_query(query)
        for query in running:
            api.wait_deleted(query)
        close(20)
        for query in ids.values():
            api.wait_state(query, "RETIRED")
        with connected() as duck:
            for stream, rows in pushed.items():
                register(duck, stream, [row for row in rows if row["item"] != CLOSING])
            register(duck, "packs", [dict(zip(("item", "name"), pack, strict=True)) for pack in made["packs"]])
            for query in made["queries"]:
                until = f" AND time <= TIMESTAMP '{made['retired_to']}'" if query["name"] == "retired" else ""
                expected = rows_of_duckdb(duck, query["duckdb"] + until)
                assert expected, query["name"]
                assert rows_of(api, query["id"]) == expected, query["name"]
            expected = rows_of_duckdb(duck, "SELECT item, price FROM bids WHERE time > TIMESTAMP '2026-01-01 12:00:25'")
            assert rows_of(api, added["id"]) == expected


def register(duck: duckdb.DuckDBPyConnection, name: str, rows: list[Row]) -> None:
    """Have DuckDB know rows, with times of their type."""
    parsed = [
        {key: dt.datetime.fromisoformat(value).replace(tzinfo=None) if key == "time" else value for key, value in each}
        for each in map(dict.items, rows)
    ]
    duck.register(name, pa.Table.from_pylist(parsed))


def rows_of(api: Api, query: str) -> list[list[str]]:
    """Return all rows of a query that is over, those that are left of a changelog, in a form to compare."""
    rows: list[Row] = []
    page = api.page(query)
    while page["rows"]:
        rows += page["rows"]
        page = api.page(query, after=page["cursor"])
    assert page["end"]
    left = fold(rows) if rows and "_op" in rows[0] else rows
    return comparable([row for row in left if row.get("item") != CLOSING])


def rows_of_duckdb(duck: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
    """Return the rows of a statement, in a form to compare."""
    return comparable(duck.sql(sql).to_arrow_table().to_pylist())


def comparable(rows: list[Row]) -> list[list[str]]:
    """Return rows in an order, each as texts by the names of their columns, without `_partial`."""
    return sorted(
        [f"{name}={text(name, value)}" for name, value in sorted(row.items()) if name != "_partial"] for row in rows
    )


def text(name: str, value: Any) -> str:
    """Return a value as a text: times without a zone, fractions with nine digits."""
    if name.startswith("window_"):
        time = value if isinstance(value, dt.datetime) else parse_time(value)
        return time.replace(tzinfo=None).isoformat()
    return f"{float(value):.9g}" if isinstance(value, float | Decimal) else str(value)
