"""Render the Helm chart with a real helm and check what Kubernetes would be given."""

from __future__ import annotations

import pytest
from helm_binary import CHART, Helm, Manifest
from manifests import ACCESS, container, environment, executor_pod, only
from value_sets import EVERYTHING_ON, EXECUTORS, VALUE_SETS

RECOMMENDED_LABELS = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_lint_finds_nothing(helm: Helm, values: Manifest) -> None:
    done = helm.run("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
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
    assert kinds == [*["ConfigMap"] * 4, "Pod", "Secret", "Service", "Service", "ServiceAccount", "StatefulSet"]


def test_everything_on_adds_the_optional_objects(helm: Helm) -> None:
    kinds = {each["kind"] for each in helm.template(EVERYTHING_ON)}
    assert kinds >= {"Ingress", "ServiceMonitor", "PodDisruptionBudget", "NetworkPolicy", "Role", "RoleBinding"}


def test_service_runs_once_on_its_volume(helm: Helm) -> None:
    manifests = helm.template()
    spec = only(manifests, "StatefulSet", "server")["spec"]
    assert spec["replicas"] == 1
    assert spec["serviceName"] == only(manifests, "Service", "discovery")["metadata"]["name"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Gi"}}}
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
            "/etc/braid/config/braid.toml",
        ]
    )
    mounts = {each["name"]: each["mountPath"] for each in container(manifests)["volumeMounts"]}
    assert mounts == {claim["metadata"]["name"]: "/data", "tmp": "/tmp", "config": "/etc/braid/config"}


def test_upgrade_of_the_chart_changes_nothing_immutable_and_restarts_nothing(helm: Helm) -> None:
    spec = only(helm.template(), "StatefulSet")["spec"]
    stable = {"app.kubernetes.io/name": "braid", "app.kubernetes.io/instance": "demo"}
    assert spec["volumeClaimTemplates"][0]["metadata"]["labels"] == stable
    assert spec["selector"]["matchLabels"] == stable | {"app.kubernetes.io/component": "server"}
    assert spec["template"]["metadata"]["labels"] == stable | {
        "app.kubernetes.io/component": "server",
        "app.kubernetes.io/part-of": "braid",
        "app.kubernetes.io/managed-by": "Helm",
    }


def test_without_persistence_the_data_lie_in_an_empty_dir(helm: Helm) -> None:
    spec = only(helm.template({"persistence": {"enabled": False}}), "StatefulSet")["spec"]
    assert "volumeClaimTemplates" not in spec
    volumes = {each["name"]: each for each in spec["template"]["spec"]["volumes"]}
    assert volumes["data"]["emptyDir"] == {"sizeLimit": "50Gi"}


def test_probes(helm: Helm) -> None:
    found = container(helm.template())
    assert found["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    # a job that waits for executors must not have the service killed
    for probe, path in {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}.items():
        assert found[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    startup = found["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120, "reading what is kept takes some time"


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
    spec = only(manifests, "StatefulSet", "server")["spec"]["template"]["spec"]
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
    assert "SPARK_LOCAL_IP" not in environment(helm.template(EXECUTORS))
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
    assert {name: value for name, value in found.items() if name.startswith("BRAID_") and name not in ACCESS} == {
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
    volumes = only(manifests, "StatefulSet", "server")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "config", "configMap": {"name": found["metadata"]["name"]}} in volumes

    def checksum(text: str) -> str:
        pod = only(helm.template({"config": text}), "StatefulSet")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum("a = 1\n") == checksum("a = 1\n") != checksum("a = 2\n")


def dashboards(manifests: list[Manifest]) -> list[Manifest]:
    """Return the config maps of dashboards."""
    return [each for each in manifests if each["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboard"]


def test_dashboard_config_maps_hold_the_files(helm: Helm) -> None:
    found = dashboards(helm.template())
    assert {each["metadata"]["labels"]["grafana_dashboard"] for each in found} == {"1"}
    assert len({each["metadata"]["name"] for each in found}) == 3
    files = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "dashboards").glob("*.json")}
    assert {name: text for each in found for name, text in each["data"].items()} == files


def test_dashboards_can_be_left_out_or_put_elsewhere(helm: Helm) -> None:
    assert not dashboards(helm.template({"dashboards": {"enabled": False}}))
    elsewhere = helm.template({"dashboards": {"namespace": "monitoring", "annotations": {"grafana_folder": "Braid"}}})
    for metadata in (each["metadata"] for each in dashboards(elsewhere)):
        assert metadata["namespace"] == "monitoring"
        assert metadata["annotations"] == {"grafana_folder": "Braid"}


def test_selectors_find_the_pod(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    labels = only(manifests, "StatefulSet", "server")["spec"]["template"]["metadata"]["labels"]
    for component in ("api", "discovery"):
        service = only(manifests, "Service", component)["spec"]
        assert service["selector"].items() <= labels.items()
        assert service["ports"][0]["targetPort"] == "http"
    budget = only(manifests, "PodDisruptionBudget")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] == 0
    for other in (only(manifests, "StatefulSet", "deliverer")["spec"]["template"], executor_pod(manifests)):
        assert not budget["selector"]["matchLabels"].items() <= other["metadata"]["labels"].items()
    test_pod = only(manifests, "Pod")["metadata"]["labels"]
    assert not only(manifests, "Service", "api")["spec"]["selector"].items() <= test_pod.items()


def test_service_monitor_selects_one_service_only(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    monitor = only(manifests, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [each for each in manifests if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()]
    assert [each["metadata"]["name"] for each in found] == ["demo-braid"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {
        "port": "http",
        "path": "/metrics",
        "interval": "5s",
        "scrapeTimeout": "4s",
        "authorization": {"type": "Bearer", "credentials": {"name": "braid-monitor", "key": "token"}},
    }
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
    manifests = helm.template(EVERYTHING_ON | {"fullnameOverride": "b" * 63})
    for each in manifests:
        limit = 63 if each["kind"] in {"Service", "StatefulSet", "Pod"} else 253
        assert len(each["metadata"]["name"]) <= limit
    # A StatefulSet labels its pods with its name, a dash and a hash of ten characters.
    for each in manifests:
        assert each["kind"] != "StatefulSet" or len(each["metadata"]["name"]) + 11 <= 63
