"""A running service splits the one key that all tuples have, and the rows and groups of its joins do not show it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long]

TIMES = 90
SIZE = timedelta(milliseconds=500)
WINDOWS = 6


Purchases = list[tuple[float, int]]
"""Prices and gem packs."""


def pairs_of(purchases: Purchases) -> list[tuple[float, float]]:
    """Return what the join has of the tuples of a window."""
    prices = np.array([price for price, _ in purchases])
    low = np.sort(prices)
    return sorted((high, low_price) for high in prices.tolist() for low_price in low[low < high / TIMES].tolist())


def groups_of(purchases: Purchases) -> list[tuple[int, int, float]]:
    """Return the groups of the join by the gem pack of the first: how many, and the highest price of the second."""
    groups: dict[int, list[float]] = {}
    low = np.sort(np.array([price for price, _ in purchases]))
    for high, pack in purchases:
        groups.setdefault(pack, []).extend(low[low < high / TIMES].tolist())
    return sorted((pack, len(low_prices), max(low_prices)) for pack, low_prices in groups.items() if low_prices)


def test_a_key_is_split_and_rows_stay_the_same(fresh_service: FreshService) -> None:
    with Api(fresh_service(BRAID_REOPTIMIZE_SECONDS="1", BRAID_PARTITIONS="2").url) as api:
        api.create_stream(
            "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
            " time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'generator', rate = '6000', keys = '1')"
        )
        window = f"[RANGE {SIZE // timedelta(milliseconds=1)} MILLISECONDS]"
        join = (
            f"FROM purchases {window} AS p JOIN purchases {window} AS q"
            f" ON p.user_id = q.user_id WHERE p.price / {TIMES} > q.price"
        )
        pairs = f"SELECT p.price AS one, q.price AS other {join}"
        groups = (
            f"SELECT p.user_id, p.gem_pack AS pack, COUNT(*) AS pairs, MAX(q.price) AS highest {join}"
            " GROUP BY p.user_id, p.gem_pack"
        )
        bodies = [{"sql": text} for text in ("SELECT gem_pack, price, time FROM purchases", pairs, groups)]
        tuples, joined, grouped = (query["id"] for query in api.create_queries(bodies))
        cursors: dict[str, str | None] = {tuples: None, joined: None, grouped: None}
        purchases: dict[datetime, Purchases] = {}
        rows: dict[datetime, list[tuple[float, float]]] = {}
        packs: dict[datetime, list[tuple[int, int, float]]] = {}
        partial: set[datetime] = set()

        def read(query: str) -> list[dict[str, Any]]:
            page = api.page(query, cursors[query])
            cursors[query] = page["cursor"]
            rows_read: list[dict[str, Any]] = page["rows"]
            return rows_read

        def take_rows() -> None:
            while found := read(joined):
                for row in found:
                    start = datetime.fromisoformat(row["window_start"])
                    rows.setdefault(start, []).append((float(row["one"]), float(row["other"])))
                    if row["_partial"]:
                        partial.add(start)
            while found := read(grouped):
                for row in found:
                    start = datetime.fromisoformat(row["window_start"])
                    packs.setdefault(start, []).append((row["pack"], int(row["pairs"]), float(row["highest"])))

        def plan_of_split() -> dict[str, Any] | None:
            """Return the plan once it tells of a split: it does so after the split is made."""
            take_rows()
            plan: dict[str, Any] = api.request("GET", "/plan").json()
            return plan if any(change["kind"] == "split" for change in plan["changes"]) else None

        plan = wait_until(plan_of_split, 120, "the key is split")
        (node,) = (node for node in plan["nodes"] if node["kind"] == "join")
        assert node["split"] == {"keys": 1, "spread": "purchases", "by": ["gem_pack"]}
        (change,) = (entry for entry in plan["changes"] if entry["kind"] == "split")
        assert (change["keys"], change["estimated_cores"]["after"] < change["estimated_cores"]["before"]) == (1, True)
        (changelog,) = (entry for entry in api.request("GET", "/changelogs").json()["changelogs"] if entry["split"])
        assert changelog["split"] == [{"operator": change["operator"], "keys": 1}]
        began = datetime.fromisoformat(changelog["created_at"])

        def have_rows() -> bool:
            take_rows()
            return all(sum(start > began for start in found) >= WINDOWS for found in (rows, packs))

        wait_until(have_rows, 300, "windows come after the key was split")
        last = min(max(rows), max(packs))

        def have_tuples() -> bool:
            found = read(tuples)
            for row in found:
                at = datetime.fromisoformat(row["time"])
                purchases.setdefault(at - (at - datetime.min.replace(tzinfo=at.tzinfo)) % SIZE, []).append(
                    (float(row["price"]), row["gem_pack"])
                )
            return max(purchases) > last

        wait_until(have_tuples, 300, "all tuples of the windows are read")
        complete = [start for start in purchases if min(rows) <= start < last and start not in partial]
        assert sum(start < began for start in complete) >= 1
        assert sum(start > began for start in complete) >= WINDOWS - 1
        for start in complete:
            assert sorted(rows.get(start, [])) == pairs_of(purchases[start]), start
            assert sorted(packs.get(start, [])) == groups_of(purchases[start]), start
