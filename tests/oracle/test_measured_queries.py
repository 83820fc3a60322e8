"""What a running service tells of its queries: how much they select of what comes, and what they take of the work."""

from __future__ import annotations

import itertools
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kit.client import Api
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

START = datetime(2026, 1, 1, tzinfo=UTC)


def time_of(n: int) -> str:
    """Return the event time of a tuple by its number: one comes every 10 ms."""
    return f"{START + timedelta(milliseconds=10 * n):%FT%T.%f}"


def test_a_plan_tells_selectivity_and_cost(api: Api) -> None:
    name = f"readings_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'push')"
    )
    select = f"SELECT device, COUNT(*) AS n FROM {name} [RANGE 1 SECOND] WHERE volts < {{}} GROUP BY device"
    query, other_query = (
        answer["id"] for answer in api.create_queries([{"sql": select.format(limit)} for limit in (25, 70)])
    )
    api.wait_state(query, "RUNNING")
    numbers = itertools.count()

    def statistics(path: str = f"/queries/{query}/plan") -> dict[str, Any]:
        measured: dict[str, Any] = api.request("GET", path).json()["statistics"]
        return measured

    def has_told() -> bool:
        lines = "\n".join(
            json.dumps({"device": n % 3, "volts": n % 100, "time": time_of(n)}) for n in itertools.islice(numbers, 100)
        )
        api.push(name, "application/x-ndjson", lines.encode())
        return statistics()["cores"] is not None and statistics()["sampled_tuples"][name] >= 100

    wait_until(has_told, 90, "a process tells of its work and its tuples")
    measured = statistics()
    assert measured["selectivity"][name] == pytest.approx(0.25, abs=0.15)
    assert measured["tuples_per_second"][name] > 0
    assert measured["cores"] > 0
    assert 0 < measured["cost_share"] <= 1
    assert statistics(f"/queries/{other_query}/plan")["selectivity"][name] == pytest.approx(0.7, abs=0.15)
    answer = api.request("POST", "/queries/validate", json={"sql": select.format(50)}).json()
    assert answer["statistics"]["selectivity"][name] == pytest.approx(0.5, abs=0.15)
    assert answer["statistics"]["cores"] is None
    operators = [node for node in api.request("GET", "/plan").json()["nodes"] if "statistics" in node]
    (operator,) = (node for node in operators if name in node["streams"])
    assert operator["statistics"]["source_cores"] > 0
    assert operator["statistics"]["distinct_keys"] == 3


def test_a_plan_tells_what_a_join_costs(api: Api) -> None:
    names = [f"{kind}_{uuid.uuid4().hex[:8]}" for kind in ("readings", "alarms")]
    for name in names:
        api.create_stream(
            f"CREATE STREAM {name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'push')"
        )
    big_stream, small_stream = names
    select = f"SELECT r.volts FROM {big_stream} [RANGE 2 SECONDS] AS r JOIN {small_stream} [RANGE 2 SECONDS] AS a"
    select += " USING (device) WHERE r.volts >= 0"
    (query,) = (answer["id"] for answer in api.create_queries([{"sql": select}]))
    api.wait_state(query, "RUNNING")
    numbers, devices = itertools.count(), 20

    def has_told() -> bool:
        lines = [
            json.dumps({"device": n % devices, "volts": n % 100, "time": time_of(n)})
            for n in itertools.islice(numbers, 100)
        ]
        api.push(big_stream, "application/x-ndjson", "\n".join(lines).encode())
        api.push(small_stream, "application/x-ndjson", "\n".join(lines[::50]).encode())
        plan = api.request("GET", f"/queries/{query}/plan").json()
        orders.append(plan["join_order"])
        sampled = plan["statistics"]["sampled_tuples"]["r"]
        return bool(orders[-1]["cost"] and orders[-1]["partition_cores"] and sampled >= 5 * devices)

    orders: list[dict[str, Any]] = []
    wait_until(has_told, 90, "a process tells of its work and its tuples")
    order = orders[-1]
    assert order["order"] == ["a", "r"]
    assert order["combinations"] == "counted"
    distinct = {entry["input"]: entry["distinct_keys"]["device"] for entry in order["inputs"]}
    assert distinct["r"] == pytest.approx(devices, rel=0.5)
    assert order["cost"] >= sum(entry["tuples"] for entry in order["inputs"]) * 0.99
