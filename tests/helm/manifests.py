"""Find things in what the chart renders."""

from __future__ import annotations

from typing import Any

import orjson
import yaml
from helm_binary import Manifest

ACCESS = ("BRAID_ACCESS", "BRAID_ADMIN_KEY")


def only(manifests: list[Manifest], kind: str, component: str | None = None) -> Manifest:
    """Return the one object of a kind, and of a component if given."""
    found = [
        each
        for each in manifests
        if each["kind"] == kind and component in (None, each["metadata"]["labels"]["app.kubernetes.io/component"])
    ]
    assert len(found) == 1, f"one {kind} was expected, got {[each['metadata']['name'] for each in found]}"
    return found[0]


def container(manifests: list[Manifest]) -> Manifest:
    """Return the service's container."""
    (found,) = only(manifests, "StatefulSet", "server")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the container's environment: name → value, or where the value comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container(manifests)["env"]}


def executor_pod(manifests: list[Manifest]) -> Manifest:
    """Return the pod that Spark makes executors from."""
    found = yaml.safe_load(only(manifests, "ConfigMap", "executor")["data"]["pod.yaml"])
    assert isinstance(found, dict)
    return found


def spark_conf(manifests: list[Manifest]) -> dict[str, str]:
    """Return the Spark configuration that the service is given."""
    found = orjson.loads(environment(manifests).get("BRAID_SPARK_CONF", "{}"))
    assert isinstance(found, dict)
    return found


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the specifications of all pods by their component."""
    found = {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for each in manifests
        if each["kind"] in {"StatefulSet", "Deployment"}
    }
    found["test"] = only(manifests, "Pod")["spec"]
    if any(each["metadata"]["name"].endswith("-executor") for each in manifests if each["kind"] == "ConfigMap"):
        found["executor"] = executor_pod(manifests)["spec"]
    return found
