"""Check all that the chart renders against the schemas of Kubernetes and of the Prometheus Operator."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import jsonschema
import kubernetes_validate
import orjson
import pytest
import yaml
from helm_binary import CHART, ROOT, Helm, Manifest, manifests_of
from manifests import executor_pod
from value_sets import EXECUTORS, VALUE_SETS

OLDEST = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"].strip(">=-0")
VERSIONS = (OLDEST, kubernetes_validate.latest_version())
OPERATOR = "monitoring.coreos.com/v1"
OPERATOR_MODELS = ROOT / ".tools" / "operator-models"
PRINT_SCHEMA = """
import sys
import orjson
from cloudcoil.models.prometheus_operator import v1
print(orjson.dumps(getattr(v1, sys.argv[1]).model_json_schema()).decode())
"""


def check(manifest: Manifest, version: str) -> None:
    """Raise for a field that Kubernetes does not know, that is missing, or that has another type."""
    kubernetes_validate.validate(manifest, version, strict=True)


@functools.cache
def operator_schema(kind: str) -> dict[str, Any]:
    """Return the schema of an object of the Prometheus Operator, made to know no further fields."""
    if not (OPERATOR_MODELS / ".installed").exists():
        pytest.skip("OBJECTS OF THE PROMETHEUS OPERATOR ARE NOT TESTED: run tests/helm/install-operator-models.sh")
    environment = os.environ | {"PYTHONPATH": str(OPERATOR_MODELS)}
    command = [sys.executable, "-c", PRINT_SCHEMA, kind]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
    # Go lets a flag stand anywhere in a pattern, Python at its beginning
    schema: dict[str, Any] = orjson.loads(done.stdout.replace(b"^(?i)", b"(?i)^"))
    for each in (schema, *schema["$defs"].values()):
        if "properties" in each:
            each["additionalProperties"] = False
    return schema


def refusals(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return why what was rendered does not fit, with the executors' pod."""
    assert done.returncode == 0, done.stderr
    found = []
    for each in manifests_of(done.stdout):
        try:
            check(each, VERSIONS[-1])
        except kubernetes_validate.ValidationError as error:
            found.append(error.message)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_objects_fit_the_schemas_of_kubernetes(helm: Helm, values: Manifest, version: str) -> None:
    manifests = helm.template(values)
    if values.get("executors"):
        manifests.append(executor_pod(manifests))
    for each in manifests:
        if each["apiVersion"] != OPERATOR:
            check(each, version)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_objects_fit_the_schemas_of_the_prometheus_operator(helm: Helm, values: Manifest) -> None:
    for each in helm.template(values):
        if each["apiVersion"] == OPERATOR:
            jsonschema.validate(each, operator_schema(each["kind"]))


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"extraEnv": [{"name": "A", "valu": "b"}]}, "'valu' was unexpected"),
        ({"tolerations": [{"key": 1}]}, "1 is not of type"),
        ({"affinity": {"nodeAffinity": {"required": {}}}}, "'required' was unexpected"),
        ({"extraVolumes": [{"name": "a", "configMap": "b"}]}, "'b' is not of type"),
    ],
    ids=str,
)
def test_a_wrong_field_is_found(helm: Helm, values: Manifest, refused: str) -> None:
    found = refusals(helm.run("template", "demo", str(CHART), values=values))
    assert found
    assert all(refused in each for each in found)


def test_a_wrong_field_of_the_executors_pod_is_found(helm: Helm) -> None:
    pod = executor_pod(helm.template(EXECUTORS | {"extraEnv": [{"name": "A", "valu": "b"}]}))
    with pytest.raises(kubernetes_validate.ValidationError, match="'valu' was unexpected"):
        check(pod, VERSIONS[-1])


@pytest.mark.parametrize("wrong", [{"prt": "http"}, {"port": 8080}, {"interval": "often"}], ids=str)
def test_a_wrong_field_of_a_service_monitor_is_found(helm: Helm, wrong: Manifest) -> None:
    manifests = helm.template({"serviceMonitor": {"enabled": True}, "access": {"mode": "off"}})
    (monitor,) = [each for each in manifests if each["kind"] == "ServiceMonitor"]
    monitor["spec"]["endpoints"][0] |= wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(monitor, operator_schema("ServiceMonitor"))
