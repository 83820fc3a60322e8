"""Check that what the chart's objects name exists, once, and that selectors find what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from helm_binary import Helm, Manifest
from manifests import only, pods
from value_sets import EVERYTHING_ON, VALUE_SETS

# what the value sets name as there already
FOREIGN = {
    ("secret", "braid"),
    ("secret", "kafka"),
    ("secret", "kafka-tls"),
    ("secret", "registry-ca"),
    ("secret", "keys"),
    ("configmap", "tables"),
    ("persistentvolumeclaim", "shared"),
}

sets = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)


def named(spec: Manifest) -> Iterator[tuple[str, str]]:
    """Yield what a pod refers to: kind and name."""
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield "configmap", volume["configMap"]["name"]
        if "secret" in volume:
            yield "secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "persistentvolumeclaim", volume["persistentVolumeClaim"]["claimName"]
    for container in spec["containers"]:
        for each in container.get("envFrom", []):
            yield "secret", each["secretRef"]["name"]
        for variable in container.get("env", []):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                yield "secret", reference["name"]


@sets
def test_what_pods_name_exists(helm: Helm, values: Manifest) -> None:
    manifests = helm.template(values)
    there = {(each["kind"].lower(), each["metadata"]["name"]) for each in manifests} | FOREIGN
    server = only(manifests, "StatefulSet", "server")
    for claim in server["spec"].get("volumeClaimTemplates", []):
        there.add(("persistentvolumeclaim", f"{claim['metadata']['name']}-{server['metadata']['name']}-0"))
    for component, spec in pods(manifests).items():
        assert set(named(spec)) <= there, component
        account = spec["serviceAccountName"]
        assert account == "default" or ("serviceaccount", account) in there


@sets
def test_nothing_is_said_twice_in_a_pod(helm: Helm, values: Manifest) -> None:
    manifests = helm.template(values)
    claims = only(manifests, "StatefulSet", "server")["spec"].get("volumeClaimTemplates", [])
    for component, spec in pods(manifests).items():
        volumes = [each["name"] for each in spec.get("volumes", [])]
        volumes += [each["metadata"]["name"] for each in claims] if component == "server" else []
        (container,) = spec["containers"]
        mounts = [each["mountPath"] for each in container.get("volumeMounts", [])]
        variables = [each["name"] for each in container.get("env", [])]
        ports = [each["containerPort"] for each in container.get("ports", [])]
        for what in (volumes, mounts, variables, ports):
            assert max(Counter(what).values(), default=1) == 1, component
        assert {each["name"] for each in container.get("volumeMounts", [])} == set(volumes), component


@sets
def test_all_containers_are_confined_and_have_scratch_space(helm: Helm, values: Manifest) -> None:
    for component, spec in pods(helm.template(values)).items():
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        if component != "test":
            (scratch,) = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == "/tmp"]
            (volume,) = [each for each in spec["volumes"] if each["name"] == scratch]
            assert volume["emptyDir"] == {"sizeLimit": "4Gi"}
            assert container["workingDir"] == "/tmp"
            assert {"name": "HOME", "value": "/tmp"} in container["env"]


@sets
def test_only_what_starts_executors_has_a_token(helm: Helm, values: Manifest) -> None:
    with_token = {name for name, spec in pods(helm.template(values)).items() if spec["automountServiceAccountToken"]}
    assert with_token == ({"server"} if values.get("executors") else set())


def test_each_pod_is_of_one_controller(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    selectors = [each["spec"]["selector"]["matchLabels"] for each in manifests if each["kind"] == "StatefulSet"]
    templates = [each["spec"]["template"] for each in manifests if each["kind"] == "StatefulSet"]
    assert len(selectors) == 2
    for template in templates:
        labels = template["metadata"]["labels"]
        assert [selector.items() <= labels.items() for selector in selectors].count(True) == 1
