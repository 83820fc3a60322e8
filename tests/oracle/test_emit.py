"""EMIT AFTER DELAY through the service, while nothing comes (for the other forms see test_one_sql.py)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.waiting import wait_until
from tests.operators import nexmark
from tests.operators.nexmark import EIGHT

pytestmark = pytest.mark.service

BIDS = "(price INT, item VARCHAR, bidtime TIMESTAMP LATENESS INTERVAL '6' MINUTE) WITH (connector = 'push')"


class Auction:
    """A stream of bids, and queries 7 over it; each tuple is a batch of its own."""

    def __init__(self, api: Api, *emits: str) -> None:
        self.api = api
        self.stream = f"bid_{uuid.uuid4().hex[:12]}"
        self.pushed = 0
        api.create_stream(f"CREATE STREAM {self.stream} {BIDS}")
        source = f"{self.stream} [RANGE 10 MINUTES] WHERE item <> '{nexmark.MARK}'"
        self.queries = api.create_queries([{"sql": f"SELECT MAX(price) AS price FROM {source} {e}"} for e in emits])
        self._cursors: list[str | None] = [None] * len(emits)

    def bid(self, minute: int, price: int, item: str) -> None:
        """Push a bid, and wait until its batch is there."""
        time = f"2026-03-01T{minute // 60:02}:{minute % 60:02}:00Z"
        body = json.dumps({"price": price, "item": item, "bidtime": time})
        self.api.push(self.stream, "application/x-ndjson", body.encode())
        self.pushed += 1
        wait_until(
            lambda: self.api.stream(self.stream)["tuples"] == self.pushed, 60, f"{self.pushed} bids are taken in"
        )

    def news(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of a query since they were asked for last."""
        page = self.api.page(self.queries[number]["id"], after=self._cursors[number])
        self._cursors[number] = page["cursor"]
        rows: list[dict[str, Any]] = page["rows"]
        return rows


def test_a_delay_runs_out_while_nothing_comes(api: Api) -> None:
    delayed = "AFTER DELAY INTERVAL '1' SECOND"
    auction = Auction(api, f"EMIT STREAM {delayed}", f"EMIT {delayed}", f"EMIT {delayed} AND AFTER WATERMARK")
    auction.bid(EIGHT + 1, 2, "A")
    auction.bid(EIGHT + 2, 3, "B")
    rows_by_query: list[list[dict[str, Any]]] = [[], [], []]

    def come() -> bool:
        for number, rows in enumerate(rows_by_query):
            rows += auction.news(number)
        # where the delay ran out between the two bids, the first is told, too
        inserted = [[row["price"] for row in rows if row.get("_op") != "retract"] for rows in rows_by_query]
        return all(prices[-1:] == [3] for prices in inserted)

    wait_until(come, 30, "the delay of every query runs out")
    assert "_op" not in rows_by_query[1][0]
    counts_before = [len(rows) for rows in rows_by_query]
    auction.bid(EIGHT + 30, 100, nexmark.MARK)
    come()
    assert [len(rows) - n for rows, n in zip(rows_by_query, counts_before, strict=True)] == [0, 0, 1], (
        "only the last tells it again"
    )
    assert rows_by_query[2][-1] == rows_by_query[2][-2]
