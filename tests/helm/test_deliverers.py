"""Check the deliverers that the chart runs as pods of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helm_binary import CHART, Helm
from manifests import environment, only, pods
from value_sets import DELIVERERS, EVERYTHING_ON

from braid.router.delivery.shards import DeliveryShard


def test_the_service_delivers_itself_unless_others_do(helm: Helm) -> None:
    assert "BRAID_DELIVERERS" not in environment(helm.template())
    assert environment(helm.template({"settings": {"deliverers": 3}}))["BRAID_DELIVERERS"] == "3"
    assert environment(helm.template(DELIVERERS))["BRAID_DELIVERERS"] == "0"
    both = helm.run("template", "demo", str(CHART), values=DELIVERERS | {"settings": {"deliverers": 3}})
    assert "settings.deliverers must be left out" in both.stderr


@pytest.mark.parametrize("replicas", [1, 3])
def test_pods_take_each_share_once(helm: Helm, tmp_path: Path, replicas: int) -> None:
    manifests = helm.template(DELIVERERS | {"deliverers": {"replicas": replicas}})
    found = only(manifests, "StatefulSet", "deliverer")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["command"][0] == "start"
    braid = tmp_path / "braid"
    braid.write_text(f'#!{shutil.which("bash")}\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    braid.chmod(0o755)
    parts = []
    for number in range(found["spec"]["replicas"]):
        host = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": f"{found['metadata']['name']}-{number}"}
        done = subprocess.run(
            container["command"][1:], env=host, capture_output=True, text=True, timeout=60, check=True
        )
        arguments = done.stdout.splitlines()
        assert arguments[:3] == ["deliver", "--data-dir", "/data"]
        parts += DeliveryShard.parse(arguments[arguments.index("--shard") + 1]).parts
    assert sorted(parts) == list(DeliveryShard().parts)


def test_they_share_data_configuration_and_secrets_with_the_service(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    (server,), (deliverer,) = (pods(manifests)[name]["containers"] for name in ("server", "deliverer"))
    assert deliverer["envFrom"] == server["envFrom"]
    assert deliverer["image"] == server["image"]
    mounts = [each for each in server["volumeMounts"] if each["name"] != "executor"]
    assert sorted(map(str, deliverer["volumeMounts"])) == sorted(map(str, mounts))
    settings = [each for each in server["env"] if each["name"] in {"BRAID_DRAIN_TIMEOUT", "BRAID_DELIVERERS", "TOKEN"}]
    assert len(settings) == 3
    assert all(each in deliverer["env"] for each in settings)
    assert {"name": "BRAID_HOST", "value": server["args"][server["args"].index("--host") + 1]} in deliverer["env"]
    assert not any(each["name"] == "BRAID_ADMIN_KEY" for each in deliverer["env"]), "they answer nobody"
