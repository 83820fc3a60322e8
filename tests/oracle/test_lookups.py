"""Streams joined with static tables through the service: selections against DuckDB, and tables that change."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.operators.queries import Selection
from tests.kit.client import Api
from tests.kit.examples import examples
from tests.kit.plans import plan_select
from tests.kit.random_joins import (
    CATALOG,
    ITEMS,
    SECOND,
    TABLES,
    comparable,
    condition,
    random_tuples,
    rows_of_duckdb,
    table_of,
)
from tests.kit.waiting import wait_until
from tests.oracle.join_run import Streams, rows_of

pytestmark = pytest.mark.service

CATALOG_CSV = """item_id,name,price,category
P001,Red T-Shirt,9.99,Apparel
P002,Blue Jeans,39.95,Apparel
P003,Smart Watch,199.99,Electronics
P004,Yoga Mat,29.95,Fitness
P005,Wireless Headphones,99.99,Electronics
P006,Coffee Mug,5.99,Kitchen
"""


def random_selection(rng: random.Random) -> str:
    """Return a SELECT over one stream and one or two tables, ``@`` after each name."""
    sources, where = [f"{rng.choice('ab')}@ AS i0"], []
    aliases = ["i0"]
    for n in range(1, rng.choice([2, 2, 3])):
        name, kind = rng.choice("uw"), rng.choice([",", "JOIN", "LEFT JOIN"])
        compared = [
            f"{rng.choice(aliases)}.{rng.choice('km')} = i{n}.{rng.choice('km')}" for _ in range(rng.choice([1, 1, 2]))
        ]
        own_condition = [f"i{n}.{condition(rng)}"] * (rng.random() < 0.4)
        pair_condition = [f"i0.v > i{n}.v"] * (rng.random() < 0.3)
        if kind == ",":
            sources.append(f", {name}@ AS i{n}")
            where += [*compared, *own_condition, *pair_condition]
        else:
            sources.append(f"{kind} {name}@ AS i{n} ON {' AND '.join([*compared, *own_condition, *pair_condition])}")
        aliases.append(f"i{n}")
        if rng.random() < 0.2:
            where.append(f"i{n}.s IS NULL")
    where += [f"{rng.choice(aliases)}.{condition(rng)}" for _ in range(rng.choice([0, 1]))]
    where += [table_subquery(rng) for _ in range(rng.choice([0, 0, 1, 2]))]
    items = [text.format(rng.choice(aliases), rng.choice(aliases)) for text in rng.sample(ITEMS, rng.randint(1, 4))]
    select_list = ", ".join(f"{text} AS c{n}" for n, text in enumerate(items))
    return f"SELECT {select_list} FROM {' '.join(sources)}" + (f" WHERE {' AND '.join(where)}" if where else "")


def table_subquery(rng: random.Random) -> str:
    """Return a condition on the stream ``i0`` with a subquery over a table."""
    table, negated = rng.choice("uw"), rng.choice(["", "NOT "])
    own = f"t.{condition(rng)}"
    if rng.random() < 0.3:
        values = rng.choice(
            ["(VALUES (1), (2), (3))", "(VALUES (0), (NULL))", "(SELECT b FROM (VALUES (1, 2), (3, 4)) AS t (a, b))"]
        )
        return f"i0.{rng.choice('km')} {negated}IN {values}"
    if rng.random() < 0.2:
        return f"{negated}EXISTS (SELECT 1 FROM (VALUES (0, 5), (1, 50)) AS t (k, v) WHERE t.k = i0.k AND t.v < i0.v)"
    if rng.random() < 0.5:
        member = rng.choice(["k", "m", "k + 1", "COALESCE(m, 3)"])
        value = rng.choice(["i0.k", "i0.m", "i0.k + i0.m"])
        return f"{value} {negated}IN (SELECT {member} FROM {table}@ AS t{f' WHERE {own}' * (rng.random() < 0.7)})"
    conditions = rng.sample(["t.k = i0.k", "t.m = i0.m", "t.v > i0.v", own], rng.choice([1, 2, 3]))
    return f"{negated}EXISTS (SELECT 1 FROM {table}@ AS t WHERE {' AND '.join(conditions)})"


@pytest.mark.parametrize("seed", range(31, 31 + examples(1)))
def test_selections_give_the_rows_that_duckdb_gives(api: Api, seed: int, tmp_path: Path) -> None:
    """Tables are refreshed twice, the second time with the rows of before; half of the queries come in between."""
    rng = random.Random(seed)
    streams = Streams(api, tmp_path)
    texts: list[str] = []
    while len(texts) < 40:
        text = random_selection(rng)
        assert isinstance(plan_select(text.replace("@", ""), CATALOG, tables=TABLES), Selection)
        texts.append(text)
    half_tables = {name: rows.take(rng.sample(range(len(rows)), len(rows) // 2)) for name, rows in TABLES.rows.items()}
    created: list[str] = []
    eras: list[dict[str, pa.Table]] = []
    for begin, tables, new_texts in (
        (100, TABLES.rows, texts[:20]),
        (200, half_tables, texts[20:]),
        (300, TABLES.rows, []),
    ):
        if eras:
            streams.refresh(tables)
        if new_texts:
            answers = api.create_queries([{"sql": text.replace("@", streams.suffix)} for text in new_texts])
            created += [api.wait_state(answer["id"], "RUNNING")["id"] for answer in answers]
        tuples_by_stream = {
            name: [row for _ in range(4) for row in random_tuples(rng, begin * SECOND)[0]] for name in "ab"
        }
        for name, tuples in tuples_by_stream.items():
            streams.push(name, tuples)
        streams.settle()
        eras.append({**tables, **{name: table_of(tuples) for name, tuples in tuples_by_stream.items()}})
    for n, (text, query) in enumerate(zip(texts, created, strict=True)):
        eras_seen = eras[n // 20 :]
        expected = sorted(comparable(row) for era in eras_seen for row in rows_of_duckdb(text.replace("@", ""), era))
        rows_got: list[tuple[Any, ...]] = []

        def all_come(query: str = query, rows_got: list[Any] = rows_got, expected: list[Any] = expected) -> bool:
            rows_got[:] = rows_of(api, query)
            return len(rows_got) >= len(expected)

        wait_until(all_come, 60, f"the rows of {text} come")
        assert sorted(map(comparable, rows_got)) == expected, text


def test_carts_are_enriched_with_the_catalogue(api: Api, tmp_path: Path) -> None:
    name, path = uuid.uuid4().hex[:8], tmp_path / "catalogue.csv"
    path.write_text(CATALOG_CSV)
    api.create_stream(
        f"CREATE STREAM cart_{name} (cust_id VARCHAR, event_time TIMESTAMP LATENESS INTERVAL '0' SECOND,"
        " item_id VARCHAR) WITH (connector = 'push')"
    )
    api.create_table(
        f"CREATE TABLE product_{name} (item_id VARCHAR, name VARCHAR, price DOUBLE, category VARCHAR)"
        f" WITH (connector = 'file', path = '{path}', format = 'csv')"
    )
    source = f"FROM cart_{name} c JOIN product_{name} p ON c.item_id = p.item_id"
    windowed = f"FROM cart_{name} [RANGE 1 HOUR] c LEFT JOIN product_{name} p ON c.item_id = p.item_id"
    enriched, by_category = (
        answer["id"]
        for answer in api.create_queries(
            [
                {"sql": f"SELECT c.cust_id, c.event_time, p.name, p.price, p.category {source}"},
                {"sql": f"SELECT p.category, SUM(p.price) AS worth, COUNT(*) AS items {windowed} GROUP BY p.category"},
            ]
        )
    )
    api.wait_state(enriched, "RUNNING")
    api.wait_state(by_category, "RUNNING")

    def push(*rows: tuple[str, str, str]) -> None:
        lines = [f'{{"cust_id": "{c}", "event_time": "2023-02-01 {t}", "item_id": "{i}"}}' for c, t, i in rows]
        api.push(f"cart_{name}", "application/x-ndjson", "\n".join(lines).encode())

    push(("1234", "10:01:00", "P001"), ("1234", "10:05:00", "P002"), ("1234", "10:06:00", "P404"))
    wait_until(lambda: bool(api.stream(f"cart_{name}")["tuples"] == 3), 60, "the carts are taken in")
    path.write_text(CATALOG_CSV.replace("39.95", "35.00"))
    (later,) = api.create_queries([{"sql": f"SELECT c.cust_id, p.price {source}"}])
    api.wait_state(later["id"], "RUNNING")
    push(("77", "10:07:00", "P002"))
    wait_until(lambda: bool(api.stream(f"cart_{name}")["tuples"] == 4), 60, "the cart is taken in")
    path.write_text(CATALOG_CSV.replace("39.95", "30.00") + "P404,Teapot,12.00,Kitchen\n")
    assert api.refresh_table(f"product_{name}")["refreshed_at"] is not None
    push(("78", "10:08:00", "P002"), ("78", "10:09:00", "P404"), ("78", "12:00:00", "P405"))

    def read(query: str, columns: int) -> list[tuple[Any, ...]]:
        return [row[:columns] for row in rows_of(api, query)]

    wait_until(lambda: len(read(by_category, 9)) == 3, 60, "the window's groups come")
    # tables are read when a query is deployed: the first one goes on with what it has, until the table is refreshed
    assert [(row[0], *row[2:]) for row in read(enriched, 5)] == [
        ("1234", "Red T-Shirt", 9.99, "Apparel"),
        ("1234", "Blue Jeans", 39.95, "Apparel"),
        ("77", "Blue Jeans", 39.95, "Apparel"),
        ("78", "Blue Jeans", 30.0, "Apparel"),
        ("78", "Teapot", 12.0, "Kitchen"),
    ]
    assert read(later["id"], 2) == [("77", 35.0), ("78", 30.0), ("78", 12.0)]
    groups = {row[2]: row[3:] for row in read(by_category, 9)}
    assert groups == {  # the window has tuples from before the refresh and after it
        "Apparel": (pytest.approx(9.99 + 2 * 39.95 + 30), 4),
        "Kitchen": (12.0, 1),
        None: (None, 1),
    }
    plan = api.request("GET", f"/queries/{enriched}/plan").json()
    assert f"product_{name}" in str(plan)
