"""Load for a service, so that every metric has something to tell: streams, queries that stay, come and go, a sink."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.kit.client import Api

STREAM = """CREATE STREAM {} (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)
    WITH (connector = 'generator', dataset = '{}', rate = '1000')"""
SUMS = "SELECT gem_pack, SUM(price) AS revenue FROM purchases [RANGE 1 SECONDS] WHERE price > {} GROUP BY gem_pack"
JOIN = """SELECT p.user_id, p.price FROM purchases [RANGE 1 SECONDS] AS p, ads [RANGE 1 SECONDS] AS a
    WHERE p.user_id = a.user_id AND p.gem_pack = a.gem_pack AND p.price > 50"""
WAIT_SECONDS = 60


class Load:
    """Runs from `start` to `stop`; `delivered` is the query whose rows go to a sink."""

    def __init__(self, url: str, rows: Path) -> None:
        self._api = Api(url)
        self._rows = rows
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.delivered = ""

    def start(self) -> None:
        """Declare the streams, register the queries that stay, and begin to read, create and retire."""
        for stream in ("purchases", "ads"):
            self._api.create_stream(STREAM.format(stream, stream))
        sink = {"connector": "file", "path": str(self._rows), "flush_seconds": 0.2}
        bodies = [
            {"sql": SUMS.format(5), "name": "sums", "sink": sink, "labels": {"team": "games"}},
            {"sql": SUMS.format(50), "name": "read"},
            {"sql": JOIN, "name": "joined"},
            {"sql": "SELECT user_id, price FROM purchases WHERE price > 99", "name": "selected"},
        ]
        made = self._api.create_queries(bodies, wait=WAIT_SECONDS)
        self.delivered, self._read = made[0]["id"], made[1]["id"]
        self._thread.start()

    def _run(self) -> None:
        cursor = None
        while not self._stopping.is_set():
            (query,) = self._api.create_queries([{"sql": SUMS.format(20)}], wait=0)
            cursor = self._api.page(self._read, after=cursor, wait=1)["cursor"]
            self._api.delete_query(query["id"], drain=False)

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()
