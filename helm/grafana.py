"""Make the parts of a Grafana dashboard: plain dicts in Grafana's JSON model (schema version 39).

Panels stand on a grid 24 wide; `place` lays them out in reading order, so a panel only says its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

# The dashboard's own variable, so that it works with any Prometheus.
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
GRID_WIDTH = 24


def target(expression: str, legend: str, ref_id: str = "A", **more: Any) -> Json:
    """Make one query of a panel."""
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": legend,
        "range": True,
        "refId": ref_id,
        **more,
    }


def targets(expressions: dict[str, str]) -> list[Json]:
    """Make the queries of a panel from legend → expression, named A, B, C."""
    return [target(expression, legend, chr(ord("A") + i)) for i, (legend, expression) in enumerate(expressions.items())]


def panel(kind: str, title: str, description: str, size: tuple[int, int], **more: Any) -> Json:
    """Make a panel of `size` (width, height) in grid cells; `place` gives it its id and place."""
    width, height = size
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": height},
        **more,
    }


def stat(title: str, expression: str, description: str, unit: str = "short", **defaults: Any) -> Json:
    """Make one figure, with a spark line behind it."""
    return panel(
        "stat",
        title,
        description,
        (3, 4),
        targets=[target(expression, title)],
        fieldConfig={"defaults": {"unit": unit, "color": {"mode": "thresholds"}, **_plain_steps(), **defaults}},
        options={
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value",
        },
    )


def series(
    title: str,
    expressions: dict[str, str],
    description: str,
    unit: str,
    width: int = 12,
    stacked: bool = False,
    from_zero: bool = True,
) -> Json:
    """Make a time series panel from legend → expression; its legend is a table sorted by the last value."""
    custom: Json = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
    if stacked:
        custom |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
    defaults: Json = {"unit": unit, "custom": custom, "color": {"mode": "palette-classic"}}
    if from_zero:
        defaults["min"] = 0
    return panel(
        "timeseries",
        title,
        description,
        (width, 8),
        targets=targets(expressions),
        fieldConfig={"defaults": defaults, "overrides": []},
        options={
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
                "sortBy": "Last *",
                "sortDesc": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def table(
    title: str,
    expressions: dict[str, str],
    labels: dict[str, str],
    description: str,
    units: dict[str, str],
    default_unit: str,
    sort_by: str,
) -> Json:
    """Make a table of what is now: one line for each combination of `labels`, one column per expression.

    `labels` maps a label to its column's title, and everything else but the values is left out.
    """
    instant = {"format": "table", "instant": True, "range": False}
    queries = [each | instant for each in targets(expressions)]
    values = {f"Value #{each['refId']}": each["legendFormat"] for each in queries}
    order = {column: i for i, column in enumerate([*labels, *values])}
    overrides = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in units.items()
    ]
    return panel(
        "table",
        title,
        description,
        (GRID_WIDTH, 10),
        targets=queries,
        fieldConfig={"defaults": {"unit": default_unit, "decimals": 3}, "overrides": overrides},
        options={"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": sort_by, "desc": True}]},
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": order,
                    "renameByName": labels | values,
                },
            },
        ],
    )


def row(title: str) -> Json:
    """Make a heading over the panels that follow."""
    return {
        "type": "row",
        "title": title,
        "collapsed": False,
        "panels": [],
        "gridPos": {"w": GRID_WIDTH, "h": 1},
    }


def place(panels: Sequence[Json]) -> list[Json]:
    """Number the panels and lay them out left to right, top to bottom, a new line where one does not fit."""
    x = y = line_height = 0
    placed = []
    for number, each in enumerate(panels, start=1):
        size = each["gridPos"]
        if x + size["w"] > GRID_WIDTH:
            x, y, line_height = 0, y + line_height, 0
        placed.append({**each, "id": number, "gridPos": {**size, "x": x, "y": y}})
        x, line_height = x + size["w"], max(line_height, size["h"])
    return placed


def _plain_steps() -> Json:
    return {"thresholds": {"mode": "absolute", "steps": [{"color": "blue", "value": None}]}}


def variable(name: str, label: str, query: str, **more: Any) -> Json:
    """Make a dashboard variable that Prometheus fills in."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}", "qryType": 5},
        "refresh": 2,
        "sort": 5,
        **more,
    }


def several(**more: Any) -> Json:
    """Let a variable take many values, or All, which also matches a series without that label."""
    return {
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        **more,
    }
