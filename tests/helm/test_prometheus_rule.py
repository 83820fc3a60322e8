"""The chart renders the rule file as it is, when asked to."""

from __future__ import annotations

import yaml
from helm_binary import CHART, Helm

ENABLED = {"prometheusRule": {"enabled": True, "namespace": "monitoring", "labels": {"release": "prometheus"}}}


def test_rules_are_those_of_the_file(helm: Helm) -> None:
    (rule,) = [each for each in helm.template(ENABLED) if each["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((CHART / "rules" / "braid.yaml").read_text(encoding="utf-8"))
    assert rule["metadata"]["namespace"] == "monitoring"
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_there_are_none_unless_asked_for(helm: Helm) -> None:
    assert "PrometheusRule" not in [each["kind"] for each in helm.template()]
