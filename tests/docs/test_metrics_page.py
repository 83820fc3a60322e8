"""The page on monitoring describes every metric that a service has, and no other."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.docs.pages import TOP
from tests.kit.service import RunningService

PAGE = (TOP / "docs" / "monitoring.md").read_text(encoding="utf-8")
ON_SETTINGS_ONLY = {"braid_executors_wanted"}  # with executors_max


@pytest.mark.service
def test_the_page_has_the_metrics_of_a_service(service: RunningService) -> None:
    exposed = set(re.findall(r"^# TYPE (braid_\w+)", httpx.get(f"{service.url}/metrics").text, re.MULTILINE))
    table = PAGE[PAGE.index("## Metrics") : PAGE.index("## Dashboards")]
    described = {
        name for row in re.findall(r"^\| (`braid_.*?) \|", table, re.MULTILINE) for name in row.split("`")[1::2]
    }
    assert described - ON_SETTINGS_ONLY == exposed
