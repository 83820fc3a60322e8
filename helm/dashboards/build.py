"""All dashboards as the files that Grafana reads."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from helm.dashboards import overview, query, streams_and_sinks

DIRECTORY = Path(__file__).resolve().parents[1] / "braid" / "dashboards"
DASHBOARDS = (overview, query, streams_and_sinks)


def build() -> dict[str, str]:
    """Build every dashboard: file name → JSON text."""
    encoder = JSONEncoder(indent=2, ensure_ascii=False, sort_keys=True)
    dashboards = (module.build() for module in DASHBOARDS)
    return {f"{each.uid}.json": encoder.encode(each) + "\n" for each in dashboards}
