"""Check who may speak to whom, as the chart's network policies say it."""

from __future__ import annotations

from typing import Any

import pytest
from helm_binary import Helm, Manifest
from manifests import only, spark_conf
from value_sets import DELIVERERS, EVERYTHING_ON, EXECUTORS

ON: Manifest = {"networkPolicy": {"enabled": True}}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def policies(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the specification of each policy by the component whose pods it selects."""
    found = [each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"]
    return {each["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: each for each in found}


def peer(component: str) -> Manifest:
    """Return the pods of a component of the release as a peer."""
    names = {"app.kubernetes.io/name": "braid", "app.kubernetes.io/instance": "demo"}
    return {"podSelector": {"matchLabels": names | {"app.kubernetes.io/component": component}}}


def numbers(ports: list[Manifest]) -> set[str]:
    """Return the numbers of TCP ports."""
    assert all(each["protocol"] == "TCP" for each in ports)
    return {str(each["port"]) for each in ports}


def test_there_is_none_unless_asked_for(helm: Helm) -> None:
    assert policies(helm.template()) == {}


@pytest.mark.parametrize(
    ("values", "components"),
    [({}, {"server"}), (EXECUTORS, {"server", "executor"}), (DELIVERERS, {"server", "deliverer"})],
    ids=["alone", "executors", "deliverers"],
)
def test_each_pod_has_its_policy(helm: Helm, values: Manifest, components: set[str]) -> None:
    found = policies(helm.template(values | ON))
    assert found.keys() == components
    assert all(each["policyTypes"] == ["Ingress"] and "egress" not in each for each in found.values())


def test_clients_reach_the_port_alone(helm: Helm) -> None:
    (rule,) = policies(helm.template(ON))["server"]["ingress"]
    assert rule == {"from": [{"podSelector": {}}, peer("test")], "ports": [{"port": 8080, "protocol": "TCP"}]}
    manifests = helm.template(EVERYTHING_ON)
    rule = policies(manifests)["server"]["ingress"][0]
    assert rule["from"] == [*EVERYTHING_ON["networkPolicy"]["clients"], peer("test")]
    test_pod = only(manifests, "Pod")["metadata"]["labels"]
    assert peer("test")["podSelector"]["matchLabels"].items() <= test_pod.items()


def test_driver_and_executors_reach_each_other(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    conf, found = spark_conf(manifests), policies(manifests)
    driver = {conf["spark.driver.port"], conf["spark.driver.blockManager.port"]}
    blocks = {conf["spark.blockManager.port"]}
    to_driver = found["server"]["ingress"][1]
    assert (to_driver["from"], numbers(to_driver["ports"])) == ([peer("executor")], driver)
    (to_executor,) = found["executor"]["ingress"]
    assert (to_executor["from"], numbers(to_executor["ports"])) == ([peer("server"), peer("executor")], blocks)
    out = [(rule["to"], numbers(rule["ports"])) for rule in found["executor"]["egress"][1:3]]
    assert out == [([peer("server")], driver), ([peer("executor")], blocks)]
    assert {"to": [peer("executor")], "ports": to_executor["ports"]} in found["server"]["egress"]


def test_egress_is_names_the_api_and_what_is_allowed(helm: Helm) -> None:
    found = policies(helm.template(EVERYTHING_ON))
    rules = EVERYTHING_ON["networkPolicy"]["egress"]["rules"]
    assert all(each["policyTypes"] == ["Ingress", "Egress"] for each in found.values())
    assert all(each["egress"][0] == DNS and each["egress"][-1] == rules[0] for each in found.values())
    assert found["deliverer"] == found["deliverer"] | {"ingress": [], "egress": [DNS, *rules]}
    api = found["server"]["egress"][1]
    assert (api["to"], numbers(api["ports"])) == ([{"ipBlock": {"cidr": "10.0.0.1/32"}}], {"443", "6443"})
    assert api not in found["executor"]["egress"]


def test_without_executors_the_api_is_not_reached(helm: Helm) -> None:
    values = {"networkPolicy": {"enabled": True, "egress": {"enabled": True}}}
    assert policies(helm.template(values))["server"]["egress"] == [DNS]
