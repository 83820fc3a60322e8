"""Check that the chart's schema knows its values and refuses bad ones."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator

import pytest
import yaml
from helm_binary import CHART, ROOT, Helm, Manifest


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
        ({"settings": {"spark_conf": "{}"}}, "spark_conf"),
        ({"settings": {"admin_key": "k"}}, "admin_key"),
        ({"sparkConf": {"executor.cores": 1}}, "sparkConf"),
        ({"sparkConf": {"spark.a": ["x"]}}, "spark.a"),
        ({"executors": {"instances": 0}}, "instances"),
        ({"executors": {"memory": "1Gi"}}, "memory"),
        ({"executors": {"memoryOverhead": 3}}, "memoryOverhead"),
        ({"executors": {"image": "x"}}, "image"),
        ({"executors": {"cpuLimit": "many"}}, "cpuLimit"),
        ({"deliverers": {"replicas": 17}}, "replicas"),
        ({"access": {"mode": "sometimes"}}, "mode"),
        ({"access": {"mode": False}}, "mode"),
        ({"access": {"existingSecret": "Not A Name"}}, "existingSecret"),
        ({"secrets": {"values": {"a-b": "x"}}}, "values"),
        ({"secrets": {"values": {"a": ""}}}, "values"),
        ({"secrets": {"files": ["a.b"]}}, "files"),
        ({"secrets": {"files": ["a", "a"]}}, "files"),
        ({"networkPolicy": {"clients": [{"pods": {}}]}}, "clients"),
        ({"networkPolicy": {"clients": [{}]}}, "clients"),
        ({"networkPolicy": {"egress": {"rules": [{"from": []}]}}}, "rules"),
        ({"serviceMonitor": {"bearerTokenSecret": {"key": "a b"}}}, "bearerTokenSecret"),
        ({"persistence": {"existingClaim": "-a"}}, "existingClaim"),
        ({"extraVolumes": [{"name": "secret-x"}]}, "extraVolumes"),
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


def test_documentation_names_every_value_with_its_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \| (\S.*) \|$", text, re.MULTILINE)
    documented = {name: yaml.safe_load(default) for name, default, _ in rows}
    assert len(documented) == len(rows), "a value is documented twice"
    for name, default in documented.items():
        value = values
        for part in name.split("."):
            assert part in value, name
            value = value[part]
        assert value == default, name
    missing = [name for name in leaves(values) if not covered(name, documented)]
    assert not missing


def leaves(values: Manifest, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all values that are no maps, or empty ones."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def covered(name: str, documented: Container[str]) -> bool:
    """Whether a value, or a map that it is in, is documented."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in documented for end in range(1, len(parts) + 1))
