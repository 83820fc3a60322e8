"""Queries over static tables and VALUES alone: they give their rows and are FINISHED."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.fixtures import FreshService
from tests.oracle.answers import SECONDS, all_rows, push, unique

pytestmark = pytest.mark.service

PACKS = "pack,name,brand\n1,a,1\n2,b,1\n3,,2\n4,d,\n"
BRANDS = "brand,label\n1,x\n1,y\n3,z\n"
SELECTS = (
    "SELECT * FROM {p}",
    "SELECT name, pack * 2 AS twice FROM {p} WHERE pack > 1",
    "SELECT p.name, b.label FROM {p} AS p JOIN {b} AS b ON p.brand = b.brand",
    "SELECT p.name, b.label FROM {p} AS p LEFT JOIN {b} AS b ON p.brand = b.brand",
    "SELECT name FROM {p} WHERE brand NOT IN (SELECT brand FROM {b})",
    "SELECT name FROM {p} AS p WHERE NOT EXISTS (SELECT 1 FROM {b} AS b WHERE b.brand = p.brand)",
    "SELECT a, c FROM (VALUES (1, 'x'), (2, NULL)) AS v (a, c)",
    "SELECT p.name, v.c FROM {p} AS p JOIN (VALUES (1, 'x'), (2, NULL)) AS v (a, c) ON p.pack = v.a",
    "SELECT pack FROM {p} UNION ALL SELECT brand FROM {b}",
)


def tables(api: Api, folder: Path) -> tuple[str, str]:
    """Declare two tables, and return their names."""
    name = unique("alone")
    for suffix, columns, text in (
        ("packs", "pack BIGINT, name VARCHAR, brand BIGINT", PACKS),
        ("brands", "brand BIGINT, label VARCHAR", BRANDS),
    ):
        path = folder / f"{suffix}.csv"
        path.write_text(text)
        api.create_table(
            f"CREATE TABLE {name}_{suffix} ({columns}) WITH (connector = 'file', path = '{path}', format = 'csv')"
        )
    return f"{name}_packs", f"{name}_brands"


def values(rows: list[dict[str, Json]]) -> list[tuple[Json, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_queries_over_tables_alone_give_the_rows_of_duckdb_and_finish(api: Api, tmp_path: Path) -> None:
    packs, brands = tables(api, tmp_path)
    texts = [text.format(p=packs, b=brands) for text in SELECTS]
    queries = api.create_queries([{"sql": text} for text in texts])
    with connected() as duck:
        for table in ("packs", "brands"):
            duck.execute(f"CREATE TEMP TABLE {table} AS FROM '{tmp_path / table}.csv'")
        for text, query in zip(SELECTS, queries, strict=True):
            api.wait_state(query["id"], "FINISHED", deadline_seconds=SECONDS)
            expected = duck.execute(text.format(p="packs", b="brands")).fetchall()
            assert values(all_rows(api, query["id"])) == sorted(expected, key=repr), text
    assert not [stream for stream in api.call("GET", "/streams", 200)["streams"] if stream["name"] == "static tables"]


AGGREGATES = (
    "SELECT brand, COUNT(*) AS n FROM {p} GROUP BY brand",
    "SELECT COUNT(*) AS n, SUM(pack) AS s, COUNT(DISTINCT brand) AS d, AVG(pack) AS a FROM {p} WHERE pack > 1",
    "SELECT label, MAX(pack) AS m FROM {p} AS p JOIN {b} AS b ON p.brand = b.brand GROUP BY label HAVING MAX(pack) > 1",
    "SELECT k, SUM(v) AS s FROM (VALUES ('a', 1), ('b', 2), ('a', 3)) AS x (k, v) GROUP BY k",
)


@pytest.mark.parametrize("text", AGGREGATES)
def test_rows_of_tables_are_aggregated_as_by_duckdb(api: Api, tmp_path: Path, text: str) -> None:
    packs, brands = tables(api, tmp_path)
    (query,) = api.create_queries([{"sql": text.format(p=packs, b=brands)}])
    api.wait_state(query["id"], "FINISHED", deadline_seconds=SECONDS)
    bounds = ("window_start", "window_end", "_partial")
    rows = [{name: row[name] for name in row if name not in bounds} for row in all_rows(api, query["id"])]
    with connected() as duck:
        for table in ("packs", "brands"):
            duck.execute(f"CREATE TEMP TABLE {table} AS FROM '{tmp_path / table}.csv'")
        expected = duck.execute(text.format(p="packs", b="brands")).fetchall()
    assert values(rows) == sorted(expected, key=repr)


def test_rows_of_a_table_and_of_a_stream_come_together(api: Api, tmp_path: Path) -> None:
    packs, _ = tables(api, tmp_path)
    stream = unique("alone")
    api.create_stream(
        f"CREATE STREAM {stream} (k BIGINT, ts TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    (query,) = api.create_queries([{"sql": f"SELECT pack FROM {packs} UNION ALL SELECT k FROM {stream}"}])
    push(api, stream, [{"k": 77, "ts": "2026-01-01T00:00:00Z"}])
    api.call("POST", f"/streams/{stream}/watermark", 200, json={"end": True})
    api.wait_state(query["id"], "FINISHED", deadline_seconds=SECONDS)
    assert sorted(row["pack"] for row in all_rows(api, query["id"])) == [1, 2, 3, 4, 77]


@pytest.mark.long
def test_rows_of_tables_outlive_a_crash(fresh_service: FreshService, tmp_path: Path) -> None:
    service = fresh_service()
    with Api(service.url, on_unreachable=service.start) as api:
        packs, _ = tables(api, tmp_path)
        (query,) = api.create_queries([{"sql": f"SELECT * FROM {packs}"}])
        service.kill()
        service.start()
        api.wait_state(query["id"], "FINISHED", deadline_seconds=SECONDS)
        assert [row["pack"] for row in all_rows(api, query["id"])] == [1, 2, 3, 4]
        (again,) = api.create_queries([{"sql": f"SELECT name FROM {packs} WHERE pack = 2"}])
        api.wait_state(again["id"], "FINISHED", deadline_seconds=SECONDS)
        assert all_rows(api, again["id"]) == [{"name": "b"}]
