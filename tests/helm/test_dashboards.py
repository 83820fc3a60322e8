"""Check the Grafana dashboards of the chart against the metrics that the service exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braid.api.metrics.families import COUNTER, GAUGE, HISTOGRAM, SECTIONS

DIRECTORY = Path(__file__).resolve().parents[2] / "helm" / "braid" / "dashboards"
DASHBOARDS = sorted(DIRECTORY.glob("*.json"))

ON_SETTINGS_ONLY = {"braid_executors", "braid_executors_wanted"}  # with a cluster, and with executors_max
FAMILIES = [each for families in SECTIONS.values() for each in families if each.name not in ON_SETTINGS_ONLY]
GAUGES = {family.name for family in FAMILIES if family.kind == GAUGE}
COUNTERS = {family.name for family in FAMILIES if family.kind == COUNTER}
# of each series that there is, the labels; those that users choose are not known
EXPORTED: dict[str, set[str]] = {
    f"{family.name}_bucket" if family.kind == HISTOGRAM else family.name: set(family.labels)
    | ({"le"} if family.kind == HISTOGRAM else set())
    for family in FAMILIES
}
# What Prometheus adds to every series.
TARGET_LABELS = {"namespace", "job"}

Json = dict[str, Any]


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.name)
def dashboard(request: pytest.FixtureRequest) -> Json:
    """Load each committed dashboard."""
    loaded = json.loads(request.param.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def panels(dashboard: Json) -> list[Json]:
    """Return the panels that show something: no rows."""
    return [each for each in dashboard["panels"] if each["type"] != "row"]


def expressions(dashboard: Json) -> Iterator[str]:
    """Yield every PromQL expression of the panels and the variables."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_every_metric_is_exported_and_used_by_its_kind(dashboard: Json) -> None:
    for expression in expressions(dashboard):
        for metric in re.findall(r"\bbraid_\w+", expression):
            assert metric in EXPORTED, f"{metric} in {expression}"
            if metric in GAUGES:
                assert f"rate({metric}" not in expression, f"{metric} is a gauge"
        for metric in re.findall(r"\brate\((\w+)", expression):
            assert metric in COUNTERS or metric.endswith("_bucket"), f"rate of {metric}"


def test_every_exported_metric_is_shown() -> None:
    dashboards = [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]
    every = (expression for each in dashboards for expression in expressions(each))
    shown = {metric for each in every for metric in re.findall(r"\bbraid_\w+", each)}
    assert EXPORTED.keys() <= shown


def test_every_label_is_one_that_the_metric_has(dashboard: Json) -> None:
    for expression in expressions(dashboard):
        for metric, matchers in re.findall(r"\b(braid_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert labels <= EXPORTED[metric] | TARGET_LABELS, expression
        for grouping in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouping.split(", ")) <= set().union(*EXPORTED.values()), expression


def test_every_panel_says_what_it_shows(dashboard: Json) -> None:
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)
    for panel in panels(dashboard):
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        assert all(target["legendFormat"] for target in panel["targets"])


def test_panels_fill_the_grid_without_overlap(dashboard: Json) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        cells = {(grid["x"] + i, grid["y"] + j) for i in range(grid["w"]) for j in range(grid["h"])}
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
    height = max(y for _, y in taken) + 1
    assert len(taken) == 24 * height, "a line of panels leaves a gap"


def test_every_variable_that_is_used_exists(dashboard: Json) -> None:
    known = {variable["name"] for variable in dashboard["templating"]["list"]}
    text = json.dumps(dashboard["panels"]) + json.dumps([each.get("query") for each in dashboard["templating"]["list"]])
    used = {name for name in re.findall(r"\$\{?(\w+)", text) if not name.startswith("__")}
    assert used <= known
    assert known <= used, "a choice that changes nothing"


@pytest.mark.parametrize(("name", "several"), [("braid-query", False), ("braid-streams-and-sinks", True)])
def test_query_variable_shows_names_and_takes_ids(name: str, several: bool) -> None:
    dashboard = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    (variable,) = [each for each in dashboard["templating"]["list"] if each["name"] == "query"]
    assert (variable["multi"], variable["includeAll"]) == (several, several)
    pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))

    def read(series: str) -> tuple[str | None, str]:
        match = pattern.search(series)
        assert match is not None
        return match["text"], match["value"]

    line = 'braid_query_info{container_name="c",instance="i",job="braid",name="revenue",query_id="q1"} 1 1700000000'
    assert read(line) == ("revenue", "q1")
    # Prometheus drops an empty label; Grafana then shows the value.
    assert read('braid_query_info{container_name="c",job="braid",query_id="q2"} 1 1700000000') == (None, "q2")


def test_dashboards_lead_to_each_other(dashboard: Json) -> None:
    assert dashboard["tags"] == ["braid"]
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == ("dashboards", ["braid"], True, True)
    uids = {path.stem for path in DASHBOARDS}
    assert dashboard["uid"] in uids
    assert set(re.findall(r"/d/([\w-]+)", json.dumps(dashboard["panels"]))) <= uids


def test_a_query_in_a_table_leads_to_its_dashboard() -> None:
    overview = json.loads((DIRECTORY / "braid-overview.json").read_text(encoding="utf-8"))
    (table,) = [panel for panel in overview["panels"] if panel["type"] == "table"]
    links = [each for of in table["fieldConfig"]["overrides"] for each in of["properties"] if each["id"] == "links"]
    (link,) = links[0]["value"]
    assert link["url"].startswith("/d/braid-query?var-query=${__value.text}")
