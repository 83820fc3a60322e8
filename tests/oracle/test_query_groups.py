"""A running service arranges queries in groups by what it measures, and their rows do not show it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long]

CLUSTERS = 10
USERS = 10_000
QUERIES = 300
WINDOWS = 3


def of_users(number: int, more_conditions: str = "") -> dict[str, Any]:
    """Return a query of a tenth of the users."""
    low = number % CLUSTERS * USERS // CLUSTERS
    high = low + USERS // CLUSTERS
    return {
        "sql": "SELECT user_id, COUNT(*) AS n, SUM(gem_pack) AS packs FROM purchases [RANGE 1 SECOND]"
        f" WHERE user_id >= {low} AND user_id < {high}{more_conditions} GROUP BY user_id"
    }


def test_queries_are_grouped_and_get_the_same_rows(fresh_service: FreshService) -> None:
    with Api(fresh_service(BRAID_REOPTIMIZE_SECONDS="1").url) as api:
        api.create_stream(
            "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
            " time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            f" WITH (connector = 'generator', rate = '2000000', keys = '{USERS}')"
        )
        rng = random.Random(1)
        # one column is tested, so this one has no group; the next selects the same, for all prices are below 1000
        bodies = [of_users(3), of_users(3, " AND price < 1000")]
        bodies += [of_users(n, f" AND price < {rng.randint(1, 99)}") for n in range(QUERIES)]
        ids = [query["id"] for query in api.create_queries(bodies)]
        alone, grouped = ids[:2]

        shown: dict[str, Any] = {}

        def is_grouped() -> bool:
            # groups that save nothing, on a busy machine, are undone two seconds later
            plan, dot = api.request("GET", f"/queries/{grouped}/plan").json(), api.request("GET", "/plan?format=dot")
            shown.update(plan=plan["group"], drawn=dot.text)
            return plan["group"] is not None and " query groups" in dot.text

        def what() -> str:
            last_result_at = api.query(grouped)["last_result_at"]
            changes = api.request("GET", "/plan").json()["changes"]
            return f"the optimizer groups queries; results came at {last_result_at}, the plan was changed by {changes}"

        wait_until(is_grouped, 600, what)
        assert shown["plan"]["number"] > 0
        assert shown["plan"]["queries"] > 1
        changes = api.request("GET", "/plan").json()["changes"]
        change = next(change for change in changes if change["kind"] == "holistic")
        assert change["estimated_cores"]["after"] < change["estimated_cores"]["before"]
        assert f"{len(ids) - 1} queries in" in change["why"]
        assert api.query(alone)["group"] is None
        changelogs = api.request("GET", "/changelogs").json()["changelogs"]
        regroupings = [c for c in changelogs if any(r["id"] == grouped for r in c["regrouped"])]
        assert regroupings
        assert all("regrouped" in changelog["why"] for changelog in regroupings)
        began = api.query(grouped)["last_result_at"]
        rows: dict[str, dict[str, list[Any]]] = {alone: {}, grouped: {}}
        cursors: dict[str, str | None] = dict.fromkeys(rows)

        def have_rows() -> bool:
            for query in rows:
                page = api.page(query, cursors[query])
                cursors[query] = page["cursor"]
                for row in page["rows"]:
                    if not row["_partial"]:
                        rows[query].setdefault(row["window_start"], []).append((row["user_id"], row["n"], row["packs"]))
            common_starts = rows[alone].keys() & rows[grouped].keys()
            return sum(start > began for start in common_starts) >= WINDOWS

        wait_until(have_rows, 300, "windows come after queries were grouped")
        for start in rows[alone].keys() & rows[grouped].keys():
            assert sorted(rows[alone][start]) == sorted(rows[grouped][start]), start
