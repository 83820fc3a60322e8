"""Load for a service, so that every metric has something to tell: streams, queries that stay, come and go, a sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.client import Api

STREAMS = [
    f"""CREATE STREAM {name} (user_id BIGINT, gem_pack INT, {column} time TIMESTAMP LATENESS INTERVAL '0' SECOND)
    WITH (connector = 'generator', dataset = '{name}', rate = '1000')"""
    for name, column in (("purchases", "price DOUBLE,"), ("ads", ""))
]
SUMS = "SELECT gem_pack, SUM(price) AS revenue FROM purchases [RANGE 1 SECONDS] WHERE price > {} GROUP BY gem_pack"
JOIN = """SELECT p.user_id, p.price FROM purchases [RANGE 1 SECONDS] AS p, ads [RANGE 1 SECONDS] AS a
    WHERE p.user_id = a.user_id AND p.gem_pack = a.gem_pack AND p.price > 50"""
WAIT_SECONDS = 120


@contextmanager
def loaded(url: str, rows: Path) -> Iterator[str]:
    """Load a service, and return the id of the query `sums`, whose rows go to a sink in a folder."""
    with Api(url) as api:
        for stream in STREAMS:
            api.create_stream(stream)
        sink = {"connector": "file", "path": str(rows), "flush_seconds": 0.2}
        bodies = [
            {"sql": SUMS.format(5), "name": "sums", "sink": sink, "labels": {"team": "games"}},
            {"sql": SUMS.format(50), "name": "read"},
            {"sql": JOIN, "name": "joined"},
            {"sql": "SELECT user_id, price FROM purchases WHERE price > 99", "name": "selected"},
        ]
        delivered, read = [query["id"] for query in api.create_queries(bodies, wait=WAIT_SECONDS)][:2]
        stopping = threading.Event()
        thread = threading.Thread(target=_read_and_change, args=(api, read, stopping), name="load")
        thread.start()
        try:
            yield delivered
        finally:
            stopping.set()
            thread.join()


def _read_and_change(api: Api, read: str, stopping: threading.Event) -> None:
    """Follow the rows of a query while others come and go."""
    cursor = None
    while not stopping.is_set():
        (query,) = api.create_queries([{"sql": SUMS.format(20)}], wait=0)
        cursor = api.page(read, after=cursor, wait=1)["cursor"]
        api.delete_query(query["id"], drain=False)
