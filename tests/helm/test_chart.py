"""Render the Helm chart with a real helm and check what Kubernetes would be given."""

from __future__ import annotations

from typing import Any

import pytest
from helm_binary import CHART, Helm, Manifest

RECOMMENDED_LABELS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
EVERYTHING_ON = {
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "braid.example", "paths": [{"path": "/", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "braid-tls", "hosts": ["braid.example"]}],
    },
    "serviceMonitor": {
        "enabled": True,
        "interval": "5s",
        "scrapeTimeout": "4s",
        "labels": {"release": "prometheus"},
    },
    "podDisruptionBudget": {"enabled": True},
    "dashboards": {"annotations": {"grafana_folder": "Braid"}},
    "image": {"repository": "images.example/braid", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "master": "spark://spark:7077",
    "config": "drain_timeout = 30\n\n[sinks]\nretries = 3\n",
    "settings": {"drain_timeout": 60},
    "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "braid", "key": "token"}}}],
    "extraArgs": ["--help"],
    "extraVolumes": [{"name": "tables", "configMap": {"name": "tables"}}],
    "extraVolumeMounts": [{"name": "tables", "mountPath": "/tables"}],
    "persistence": {"storageClass": "fast", "annotations": {"backup": "yes"}},
    "service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}},
    "serviceAccount": {"name": "streams", "annotations": {"c": "d"}},
    "podAnnotations": {"e": "f"},
    "podLabels": {"team": "streams"},
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


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
    (found,) = only(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the container's environment: name → value, or where the value comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container(manifests)["env"]}


@pytest.mark.parametrize("values", [{}, EVERYTHING_ON], ids=["default", "everything on"])
def test_lint_finds_nothing(helm: Helm, values: Manifest) -> None:
    done = helm.run("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@pytest.mark.parametrize("values", [{}, EVERYTHING_ON], ids=["default", "everything on"])
def test_every_object_has_the_recommended_labels_and_the_namespace(helm: Helm, values: Manifest) -> None:
    for each in helm.template(values):
        labels = each["metadata"]["labels"]
        assert labels.keys() >= RECOMMENDED_LABELS, each["metadata"]["name"]
        assert labels["app.kubernetes.io/name"] == "braid"
        assert labels["app.kubernetes.io/instance"] == "demo"
        assert all(isinstance(value, str) for value in labels.values())
        assert each["metadata"]["namespace"] == "streams"


def test_default_objects(helm: Helm) -> None:
    kinds = sorted(each["kind"] for each in helm.template())
    assert kinds == ["ConfigMap", "ConfigMap", "Pod", "Service", "Service", "ServiceAccount", "StatefulSet"]


def test_everything_on_adds_the_optional_objects(helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.template(EVERYTHING_ON)}
    assert kinds >= {"Ingress", "ServiceMonitor", "PodDisruptionBudget"}


def test_service_runs_once_on_its_volume(helm: Helm) -> None:
    manifests = helm.template()
    spec = only(manifests, "StatefulSet")["spec"]
    assert spec["replicas"] == 1
    assert spec["serviceName"] == only(manifests, "Service", "discovery")["metadata"]["name"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    assert container(manifests)["args"] == (
        [
            "serve",
            "--host",
            "0.0.0.0",
            "--port",
            "8080",
            "--data-dir",
            "/data",
            "--config",
            "/etc/braid/braid.toml",
        ]
    )
    mounts = {each["name"]: each["mountPath"] for each in container(manifests)["volumeMounts"]}
    assert mounts == {claim["metadata"]["name"]: "/data", "tmp": "/tmp", "config": "/etc/braid"}


def test_upgrade_of_the_chart_changes_nothing_immutable_and_restarts_nothing(helm: Helm) -> None:
    spec = only(helm.template(), "StatefulSet")["spec"]
    stable = {"app.kubernetes.io/name": "braid", "app.kubernetes.io/instance": "demo"}
    assert spec["volumeClaimTemplates"][0]["metadata"]["labels"] == stable
    assert spec["selector"]["matchLabels"] == stable | {"app.kubernetes.io/component": "server"}
    assert spec["template"]["metadata"]["labels"] == stable | {"app.kubernetes.io/component": "server"}


def test_without_persistence_the_data_lie_in_an_empty_dir(helm: Helm) -> None:
    spec = only(helm.template({"persistence": {"enabled": False}}), "StatefulSet")["spec"]
    assert "volumeClaimTemplates" not in spec
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    assert volumes["data"]["emptyDir"] == {"sizeLimit": "20Gi"}


def test_probes(helm: Helm) -> None:
    found = container(helm.template())
    assert found["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    for probe, path in {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}.items():
        assert found[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    startup = found["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120, "warming up takes some time"


@pytest.mark.parametrize("kind", ["StatefulSet", "Pod"])
def test_pods_are_not_root_and_read_only(helm: Helm, kind: str) -> None:
    found = only(helm.template(), kind)
    spec = found["spec"]["template"]["spec"] if kind == "StatefulSet" else found["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["fsGroup"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    (only_container,) = spec["containers"]
    assert only_container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert only_container["resources"]["limits"]["memory"]


def test_spark_writes_to_tmp_only(helm: Helm) -> None:
    manifests = helm.template()
    spec = only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}} in spec["volumes"]
    assert container(manifests)["workingDir"] == "/tmp"
    found = environment(manifests)
    assert {name: found[name] for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS")} == {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "SPARK_LOCAL_DIRS": "/tmp",
    }


def test_kubernetes_adds_no_variables_that_look_like_settings(helm: Helm) -> None:
    # A service named "braid" would else set BRAID_PORT=tcp://10.0.0.1:8080 in every pod of the namespace.
    spec = only(helm.template(), "StatefulSet")["spec"]["template"]["spec"]
    assert spec["enableServiceLinks"] is False


def test_spark_listens_on_loopback_unless_a_cluster_must_reach_it(helm: Helm) -> None:
    assert environment(helm.template())["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment(helm.template({"master": "local[2]"}))["SPARK_LOCAL_IP"] == "127.0.0.1"
    cluster = helm.template({"master": "spark://spark:7077"})
    assert "SPARK_LOCAL_IP" not in environment(cluster)
    assert container(cluster)["args"][-2:] == ["--master", "spark://spark:7077"]


def test_settings_become_variables(helm: Helm) -> None:
    settings = {
        "drain_timeout": 60,
        "metrics_queries": 2_000_000,
        "idle": 0.25,
        "checks": True,
        "results_retention": "7 days",
        "quoted": 'a "b": c',
    }
    reference = {"secretKeyRef": {"name": "braid", "key": "token"}}
    extra = [{"name": "TOKEN", "valueFrom": reference}]
    found = environment(helm.template({"settings": settings, "extraEnv": extra}))
    assert {name: value for name, value in found.items() if name.startswith("BRAID_")} == {
        "BRAID_DRAIN_TIMEOUT": "60",
        "BRAID_METRICS_QUERIES": "2000000",
        "BRAID_IDLE": "0.25",
        "BRAID_CHECKS": "true",
        "BRAID_RESULTS_RETENTION": "7 days",
        "BRAID_QUOTED": 'a "b": c',
    }
    assert found["TOKEN"] == reference


def test_config_becomes_braid_toml_and_a_change_restarts_the_pod(helm: Helm) -> None:
    config = 'drain_timeout = 30\n\n[sinks]\nname = "ä: {{ x }}"\n'
    manifests = helm.template({"config": config})
    found = only(manifests, "ConfigMap", "server")
    assert found["data"]["braid.toml"].split("\n", 1)[1] == config
    volumes = only(manifests, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": found["metadata"]["name"]}} in volumes

    def checksum(text: str) -> str:
        pod = only(helm.template({"config": text}), "StatefulSet")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum("a = 1\n") == checksum("a = 1\n") != checksum("a = 2\n")


def test_dashboard_config_map_holds_the_file(helm: Helm) -> None:
    found = only(helm.template(), "ConfigMap", "dashboard")
    file = CHART / "dashboards" / "braid-queries.json"
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"] == {file.name: file.read_text(encoding="utf-8")}


def test_dashboard_can_be_left_out_or_put_elsewhere(helm: Helm) -> None:
    kinds = [each["kind"] for each in helm.template({"dashboards": {"enabled": False}})]
    assert kinds.count("ConfigMap") == 1
    elsewhere = helm.template({"dashboards": {"namespace": "monitoring", "annotations": {"grafana_folder": "Braid"}}})
    metadata = only(elsewhere, "ConfigMap", "dashboard")["metadata"]
    assert metadata["namespace"] == "monitoring"
    assert metadata["annotations"] == {"grafana_folder": "Braid"}


def test_selectors_find_the_pod(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    labels = only(manifests, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for component in ("api", "discovery"):
        service = only(manifests, "Service", component)["spec"]
        assert service["selector"].items() <= labels.items()
        assert service["ports"][0]["targetPort"] == "http"
    budget = only(manifests, "PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] == 0
    test_pod = only(manifests, "Pod")["metadata"]["labels"]
    assert not only(manifests, "Service", "api")["spec"]["selector"].items() <= test_pod.items()


def test_service_monitor_selects_one_service_only(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    monitor = only(manifests, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [each for each in manifests if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()]
    assert [each["metadata"]["name"] for each in found] == ["demo-braid"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "5s", "scrapeTimeout": "4s"}
    assert endpoint["port"] in [port["name"] for port in found[0]["spec"]["ports"]]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["streams"]}


def test_ingress_leads_to_the_service(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    spec = only(manifests, "Ingress")["spec"]
    (rule,) = spec["rules"]
    assert rule["host"] == "braid.example"
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = only(manifests, "Service", "api")
    assert backend == {
        "name": service["metadata"]["name"],
        "port": {"name": service["spec"]["ports"][0]["name"]},
    }
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == [{"secretName": "braid-tls", "hosts": ["braid.example"]}]


def test_helm_test_asks_readyz_of_the_service(helm: Helm) -> None:
    manifests = helm.template({"service": {"port": 80}})
    pod = only(manifests, "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    command = pod["spec"]["containers"][0]["command"]
    assert command[0] == "curl"
    assert "--fail" in command
    assert command[-1] == "http://demo-braid.streams.svc:80/readyz"


def test_long_names_stay_within_what_kubernetes_takes(helm: Helm) -> None:
    manifests = helm.template({"fullnameOverride": "b" * 63})
    for each in manifests:
        limit = 63 if each["kind"] in {"Service", "StatefulSet", "Pod"} else 253
        assert len(each["metadata"]["name"]) <= limit
    # A StatefulSet labels its pods with its name, a dash and a hash of ten characters.
    assert len(only(manifests, "StatefulSet")["metadata"]["name"]) + 11 <= 63
