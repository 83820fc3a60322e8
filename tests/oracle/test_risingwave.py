"""RisingWave's posts through the service: the views that they tell of, over the rows that they print or random ones.

A materialized view is a query with a name, a view over a view one that reads it, and a table that changes is a stream
or a static table. Not there yet are ORDER BY and LIMIT, keyed streams (a deletion is a vote of -1 here), and NOW() in
WHERE. A top ten is a join with what is higher: a row is in it if fewer than ten are. Sinks are in test_sinks.py.
"""

from __future__ import annotations

import csv
import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.answers import SECONDS, all_rows, end, finished_rows, match_duckdb, push, push_batch, unique

pytestmark = pytest.mark.service

ALL_TIME = "[RANGE 36500 DAYS]"
PUSHED = "WITH (connector = 'push')"
BEGIN = dt.datetime(2023, 2, 1, 10)


@pytest.fixture(scope="module")
def api(service: RunningService) -> Iterator[Api]:
    """One client for all tests here: what they create goes after the last."""
    with Api(service.url) as client:
        yield client
        client.drop_created()


def create(api: Api, name: str, text: str) -> str:
    """Create a query with a name, and return its id."""
    return str(api.create_queries([{"sql": text, "name": name}])[0]["id"])


def create_table(api: Api, folder: Path, columns: str, rows: Sequence[Sequence[Any]]) -> str:
    """Create a static table of a file of CSV, and return its name."""
    name = unique("posts")
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[column.split()[0] for column in columns.split(",")], *rows])
    api.create_table(f"CREATE TABLE {name} ({columns}) WITH (connector = 'file', path = '{path}', format = 'csv')")
    return name


def minute(number: float) -> dt.datetime:
    """Return a time, by minutes after ten."""
    return BEGIN + dt.timedelta(minutes=number)


def clock(text: str) -> str:
    """Return hours and minutes of a time."""
    return text[11:16]


