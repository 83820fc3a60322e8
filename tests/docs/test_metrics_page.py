"""The page of metrics says what the code does, and a service exposes what the code says."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from braid.api.metrics.families import COUNTER, SECTIONS, Family
from docs.reference.metrics import PAGE, page
from tests.api.rest import ALL, open_rest, tuple_at
from tests.kit.service import RunningService

FAMILIES = {family.name: family for families in SECTIONS.values() for family in families}
ON_SETTINGS_ONLY = {"braid_executors", "braid_executors_wanted"}  # with a cluster, and with executors_max
ON_REQUEST_ONLY = {"tenant", "label_…"}  # with a tenant, and with labels


def exposed(text: str) -> dict[str, Metric]:
    """Return the families in Prometheus' text format by name."""
    read = text_string_to_metric_families(text)
    return {family.name + ("_total" if family.type == COUNTER else ""): family for family in read}


def labels(metric: Metric) -> set[str]:
    """Return the labels of the samples; those that users choose count as one."""
    names = {name for sample in metric.samples for name in sample.labels} - {"le"}
    return {"label_…" if name.startswith("label_") else name for name in names}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew with `make metrics`"


def test_each_metric_stands_once() -> None:
    every = [family.name for families in SECTIONS.values() for family in families]
    assert sorted(every) == sorted(set(every))


@pytest.mark.parametrize(("name", "kind"), [("braid_rows", "counter"), ("braid_rows_total", "gauge"), ("x", "untyped")])
def test_a_name_that_does_not_fit_its_type_is_refused(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=r"must be gauge|end with _total"):
        Family(name, kind, "Rows.")


def test_metrics_have_the_types_labels_and_meanings_of_the_page(tmp_path: Path) -> None:
    with open_rest(tmp_path / "data") as rest:
        rest.stream()
        sink = {"connector": "file", "path": str(tmp_path / "rows")}
        query = rest.query(ALL, name="all", labels={"team": "shop"}, sink=sink)
        rest.select([tuple_at(1)], [query["slot"]])
        found = exposed(rest.service.metrics.text().decode())
    assert found.keys() == FAMILIES.keys() - ON_SETTINGS_ONLY
    for name, metric in found.items():
        family = FAMILIES[name]
        assert (metric.type, metric.documentation) == (family.kind, family.meaning)
        assert labels(metric) <= set(family.labels), name
        assert not metric.samples or set(family.labels) - ON_REQUEST_ONLY <= labels(metric), name
    assert labels(found["braid_query_info"]) == {"query_id", "name", "label_…"}


@pytest.mark.service
def test_a_service_has_the_metrics_of_the_page(service: RunningService) -> None:
    text = httpx.get(f"{service.url}/metrics").text
    assert exposed(text).keys() | ON_SETTINGS_ONLY == FAMILIES.keys()
