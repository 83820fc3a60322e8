"""Check what the chart gives Spark to run executors as pods."""

from __future__ import annotations

import pytest
from helm_binary import CHART, Helm, Manifest
from manifests import container, executor_pod, only, pods, spark_conf
from value_sets import EVERYTHING_ON, EXECUTORS

from braid.engine.spark.spark_conf import check_spark_conf, combined, slots


def test_without_executors_nothing_of_them_is_there(helm: Helm) -> None:
    manifests = helm.template()
    assert not {"Role", "RoleBinding"} & {each["kind"] for each in manifests}
    assert spark_conf(manifests) == {}
    assert [port["name"] for port in container(manifests)["ports"]] == ["http"]


def test_master_is_the_cluster_itself(helm: Helm) -> None:
    args = container(helm.template(EXECUTORS))["args"]
    assert args[args.index("--master") + 1] == "k8s://https://kubernetes.default.svc:443"


def test_configuration_is_one_that_the_service_takes(helm: Helm) -> None:
    conf = spark_conf(helm.template(EVERYTHING_ON))
    check_spark_conf(conf)
    assert slots("k8s://https://kubernetes.default.svc:443", conf) == 3 * 4
    assert combined("k8s://https://kubernetes.default.svc:443", conf)["spark.driver.bindAddress"] == "0.0.0.0"
    assert conf["spark.kubernetes.executor.limit.cores"] == "4"
    assert conf["spark.driver.memory"] == "4g"
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.kubernetes.namespace"] == "streams"


def test_value_of_the_user_wins(helm: Helm) -> None:
    conf = spark_conf(helm.template(EXECUTORS | {"sparkConf": {"spark.executor.memory": "7g", "spark.x": 2_000_000}}))
    assert (conf["spark.executor.memory"], conf["spark.x"]) == ("7g", "2000000")


def test_executors_find_the_driver(helm: Helm) -> None:
    manifests = helm.template(EXECUTORS)
    conf = spark_conf(manifests)
    service = only(manifests, "Service", "discovery")
    assert conf["spark.driver.host"] == f"{service['metadata']['name']}.streams.svc"
    assert service["spec"]["publishNotReadyAddresses"] is True, "the service is not ready before it has executors"
    server = only(manifests, "StatefulSet", "server")
    assert service["spec"]["selector"].items() <= server["spec"]["template"]["metadata"]["labels"].items()
    assert conf["spark.kubernetes.driver.pod.name"] == f"{server['metadata']['name']}-0"
    ports = {port["name"]: str(port["containerPort"]) for port in container(manifests)["ports"]}
    assert conf["spark.driver.port"] == ports["spark-driver"]
    assert conf["spark.driver.blockManager.port"] == ports["spark-blocks"]


def test_pod_template_is_where_spark_looks_for_it(helm: Helm) -> None:
    manifests = helm.template(EXECUTORS)
    folder, _, file = spark_conf(manifests)["spark.kubernetes.executor.podTemplateFile"].rpartition("/")
    (mount,) = [each for each in container(manifests)["volumeMounts"] if each["mountPath"] == folder]
    (volume,) = [each for each in pods(manifests)["server"]["volumes"] if each["name"] == mount["name"]]
    config = only(manifests, "ConfigMap", "executor")
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert list(config["data"]) == [file]
    (executor,) = executor_pod(manifests)["spec"]["containers"]
    assert executor["name"] == spark_conf(manifests)["spark.kubernetes.executor.podTemplateContainerName"]


def test_executors_share_data_image_user_and_secrets_with_the_service(helm: Helm) -> None:
    manifests = helm.template(EVERYTHING_ON)
    server, executor = pods(manifests)["server"], executor_pod(manifests)["spec"]
    (of_server,), (of_executor,) = server["containers"], executor["containers"]
    assert spark_conf(manifests)["spark.kubernetes.container.image"] == of_server["image"] == of_executor["image"]
    assert spark_conf(manifests)["spark.kubernetes.container.image.pullPolicy"] == of_server["imagePullPolicy"]
    for name in ("securityContext", "imagePullSecrets"):
        assert executor[name] == server[name]
    for name in ("securityContext", "envFrom"):
        assert of_executor[name] == of_server[name]
    shared = [each for each in of_executor["volumeMounts"] if each["mountPath"] != "/tmp"]
    assert {each["mountPath"] for each in shared} >= {"/data", "/tables", "/etc/braid/secrets/kafka-tls"}
    assert all(each in of_server["volumeMounts"] for each in shared)
    assert all(each in of_server["env"] for each in of_executor["env"])


def test_scratch_space_is_one_that_spark_takes_for_its_own(helm: Helm) -> None:
    # else it would mount another volume where the driver's are, which is /tmp, too
    (executor,) = executor_pod(helm.template(EXECUTORS))["spec"]["containers"]
    (scratch,) = [each for each in executor["volumeMounts"] if each["mountPath"] == "/tmp"]
    assert scratch["name"].startswith("spark-local-dir-")
    assert not any(each["name"] == "SPARK_LOCAL_DIRS" for each in executor["env"])


def test_executors_are_placed_and_labelled(helm: Helm) -> None:
    values = EVERYTHING_ON["executors"]
    pod = executor_pod(helm.template(EVERYTHING_ON))
    assert pod["metadata"]["annotations"] == values["podAnnotations"]
    assert values["podLabels"].items() <= pod["metadata"]["labels"].items()
    for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        assert pod["spec"][name] == values[name]


def test_change_of_the_executors_restarts_the_service_and_one_of_the_chart_does_not(helm: Helm) -> None:
    def checksum(executors: Manifest) -> str:
        manifests = helm.template(EXECUTORS | {"executors": {"enabled": True, **executors}})
        annotations = only(manifests, "StatefulSet", "server")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/executor"])

    assert checksum({}) == checksum({}) != checksum({"nodeSelector": {"a": "b"}})
    assert "helm.sh/chart" not in executor_pod(helm.template(EXECUTORS))["metadata"]["labels"]


def test_rights_are_to_pods_of_the_namespace(helm: Helm) -> None:
    manifests = helm.template(EXECUTORS)
    role, binding = only(manifests, "Role"), only(manifests, "RoleBinding")
    assert [(rule["apiGroups"], rule["resources"]) for rule in role["rules"]] == [([""], ["pods"])]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject["name"] == pods(manifests)["server"]["serviceAccountName"]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {subject["namespace"]} == {"streams"}
    assert not {"Role", "RoleBinding"} & {
        each["kind"] for each in helm.template(EXECUTORS | {"rbac": {"create": False}})
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"executors": {"enabled": True}}, "executors.enabled needs ReadWriteMany"),
        ({"deliverers": {"replicas": 1}}, "deliverers.replicas needs ReadWriteMany"),
        (EXECUTORS | {"persistence": {"enabled": False}}, "executors.enabled needs persistence.enabled"),
        (EXECUTORS | {"master": "local[2]"}, "master must be empty with executors.enabled"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_each_other_are_refused(helm: Helm, values: Manifest, message: str) -> None:
    done = helm.run("template", "demo", str(CHART), values=values)
    assert done.returncode != 0
    assert message in done.stderr
