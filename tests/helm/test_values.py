"""Check that the chart's schema knows its values and refuses bad ones."""

from __future__ import annotations

import json

import pytest
import yaml
from helm_binary import CHART, Helm, Manifest


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 3}, "replicas"),
        ({"image": {"tag": 1.1}}, "tag"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"service": {"port": 0}}, "port"),
        ({"service": {"port": "8080"}}, "port"),
        ({"persistence": {"size": "a lot"}}, "size"),
        ({"persistence": {"accessModes": ["ReadOnlyMany"]}}, "accessModes"),
        ({"master": "flink://x"}, "master"),
        ({"settings": {"DRAIN": "1"}}, "settings"),
        ({"settings": {"data_dir": "/elsewhere"}}, "settings"),
        ({"settings": {"sinks": ["a"]}}, "sinks"),
        ({"podSecurityContext": {"runAsNonRoot": False}}, "runAsNonRoot"),
        ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
        ({"securityContext": {"readOnlyRootFilesystem": False}}, "readOnlyRootFilesystem"),
        ({"probes": {"liveness": {"periodSeconds": 0}}}, "periodSeconds"),
        ({"probes": {"startup": {"path": "/"}}}, "path"),
        ({"resources": {"limits": {"memory": "4 GB"}}}, "memory"),
        ({"ingress": {"hosts": [{"host": "a", "paths": [{"path": "x", "pathType": "Prefix"}]}]}}, "path"),
        ({"ingress": {"enabled": "yes"}}, "enabled"),
        ({"serviceMonitor": {"interval": "15"}}, "interval"),
        ({"dashboards": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard"),
        ({"extraVolumes": [{"name": "data"}]}, "extraVolumes"),
        ({"extraEnv": [{"value": "no name"}]}, "extraEnv"),
        ({"nodeSelector": None, "tolerations": {}}, "tolerations"),
        ({"config": "drain_timeout = = 3"}, "config must be valid TOML"),
    ],
    ids=str,
)
def test_bad_values_are_refused_by_name(helm: Helm, values: Manifest, named: str) -> None:
    done = helm.run("template", "demo", str(CHART), values=values)
    assert done.returncode != 0
    assert named in done.stderr
    assert done.stdout == ""


def test_values_name_every_value_of_the_schema() -> None:
    # That the schema knows every value is what linting the defaults shows.
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    assert schema["additionalProperties"] is False