def records(columns: str, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows by their columns."""
    return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]


def check(duck: duckdb.DuckDBPyConnection, text: str, rows: Sequence[Mapping[str, Json]]) -> None:
    """Compare rows with those of DuckDB."""
    assert (difference := match_duckdb(duck.sql(text), rows)) is None, f"{text}: {difference}"


def test_cart_events_are_enriched_with_products_as_they_come(api: Api, tmp_path: Path) -> None:
    """The post on ClickHouse: a stream joined with a table of products, which has none for the last event."""
    products = [
        ("P001", "Red T-Shirt", 9.99, "Apparel"),
        ("P002", "Blue Jeans", 39.95, "Apparel"),
        ("P003", "Smart Watch", 199.99, "Electronics"),
        ("P004", "Yoga Mat", 29.95, "Fitness"),
        ("P005", "Wireless Headphones", 99.99, "Electronics"),
        ("P006", "Coffee Mug", 5.99, "Kitchen"),
    ]
    columns = "item_id varchar, name varchar, price double precision, category varchar"
    catalog, cart = create_table(api, tmp_path, columns, products), unique("cart_event")
    api.create_stream(
        f"CREATE STREAM {cart} (cust_id VARCHAR, event_time TIMESTAMP LATENESS INTERVAL '5' MINUTE, item_id VARCHAR)"
        " WITH (connector = 'push', timestamp.format = 'yyyy-MM-dd HH:mm:ss')"
    )
    query = create(api, unique("data_enrichment"), f"""
        SELECT c.cust_id, c.event_time, p.name, p.price, p.category
        FROM {cart} c JOIN {catalog} p ON c.item_id = p.item_id
    """)  # fmt: skip
    added = [(1234, 1, "P001"), (1232, 5, "P002"), (1235, 10, "P003"), (1236, 15, "P001"), (1237, 20, "P004")]
    added += [(1238, 25, "P002"), (1239, 30, "P005"), (1240, 35, "P003"), (1241, 40, "P006"), (1242, 45, "P007")]
    events = [
        {"cust_id": str(customer), "event_time": f"{minute(at):%Y-%m-%d %H:%M:%S}", "item_id": item}
        for customer, at, item in added
    ]
    product = {item: tuple(rest) for item, *rest in products}
    expected = [
        (str(customer), f"{minute(at):%H:%M}", *product[item]) for customer, at, item in added if item in product
    ]

    def rows() -> list[tuple[Any, ...]]:
        return sorted(
            (row["cust_id"], clock(row["event_time"]), row["name"], float(row["price"]), row["category"])
            for row in all_rows(api, query)
        )

    push(api, cart, events[:3])
    wait_until(lambda: rows() == sorted(expected[:3]), SECONDS, "the first three events are enriched")
    push(api, cart, events[3:])
    end(api, cart)
    finished_rows(api, query)
    assert rows() == sorted(expected)


@pytest.mark.parametrize(
    ("barriers", "changes"),
    [
        ((3, 4), [(1, 2, "insert"), (1, 2, "retract"), (1, 2, "insert"), (2, 2, "insert")]),
        ((), [(1, 2, "insert"), (2, 2, "insert")]),
    ],
    ids=["a batch for each transaction", "one batch"],
)
def test_votes_are_counted_alike_however_batches_cut_them(
    barriers: tuple[int, ...], changes: list[tuple[int, int, str]], api: Api
) -> None:
    """The posts on the engine, parts 2 and 3: three transactions; the changes are those of stories with two votes."""
    votes = unique("votes")
    columns = "user_id int, story_id int, vote int, time TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND"
    api.create_stream(f"CREATE STREAM {votes} ({columns}) {PUSHED}")
    counts = f"SELECT story_id, SUM(vote) AS vcount FROM {votes} {ALL_TIME} GROUP BY story_id"
    final = create(api, unique("stories_vc"), counts)
    early = create(api, unique("stories_vc"), f"{counts} HAVING vcount >= 2 EMIT STREAM")
    rows = [(1, 1, 1), (2, 1, 1), (3, 2, 1), (1, 1, -1), (4, 1, 1), (5, 2, 1)]
    for first, last in pairwise((0, *barriers, len(rows))):
        push_batch(api, votes, records("user_id, story_id, vote", rows[first:last]))
    end(api, votes)
    assert sorted((row["story_id"], row["vcount"]) for row in finished_rows(api, final)) == [(1, 2), (2, 2)]
    came = [(row["story_id"], row["vcount"], row["_op"]) for row in finished_rows(api, early)]
    assert sorted(came, key=lambda change: change[0]) == changes, "each story keeps the order of its changes"


def test_the_ten_stories_with_most_votes_are_a_view_of_a_view(api: Api, tmp_path: Path) -> None:
    """The posts on the engine, parts 1 and 3: votes are counted in a subquery, and joined with stories.

    The top ten of each hour stand in for ORDER BY vcount DESC LIMIT 10; as with RANK, equal counts are all in it.
    """
    draw, votes = random.Random(10), unique("votes")
    stories = [(number, number % 7, f"story {number}", f"https://example.com/{number}") for number in range(40)]
    table = create_table(api, tmp_path, "id int, author int, title text, url text", stories)
    columns = "user_id int, story_id int, time TIMESTAMP LATENESS INTERVAL '1' DAY"
    api.create_stream(f"CREATE STREAM {votes} ({columns}) {PUSHED}")
    counted = unique("stories_with_vc")
    hour = "[RANGE 1 HOUR]"
    queries = [
        create(api, counted, f"""
            SELECT id, author, title, url, vcount, VoteCount.window_end AS until FROM {table} stories JOIN (
                SELECT story_id, COUNT(DISTINCT user_id) AS vcount FROM {votes} {hour} GROUP BY story_id
            ) VoteCount ON VoteCount.story_id = stories.id
        """),
        create(api, unique("more_than_one"), f"""
            SELECT id, title, vote_count FROM {table} stories JOIN (
                SELECT COUNT(*) AS vote_count, story_id FROM {votes} {hour} GROUP BY story_id
            ) StoriesVC ON StoriesVC.story_id = stories.id WHERE vote_count > 1
        """),
        create(api, unique("top_10"), f"""
            WITH ranked AS (SELECT *, 1 AS one FROM {counted})
            SELECT s.id, s.title, s.vcount, s.until, COUNT(higher.id) + 1 AS rank
            FROM ranked {hour} s LEFT JOIN ranked {hour} higher ON s.one = higher.one AND higher.vcount > s.vcount
            GROUP BY s.id, s.title, s.vcount, s.until HAVING COUNT(higher.id) < 10
        """),
        create(api, unique("top"), f"""
            SELECT * FROM {counted} {hour} WHERE vcount = (SELECT MAX(vcount) FROM {counted})
        """),
    ]  # fmt: skip
    rows = [
        {
            "user_id": draw.randrange(30),
            "story_id": min(draw.choices(range(45), k=2)),
            "time": minute(draw.randrange(180)),
        }
        for _ in range(2500)
    ]
    push(api, votes, rows)
    end(api, votes)
    with connected() as duck:
        duck.register("votes", pa.Table.from_pylist(rows))
        duck.register("stories", pa.Table.from_pylist(records("id, author, title, url", stories)))
        hourly = "time_bucket(INTERVAL 1 HOUR, time) + INTERVAL 1 HOUR AS until"
        duck.execute(f"""
            CREATE TEMP VIEW stories_with_vc AS SELECT id, author, title, url, vcount, until FROM stories JOIN (
                SELECT story_id, COUNT(DISTINCT user_id) AS vcount, {hourly} FROM votes GROUP BY story_id, until
            ) ON story_id = id
        """)
        references = (
            "FROM stories_with_vc",
            """
                SELECT id, title, COUNT(*) AS vote_count FROM votes JOIN stories ON id = story_id
                GROUP BY id, title, time_bucket(INTERVAL 1 HOUR, time) HAVING vote_count > 1
            """,
            """
                SELECT id, title, vcount, until, RANK() OVER (PARTITION BY until ORDER BY vcount DESC) AS rank
                FROM stories_with_vc QUALIFY rank <= 10
            """,
            "FROM stories_with_vc QUALIFY vcount = MAX(vcount) OVER (PARTITION BY until)",
        )
        for query, reference in zip(queries, references, strict=True):
            check(duck, reference, finished_rows(api, query))


def test_windows_come_when_the_watermark_closes_them(api: Api) -> None:
    """The post on triggers: tumbling windows of five seconds, of which a watermark of 12:00:11 closes two.

    EMIT ON WINDOW CLOSE is the default, EMIT ON UPDATE is EMIT STREAM.
    """
    events = unique("events")
    api.create_stream(f"CREATE STREAM {events} (time TIMESTAMP LATENESS INTERVAL '5' SECOND) {PUSHED}")
    counts = f"SELECT COUNT(*) AS n FROM {events} [RANGE 5 SECONDS]"
    closed = create(api, unique("eowc"), counts)
    updated = create(api, unique("updates"), f"{counts} EMIT STREAM")
    noon = dt.datetime(2023, 2, 1, 12)
    push_batch(api, events, [{"time": noon + dt.timedelta(seconds=number)} for number in (1, 3, 6, 4, 7, 12, 9, 16)])

    def windows(query: str) -> list[tuple[str, int]]:
        return [(row["window_start"][11:19], row["n"]) for row in all_rows(api, query)]

    complete = [("12:00:00", 3), ("12:00:05", 3)]
    rest = [("12:00:10", 1), ("12:00:15", 1)]
    wait_until(lambda: windows(closed) == complete, SECONDS, "two windows are closed")
    assert api.stream(events)["watermark"] == "2023-02-01T12:00:11.000000Z"
    assert sorted(windows(updated)) == complete + rest
    end(api, events)
    finished_rows(api, closed)
    assert windows(closed) == complete + rest


def test_visits_and_comments_keep_rows_that_are_alike(api: Api) -> None:
    """The post on the computational model: the join has no key of its own, so alike rows are counted."""
    comments, visits = unique("comments"), unique("visit_event")
    api.create_stream(
        f"CREATE STREAM {comments} (story_id int, user_id int, created_at TIMESTAMP LATENESS INTERVAL '1' DAY,"
        f" content varchar, uuid varchar) {PUSHED}"
    )
    api.create_stream(
        f"CREATE STREAM {visits} (story_id int, user_id int, time TIMESTAMP LATENESS INTERVAL '1' DAY, uuid varchar)"
        f" {PUSHED}"
    )
    query = create(api, unique("mv"), f"""
        SELECT Comments.story_id AS story_id, Comments.user_id AS user_id, Comments.content AS content,
            Comments.created_at AS comment_time, VisitEvent.time AS visit_time
        FROM {comments} [RANGE 1 DAY] AS Comments JOIN {visits} [RANGE 1 DAY] AS VisitEvent USING (story_id, user_id)
    """)  # fmt: skip
    commented = [(1, 1), (1, 1), (1, 2), (2, 1)]
    visited = [(1, 1), (1, 1), (1, 1), (2, 1), (3, 1)]
    said = [(*pair, minute(9), "yes", f"c{number}") for number, pair in enumerate(commented)]
    push(api, comments, records("story_id, user_id, created_at, content, uuid", said))
    seen = [(*pair, minute(1), f"v{number}") for number, pair in enumerate(visited)]
    push(api, visits, records("story_id, user_id, time, uuid", seen))
    end(api, comments, visits)
    rows = finished_rows(api, query)
    assert sorted((row["story_id"], row["user_id"]) for row in rows) == [(1, 1)] * 6 + [(2, 1)]
    assert {(clock(row["comment_time"]), clock(row["visit_time"]), row["content"]) for row in rows} == {
        ("10:09", "10:01", "yes")
    }


def test_weights_of_promotions_follow_from_their_sales(api: Api, tmp_path: Path) -> None:
    """The post on Supabase: sales of five minutes, then return and volatility of an hour, then weights of each two.

    The hour ends with each five minutes, as NOW() would have it, and ``POWER(x, 2)`` stands for ``x^2``. The first rows
    are those that the post prints.
    """
    draw, sales = random.Random(5), unique("sale_events")
    search, video = "Search Result", "Youtube Video Ad"
    ads = [(1, search, 1, 40), (2, video, 1, 60), (3, search, 2, 70), (4, video, 2, 30)]
    columns = "id int8, ad_type string, product_id int8, weight_percent int8"
    promotions = create_table(api, tmp_path, columns, ads)
    api.create_stream(
        f"CREATE STREAM {sales} (product_id int8, promotion_id int8, created_at TIMESTAMPTZ LATENESS INTERVAL '1' DAY,"
        f" discount_price_cents int8, quantity int8) {PUSHED}"
    )
    sequences, stat = unique("promotions_sequences"), unique("promotions_stat")
    queries = [
        create(api, sequences, f"""
            SELECT product_id, promotion_id, SUM(total_price) AS sales_amount, window_start, window_end FROM (
                SELECT product_id, promotion_id, discount_price_cents * quantity AS total_price,
                    window_start, window_end FROM TUMBLE (TABLE {sales}, DESCRIPTOR(created_at), INTERVAL '5 MINUTES')
            ) GROUP BY window_start, window_end, product_id, promotion_id
        """),
        create(api, stat, f"""
            SELECT promotions.product_id AS product_id, promotion_id, STDDEV_SAMP(sales_amount) AS vol,
                SUM(sales_amount) * 1.0e0 / SUM(promotions.weight_percent) AS roii
            FROM {sequences} [RANGE 60 MINUTES SLIDE 5 MINUTES] AS seq
            JOIN {promotions} AS promotions ON promotion_id = promotions.id AND seq.product_id = promotions.product_id
            GROUP BY promotions.product_id, promotion_id
        """),
        create(api, unique("promotion_update"), f"""
            SELECT o1.product_id, o1.promotion_id,
                POWER(o2.vol, 2) * o1.roii / (o1.roii * POWER(o2.vol, 2) + o2.roii * POWER(o1.vol, 2)) AS weight
            FROM {stat} AS o1 JOIN {stat} AS o2 ON o1.product_id = o2.product_id AND o1.window_end = o2.window_end
                AND o1.promotion_id <> o2.promotion_id
        """),
    ]  # fmt: skip
    printed = [(1, 1, 3, 6600, 1), (1, 2, 8, 6600, 2), (2, 3, 9, 19900, 1), (2, 3, 9, 19900, 1), (1, 2, 9, 7299, 2)]
    made = [
        (draw.randrange(1, 5), draw.randrange(15, 180), draw.randrange(5000, 20000), draw.randrange(1, 4))
        for _ in range(400)
    ]
    sold = [*printed, *(((ad + 1) // 2, ad, *rest) for ad, *rest in made)]
    rows = [
        row | {"created_at": minute(row["created_at"])}
        for row in records("product_id, promotion_id, created_at, discount_price_cents, quantity", sold)
    ]
    push(api, sales, rows)
    end(api, sales)
    first = [
        (row["promotion_id"], row["sales_amount"], clock(row["window_start"]), clock(row["window_end"]))
        for row in finished_rows(api, queries[0])[:3]
    ]
    assert sorted(first) == [(1, 6600, "10:00", "10:05"), (2, 27798, "10:05", "10:10"), (3, 39800, "10:05", "10:10")]
    with connected() as duck:
        duck.register("sales", pa.Table.from_pylist(rows))
        duck.register("promotions", pa.Table.from_pylist(records("id, ad_type, product_id, weight_percent", ads)))
        duck.execute("""
            CREATE TEMP TABLE sequences AS
            SELECT product_id, promotion_id, SUM(discount_price_cents * quantity)::BIGINT AS sales_amount,
                time_bucket(INTERVAL 5 MINUTE, created_at) + INTERVAL 5 MINUTE AS window_end
            FROM sales GROUP BY ALL
        """)
        duck.execute("""
            CREATE TEMP TABLE stat AS
            SELECT s.product_id, promotion_id, hour_end AS window_end, STDDEV_SAMP(sales_amount) AS vol,
                SUM(sales_amount)::DOUBLE / SUM(weight_percent) AS roii
            FROM (
                SELECT *, UNNEST(RANGE(window_end, window_end + INTERVAL 1 HOUR, INTERVAL 5 MINUTE)) AS hour_end
                FROM sequences
            ) s JOIN promotions p ON promotion_id = p.id AND s.product_id = p.product_id GROUP BY ALL
        """)
        check(duck, "FROM sequences", finished_rows(api, queries[0]))
        check(duck, "FROM stat", finished_rows(api, queries[1]))
        weights = finished_rows(api, queries[2])
        check(duck, """
            SELECT o1.product_id, o1.promotion_id, o1.window_end,
                o2.vol ^ 2 * o1.roii / (o1.roii * o2.vol ^ 2 + o2.roii * o1.vol ^ 2) AS weight
            FROM stat o1 JOIN stat o2 ON o1.product_id = o2.product_id AND o1.window_end = o2.window_end
                AND o1.promotion_id <> o2.promotion_id
        """, weights)  # fmt: skip


TURNOVER = "SUM(qty * price)"
RANKINGS = [("state", TURNOVER), ("itemid", "AVG(qty)"), ("itemid", "SUM(qty)"), ("itemid", TURNOVER)]


def test_rankings_of_a_dashboard_are_joins_with_what_is_higher(api: Api) -> None:
    """The post on Django: four top fives over orders, the first of which are those that it prints."""
    draw, orders = random.Random(6), unique("orders")
    api.create_stream(
        f"CREATE STREAM {orders} (orderid int, itemid int, qty int, price DECIMAL(8,2), dt date, state varchar,"
        f" time AS CAST(dt AS TIMESTAMP) LATENESS INTERVAL '400' DAY) {PUSHED}"
    )
    queries = [
        create(api, unique("top_5"), f"""
            WITH scored AS (SELECT {key} AS key, {score} AS score, 1 AS one FROM {orders} {ALL_TIME} GROUP BY {key})
            SELECT s.key, s.score FROM scored s LEFT JOIN scored higher
            ON s.window_end = higher.window_end AND s.one = higher.one AND higher.score > s.score
            GROUP BY s.key, s.score HAVING COUNT(higher.key) < 5
        """)
        for key, score in RANKINGS
    ]  # fmt: skip
    printed = [(1000001, 100001, 3, 993.99), (1000001, 100002, 3, 751.99), (1000001, 100003, 4, 433.99)]
    made = [
        (1000002 + number // 3, 100001 + draw.randrange(30), draw.randrange(1, 9), draw.randrange(100, 99999) / 100)
        for number in range(500)
    ]
    states = ["FM"] * len(printed) + draw.choices(["FM", "OR", "ID", "CA", "NY", "TX", "WA", "ME"], k=len(made))
    rows = [
        row | {"dt": "2020-06-25", "state": state}
        for row, state in zip(records("orderid, itemid, qty, price", [*printed, *made]), states, strict=True)
    ]
    push(api, orders, rows)
    end(api, orders)
    with connected() as duck:
        duck.register("made", pa.Table.from_pylist(rows))
        duck.execute("CREATE TEMP VIEW orders AS SELECT * REPLACE (price::DECIMAL(8,2) AS price) FROM made")
        for (key, score), query in zip(RANKINGS, queries, strict=True):
            top_5 = f"""
                SELECT {key} AS key, {score}::DOUBLE AS score FROM orders GROUP BY 1
                QUALIFY RANK() OVER (ORDER BY score DESC) <= 5
            """
            check(duck, top_5, finished_rows(api, query))
