"""A real Prometheus scrapes a service under load: every panel has data, every rule loads, and alerts come and go."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.kit.fixtures import ENVIRONMENT
from tests.kit.prometheus import Prometheus, promtool
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.monitoring.load import loaded

pytestmark = [pytest.mark.service, pytest.mark.long]

CHART = Path(__file__).resolve().parents[2] / "helm" / "braid"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
RULES = (CHART / "rules" / "braid.yaml").read_text(encoding="utf-8")
SECONDS = 240.0
# the rules as they are, but that they look back and wait for seconds
QUICK_RULES = re.sub(r"for: \d+m", "for: 2s", re.sub(r"\[\d+m\]", "[20s]", RULES))


@dataclass
class World:
    """A service under load, the id of its query that has a sink, and the Prometheus that scrapes it."""

    service: RunningService
    delivered: str
    prometheus: Prometheus


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("monitored")
    service = RunningService(folder / "data", folder / "service.log", ENVIRONMENT)
    prometheus = Prometheus(service.url, QUICK_RULES)  # skips before anything is started
    try:
        service.start()
        with loaded(service.url, folder / "rows") as delivered:
            yield World(service, delivered, prometheus)
    finally:
        prometheus.remove()
        service.end_everything()


def expressions(dashboard: dict[str, Any], query: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the expression of every target, with the variables' values put in."""
    values = {
        "namespace": ".*",
        "job": "braid",
        "stream": ".*",
        "top": "25",
        "query": query,
        "__rate_interval": "20s",
    }
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
            yield f"{panel['title']}: {target['legendFormat']}", expression


def has_data(prometheus: Prometheus, expression: str) -> bool:
    """Whether an expression gives a number now."""
    return any(math.isfinite(float(each["value"][1])) for each in prometheus.query(expression))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: str(path.stem))
def test_every_panel_has_data(world: World, path: Path) -> None:
    query = world.delivered if path.stem == "braid-query" else ".*"
    every = list(expressions(json.loads(path.read_text(encoding="utf-8")), query))
    missing = dict(every)
    assert len(missing) == len(every) > 10

    def all_seen() -> bool:
        for title in [title for title, expression in missing.items() if has_data(world.prometheus, expression)]:
            del missing[title]
        return not missing

    wait_until(all_seen, SECONDS, lambda: f"every expression gives numbers; these do not: {missing}")


def test_queries_are_told_by_their_names_and_labels(world: World) -> None:
    def named() -> list[dict[str, Any]]:
        info = '* on (query_id) group_left (name, label_team) braid_query_info{name="sums"}'
        return world.prometheus.query(f"sum by (query_id) (rate(braid_query_results_total[20s])) {info}")

    (found,) = wait_until(named, SECONDS, "the rows of a query come with its name")
    assert found["metric"] == {"query_id": world.delivered, "name": "sums", "label_team": "games"}


def test_the_tool_has_nothing_to_complain_about(world: World) -> None:
    text = httpx.get(f"{world.service.url}/metrics").content
    done = promtool("check", "metrics", text=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_rule_loads(world: World) -> None:
    wanted = set(re.findall(r"alert: (\w+)", RULES))
    health = lambda: {rule["name"]: rule["health"] for rule in world.prometheus.rules()}  # noqa: E731
    wait_until(lambda: health() == dict.fromkeys(wanted, "ok"), SECONDS, lambda: str(health()))


def test_no_progress_fires_while_the_job_is_frozen(world: World) -> None:
    alerts = world.prometheus.alerts
    wait_until(lambda: "BraidNoProgress" not in alerts(), SECONDS, "the job makes progress")
    frozen = driver_of(world.service)
    assert len(frozen) > 1, "the driver and its JVM"
    try:
        for process in frozen:
            os.kill(process.pid, signal.SIGSTOP)
        firing = lambda: alerts().get("BraidNoProgress") == "firing"  # noqa: E731
        wait_until(firing, SECONDS, lambda: f"BraidNoProgress fires, among {alerts()}")
    finally:
        for process in frozen:
            with suppress(ProcessLookupError):  # the watchdog ends what does not move
                os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: "BraidNoProgress" not in alerts(), SECONDS, lambda: f"it is over, in {alerts()}")


def driver_of(service: RunningService) -> list[psutil.Process]:
    """Return the processes of the Spark driver that a service runs, parents first."""
    job = json.loads((service.data_dir / "job.json").read_text(encoding="utf-8"))
    found = {}
    for root in (psutil.Process(job["pid"]), psutil.Process(job["jvm_pid"])):
        for process in (root, *root.children(recursive=True)):
            found[process.pid] = process
    assert os.getpid() not in found
    return list(found.values())
