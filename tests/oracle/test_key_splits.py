"""A running service splits the one key that all tuples have, and the rows of its join do not show it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

TIMES = 90
SIZE = timedelta(milliseconds=500)
WINDOWS = 6


def pairs_of(prices: list[float]) -> list[tuple[float, float]]:
    """Return what the join has of the tuples of a window."""
    low, high = np.sort(np.array(prices)), np.array(prices)
    return sorted((one, other) for one in high.tolist() for other in low[low < one / TIMES].tolist())


def test_a_key_is_split_and_rows_stay_the_same(fresh_service: FreshService) -> None:
    with Api(fresh_service(BRAID_REOPTIMIZE_SECONDS="1", BRAID_LANES="2").url) as api:
        api.create_stream(
            "CREATE STREAM purchases (user_id BIGINT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'generator', rate = '6000', keys = '1')"
        )
        window = f"[RANGE {SIZE // timedelta(milliseconds=1)} MILLISECONDS]"
        join = (
            f"SELECT p.price AS one, q.price AS other FROM purchases {window} AS p JOIN purchases {window} AS q"
            f" ON p.user_id = q.user_id WHERE p.price / {TIMES} > q.price"
        )
        bodies = [{"sql": "SELECT price, time FROM purchases"}, {"sql": join}]
        tuples, joined = (query["id"] for query in api.create_queries(bodies))
        cursors: dict[str, str | None] = {tuples: None, joined: None}
        prices: dict[datetime, list[float]] = {}
        rows: dict[datetime, list[tuple[float, float]]] = {}
        partial: set[datetime] = set()

        def read(query: str) -> list[dict[str, Any]]:
            page = api.page(query, cursors[query])
            cursors[query] = page["cursor"]
            found: list[dict[str, Any]] = page["rows"]
            return found

        def take_rows() -> None:
            while found := read(joined):
                for row in found:
                    start = datetime.fromisoformat(row["window_start"])
                    rows.setdefault(start, []).append((float(row["one"]), float(row["other"])))
                    if row["_partial"]:
                        partial.add(start)

        def splits() -> list[dict[str, Any]]:
            take_rows()
            (node,) = (node for node in api.request("GET", "/plan").json()["nodes"] if node["kind"] == "join")
            return [node["split"]] if "split" in node else []

        (split,) = wait_until(splits, 120, "the key is split")
        assert split == {"keys": 1, "spread": "purchases"}
        (change,) = (each for each in api.request("GET", "/plan").json()["changes"] if each["kind"] == "split")
        assert (change["keys"], change["estimated_cores"]["after"] < change["estimated_cores"]["before"]) == (1, True)
        (told,) = (each for each in api.request("GET", "/changelogs").json()["changelogs"] if each["split"])
        assert told["split"] == [{"operator": change["operator"], "keys": 1}]
        began = datetime.fromisoformat(told["created_at"])

        def have_rows() -> bool:
            take_rows()
            return sum(start > began for start in rows) >= WINDOWS

        wait_until(have_rows, 60, "windows come after the key was split")
        last = max(rows)

        def have_tuples() -> bool:
            found = read(tuples)
            for row in found:
                at = datetime.fromisoformat(row["time"])
                prices.setdefault(at - (at - datetime.min.replace(tzinfo=at.tzinfo)) % SIZE, []).append(
                    float(row["price"])
                )
            return max(prices) > last

        wait_until(have_tuples, 60, "all tuples of the windows are read")
        whole = [start for start in prices if min(rows) <= start < last and start not in partial]
        assert sum(start < began for start in whole) >= 1
        assert sum(start > began for start in whole) >= WINDOWS - 1
        for start in whole:
            assert sorted(rows.get(start, [])) == pairs_of(prices[start]), start
