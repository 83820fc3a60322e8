"""Make a data folder by the service of an earlier version, to be kept as a fixture of `test_earlier_versions.py`.

``.venv/bin/python tests/oracle/data_of_earlier_versions/make.py CHECKOUT`` takes a checkout of that version, set up by
its own ``make setup``, and writes ``COMMIT.tar.gz``, the data folder as SIGTERM left it, and ``COMMIT.json``: streams,
queries, each with what DuckDB is asked instead, and the tuples pushed. It speaks REST only, and imports nothing of the
project. The windows of the last tuples are open.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

SECONDS = 120
STREAMS = {
    "bids": "CREATE STREAM bids (item BIGINT, price BIGINT, time TIMESTAMP LATENESS INTERVAL '2' SECOND)"
    " WITH (connector = 'push', format = 'json')",
    "asks": "CREATE STREAM asks (item BIGINT, asked BIGINT, time TIMESTAMP LATENESS INTERVAL '2' SECOND)"
    " WITH (connector = 'push', format = 'json')",
}
TABLE = "CREATE TABLE packs (item BIGINT, name VARCHAR) WITH (connector = 'file', path = '{}', format = 'csv')"
PACKS = [(0, "none"), (1, "handful"), (2, "sack")]
TUMBLE = "time_bucket(INTERVAL 10 SECOND, {}time) AS window_start"
GROUPED = (
    f"SELECT {TUMBLE.format('')}, window_start + INTERVAL 10 SECOND AS window_end, item, SUM(price)::BIGINT AS total,"
    " COUNT(*) AS n FROM bids GROUP BY ALL"
)
PAIRS = (
    f"SELECT {TUMBLE.format('b.')}, window_start + INTERVAL 10 SECOND AS window_end, {{}}"
    " FROM bids b {} JOIN asks a ON a.item = b.item"
    " AND time_bucket(INTERVAL 10 SECOND, a.time) = time_bucket(INTERVAL 10 SECOND, b.time) {}"
)
QUERIES = {
    "selection": ("SELECT item, price * 2 AS twice FROM bids WHERE price > 30",) * 2,
    "retired": ("SELECT item, price FROM bids WHERE price <= 10",) * 2,
    "lookup": ("SELECT b.price, p.name FROM bids AS b LEFT JOIN packs AS p ON b.item = p.item WHERE b.item >= 0",) * 2,
    "sliding": (
        "SELECT item, SUM(price) AS total, MIN(price) AS least, AVG(price) AS mean, COUNT(*) AS n"
        " FROM bids [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY item HAVING COUNT(*) > 1",
        "SELECT time_bucket(INTERVAL 5 SECOND, time) - INTERVAL (5 * back) SECOND AS window_start,"
        " window_start + INTERVAL 10 SECOND AS window_end, item, SUM(price)::BIGINT AS total, MIN(price) AS least,"
        " AVG(price) AS mean, COUNT(*) AS n FROM bids, range(2) AS before(back) GROUP BY ALL HAVING n > 1",
    ),
    "session": (
        "SELECT item, COUNT(*) AS n, MAX(price) AS most FROM bids [SESSION 3 SECONDS] GROUP BY item",
        "WITH begun AS (SELECT *, COALESCE(time - LAG(time) OVER each >= INTERVAL 3 SECOND, FALSE) AS begins FROM bids"
        " WINDOW each AS (PARTITION BY item ORDER BY time)), numbered AS (SELECT *, COUNT_IF(begins) OVER"
        " (PARTITION BY item ORDER BY time) AS number FROM begun) SELECT MIN(time) AS window_start,"
        " MAX(time) + INTERVAL 3 SECOND AS window_end, item, COUNT(*) AS n, MAX(price) AS most FROM numbered"
        " GROUP BY item, number",
    ),
    "pairs": (
        "SELECT b.item, b.price, a.asked FROM bids [RANGE 10 SECONDS] AS b"
        " JOIN asks [RANGE 10 SECONDS] AS a ON b.item = a.item WHERE b.price > a.asked",
        PAIRS.format("b.item, b.price, a.asked", "", "WHERE b.price > a.asked"),
    ),
    "matched": (
        "SELECT b.item, COUNT(*) AS n, COUNT(a.asked) AS matched FROM bids [RANGE 10 SECONDS] AS b"
        " LEFT JOIN asks [RANGE 10 SECONDS] AS a ON b.item = a.item GROUP BY b.item",
        PAIRS.format("b.item, COUNT(*) AS n, COUNT(a.asked) AS matched", "LEFT", "GROUP BY ALL"),
    ),
    "changes": (
        "SELECT item, SUM(price) AS total, COUNT(*) AS n FROM bids [RANGE 10 SECONDS] GROUP BY item EMIT STREAM",
        GROUPED,
    ),
    "distinct": (
        "SELECT COUNT(DISTINCT item) AS items, COUNT(DISTINCT price) AS prices FROM bids [RANGE 10 SECONDS]",
        f"SELECT {TUMBLE.format('')}, window_start + INTERVAL 10 SECOND AS window_end, COUNT(DISTINCT item) AS items,"
        " COUNT(DISTINCT price) AS prices FROM bids GROUP BY window_start",
    ),
}
ENVIRONMENT = {"BRAID_CHANGELOG_TIMEOUT_SECONDS": "0.1", "BRAID_PARTITIONS": "2", "BRAID_MASTER": "local[2]"}

Row = dict[str, Any]


def tuples(second: int) -> dict[str, list[Row]]:
    """Return what is pushed to each stream for a second; some items pause, so that their sessions end."""
    time = f"2026-01-01T12:{second // 60:02d}:{second % 60:02d}Z"
    bids = [
        {"item": item, "price": (7 * second + 13 * item) % 50, "time": time}
        for item in range(6)
        if (second // (item + 1)) % 2 == 0
    ]
    asks = [
        {"item": item, "asked": (11 * second + item) % 40, "time": time} for item in range(1, 8) if second % item == 0
    ]
    return {"bids": bids, "asks": asks}


def wait(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"within {SECONDS} s must hold: {what}")
        time.sleep(0.1)


def main(checkout: Path) -> None:
    """Make the fixture."""
    here = Path(__file__).parent
    commit = subprocess.check_output(["git", "rev-parse", "--short=7", "HEAD"], cwd=checkout, text=True).strip()
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [checkout / ".venv/bin/python", "-m", "braid.api.cli.main", "serve", "--port", str(port)]
        service = subprocess.Popen(
            [*command, "--data-dir", folder / "data"], cwd=checkout, env={**os.environ, **ENVIRONMENT}
        )
        try:
            made = fill(f"http://127.0.0.1:{port}", folder)
        finally:
            service.terminate()
            service.wait()
        (here / f"{commit}.json").write_text(json.dumps({"environment": ENVIRONMENT, **made}, indent=1) + "\n")
        with tarfile.open(here / f"{commit}.tar.gz", "w:gz") as archive:
            for path in sorted((folder / "data").iterdir()):
                if path.name != "logs":
                    archive.add(path, f"data/{path.name}")


def fill(url: str, folder: Path) -> Row:
    """Create streams and queries, push, retire a query; return what the test is to know of it."""
    with httpx.Client(base_url=url, timeout=60) as client:

        def is_ready() -> bool:
            try:
                return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        def post(path: str, body: Any) -> Any:
            answer = client.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        wait(is_ready, "the service is ready")
        for sql in STREAMS.values():
            post("/streams", {"sql": sql})
        (folder / "packs.csv").write_text("item,name\n" + "".join(f"{item},{name}\n" for item, name in PACKS))
        post("/tables", {"sql": TABLE.format(folder / "packs.csv")})
        ids = {name: post("/queries?wait=60", {"sql": sql, "name": name})["id"] for name, (sql, _) in QUERIES.items()}
        pushed: dict[str, list[Row]] = {name: [] for name in STREAMS}

        def push(second: int) -> None:
            for stream, rows in tuples(second).items():
                if rows:
                    post(f"/streams/{stream}/events", rows)
                    pushed[stream] += rows

        def are_read() -> bool:
            return all(client.get(f"/streams/{stream}").json()["tuples"] == len(pushed[stream]) for stream in STREAMS)

        for second in range(13):
            push(second)
        wait(are_read, "all tuples are read")
        client.delete(f"/queries/{ids['retired']}").raise_for_status()
        wait(lambda: client.get(f"/queries/{ids['retired']}").json()["active_to"].get("bids"), "its end is known")
        end = client.get(f"/queries/{ids['retired']}").json()["active_to"]["bids"]
        for second in range(13, 26):
            push(second)
        wait(are_read, "all tuples are read")
        wait(lambda: client.get(f"/queries/{ids['retired']}").json()["state"] == "RETIRED", "it is RETIRED")
        queries = [
            {"name": name, "id": ids[name], "sql": sql, "duckdb": expected} for name, (sql, expected) in QUERIES.items()
        ]
        return {"streams": STREAMS, "packs": PACKS, "queries": queries, "retired_to": end, "tuples": pushed}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
