"""Check keys and secrets: who has them, and that none stands where it can be read."""

from __future__ import annotations

import base64

import pytest
from helm_binary import CHART, Helm
from manifests import environment, only, pods
from value_sets import EVERYTHING_ON

KEY = {"secretKeyRef": {"name": "demo-braid-access", "key": "admin-key"}}


def test_first_key_is_made_and_kept(helm: Helm) -> None:
    manifests = helm.template()
    secret = only(manifests, "Secret")
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert secret["metadata"]["name"] == KEY["secretKeyRef"]["name"]
    key = base64.b64decode(secret["data"]["admin-key"]).decode()
    assert len(key) == 48
    assert key.isalnum()
    assert key != base64.b64decode(only(helm.template(), "Secret")["data"]["admin-key"]).decode()
    found = environment(manifests)
    assert (found["BRAID_ACCESS"], found["BRAID_ADMIN_KEY"]) == ("auto", KEY)


def test_a_key_of_ones_own_is_used(helm: Helm) -> None:
    manifests = helm.template({"access": {"mode": "on", "existingSecret": "keys", "existingSecretKey": "first"}})
    assert not [each for each in manifests if each["kind"] == "Secret"]
    found = environment(manifests)
    assert (found["BRAID_ACCESS"], found["BRAID_ADMIN_KEY"]) == (
        "on",
        {"secretKeyRef": {"name": "keys", "key": "first"}},
    )


def test_without_access_control_there_is_no_key(helm: Helm) -> None:
    manifests = helm.template({"access": {"mode": "off"}})
    assert not [each for each in manifests if each["kind"] == "Secret"]
    found = environment(manifests)
    assert found["BRAID_ACCESS"] == "off"
    assert "BRAID_ADMIN_KEY" not in found


def test_secrets_become_variables_by_their_names_in_capitals(helm: Helm) -> None:
    manifests = helm.template({"secrets": {"values": {"shop_db": "gehe:im\n", "Token2": "x"}, "existing": ["kafka"]}})
    secret = [each for each in manifests if each["kind"] == "Secret"][-1]
    decoded = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert decoded == {"SHOP_DB": "gehe:im\n", "TOKEN2": "x"}
    (container,) = pods(manifests)["server"]["containers"]
    assert container["envFrom"] == [
        {"prefix": "BRAID_SECRET_", "secretRef": {"name": secret["metadata"]["name"]}},
        {"prefix": "BRAID_SECRET_", "secretRef": {"name": "kafka"}},
    ]


def test_change_of_a_secret_restarts_what_reads_it(helm: Helm) -> None:
    def checksums(value: str) -> list[str]:
        values = EVERYTHING_ON | {"secrets": {"values": {"a": value}}}
        templates = [each["spec"]["template"] for each in helm.template(values) if each["kind"] == "StatefulSet"]
        return [each["metadata"]["annotations"]["checksum/secrets"] for each in templates]

    before, after = checksums("1"), checksums("2")
    assert len(before) == 2
    assert checksums("1") == before
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_secret_values_stand_in_secrets_only(helm: Helm) -> None:
    for each in helm.template(EVERYTHING_ON | {"secrets": {"values": {"shop_db": "geheim"}}}):
        assert each["kind"] == "Secret" or "geheim" not in str(each)


def test_secrets_are_mounted_as_files(helm: Helm) -> None:
    for component, spec in pods(helm.template({"secrets": {"files": ["kafka-tls"]}})).items():
        if component != "test":
            mounts = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}
            mount = mounts["/etc/braid/secrets/kafka-tls"]
            assert mount["readOnly"] is True
            assert {"name": mount["name"], "secret": {"secretName": "kafka-tls"}} in spec["volumes"]


def test_metrics_need_a_key_where_everything_else_does(helm: Helm) -> None:
    monitor = {"serviceMonitor": {"enabled": True}}
    refused = helm.run("template", "demo", str(CHART), values=monitor)
    assert "serviceMonitor.bearerTokenSecret.name must name a secret" in refused.stderr
    found = only(helm.template(monitor | {"access": {"mode": "off"}}), "ServiceMonitor")
    assert "authorization" not in found["spec"]["endpoints"][0]


@pytest.mark.parametrize(
    ("access", "expected", "missing"),
    [
        ({}, "get secret demo-braid-access --output jsonpath='{.data.admin-key}'", "WARNING: access"),
        (
            {"existingSecret": "keys", "existingSecretKey": "a.b"},
            "get secret keys --output jsonpath='{.data.a\\.b}'",
            "stays over upgrades",
        ),
        ({"mode": "off"}, "WARNING: access.mode is off", "get secret"),
    ],
    ids=str,
)
def test_notes_tell_how_to_read_the_first_key(helm: Helm, access: dict[str, str], expected: str, missing: str) -> None:
    notes = helm.notes({"access": access})
    assert expected in notes
    assert missing not in notes
