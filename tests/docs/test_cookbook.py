"""The recipes of docs/cookbook.md run as printed, on a real service, broker, PostgreSQL and webhook."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.docs.commands import SECONDS, check, environment_of
from tests.docs.pages import TOP, fences, printed_commands
from tests.kit.client import Api
from tests.kit.kafka import Broker, create_topic
from tests.kit.servers import Postgres
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.kit.webhook import receiving

PAGE = (TOP / "docs" / "cookbook.md").read_text(encoding="utf-8")
_, CSV, FILES, TOPIC, FRAME = PAGE.split("\n## ")


def blocks(recipe: str, language: str) -> list[str]:
    return [block for found, block in fences(recipe) if found == language]


def run_commands(recipe: str, service: RunningService, folder: Path, addresses: dict[str, str]) -> None:
    for command in printed_commands(recipe):
        text = command.text
        for printed, real in addresses.items():
            text = text.replace(printed, real)
        check(replace(command, text=text), environment_of(service.url), folder)


@pytest.fixture(autouse=True)
def _nothing_stays(api: Api) -> Iterator[None]:
    yield
    for declared in api.call("GET", "/streams", 200)["streams"]:
        if declared["name"] in ("shop", "departures", "orders", "taps"):
            api.call("DELETE", f"/streams/{declared['name']}?cascade=true", 204)


@pytest.mark.service
def test_answers_of_a_csv(service: RunningService, tmp_path: Path) -> None:
    run_commands(CSV, service, tmp_path, {})


@pytest.mark.service
def test_a_year_of_a_folder(service: RunningService, tmp_path: Path) -> None:
    run_commands(FILES, service, tmp_path, {})


@pytest.mark.service
def test_a_table_for_a_dashboard_of_a_topic(
    service: RunningService, broker: Broker, postgres: Postgres, tmp_path: Path
) -> None:
    (messages,) = blocks(TOPIC, "json")
    create_topic(broker.servers, "orders", 1)
    broker.produce("orders", [line.encode() for line in messages.splitlines()])
    url = "postgresql://postgres@localhost:5432/postgres"
    run_commands(TOPIC, service, tmp_path, {"localhost:9092": broker.servers, url: postgres.url})
    (panel,) = blocks(TOPIC, "sql")
    panel = panel.replace("$__timeFilter(window_end)", "window_end > '2026-01-01'")

    def series() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.url) as connection:
            if connection.execute("SELECT to_regclass('revenue')").fetchone() == (None,):
                return []
            return [row[1:] for row in connection.execute(panel.encode()).fetchall()]

    shown = [("Berlin", 12.0), ("Lisbon", 12.0)]
    wait_until(lambda: sorted(series()) == shown, SECONDS, lambda: f"the panel shows {shown}; it shows {series()}")


@pytest.mark.service
def test_alerts_of_a_frame(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_URL", service.url)
    names: dict[str, Any] = {}
    with receiving() as receiver:
        for block in blocks(FRAME, "python"):
            exec(block.replace("http://localhost:9000/alerts", receiver.url), names)
        wait_until(lambda: receiver.rows, SECONDS, lambda: f"an alert comes; {names['alert'].describe()}")
        assert {(row["device"], row["mean"]) for _, row in receiver.rows} <= {("b", 4.4), ("b", 4.5)}
        names["alert"].drop(drain=False)
    names["braid"].close()
