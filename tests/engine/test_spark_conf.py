"""Spark's configuration: what wins, what is refused, and the parallelism that it says."""

from __future__ import annotations

import doctest
import os
import socket
import uuid
from contextlib import closing, nullcontext, suppress

import pytest

from braid.engine.spark import spark_conf
from braid.engine.spark.spark_conf import (
    DECIDED,
    DRIVER_OPTIONS,
    EXECUTOR_OPTIONS,
    LONGEST_SOCKET_FOLDER,
    SOCKETS,
    SUGGESTED,
    check_spark_conf,
    combined,
    flattened,
    slots,
)
from braid.sources.core.errors import NotAllowed


def test_what_is_given_wins_over_what_is_suggested() -> None:
    conf = combined("local[2]", {"spark.driver.memory": "5g", "spark.executor.memory": "3g"})
    assert (conf["spark.driver.memory"], conf["spark.executor.memory"]) == ("5g", "3g")
    assert DECIDED.items() <= conf.items()
    assert all(conf[name] == value for name, value in SUGGESTED.items() if name != "spark.driver.memory")


@pytest.mark.parametrize("name", [DRIVER_OPTIONS, EXECUTOR_OPTIONS])
def test_java_options_are_added_to_ours(name: str) -> None:
    assert combined("local", {name: "-Dx=1"})[name] == f"{SUGGESTED[name]} -Dx=1"
    assert combined("local", {})[name] == SUGGESTED[name]


@pytest.mark.parametrize("master", ["local", "local[*]", "local[3]", "local-cluster[2,1,1024]"])
def test_the_driver_listens_on_loopback_where_all_of_spark_is_here(master: str) -> None:
    conf = combined(master, {})
    assert (conf["spark.driver.host"], conf["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("master", ["k8s://https://kubernetes.default.svc:443", "spark://spark:7077", "yarn"])
def test_executors_elsewhere_are_not_told_to_look_on_their_own_machine(master: str) -> None:
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & combined(master, {}).keys()
    user_conf = {"spark.driver.host": "braid.streams.svc"}
    assert user_conf.items() <= combined(master, user_conf).items()


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[*]", {}, os.cpu_count()),
        ("local", {}, 1),
        ("local[3]", {"spark.executor.instances": "7"}, 3),
        ("local[3,4]", {}, 3),
        ("local-cluster[2,3,1024]", {"spark.executor.instances": "7"}, 6),
        ("k8s://https://api", {}, 2),
        ("k8s://https://api", {"spark.executor.cores": "3"}, 6),
        ("k8s://https://api", {"spark.executor.instances": "4", "spark.executor.cores": "3"}, 12),
        ("spark://a:7077", {"spark.executor.instances": "4"}, 4),
        ("spark://a:7077", {"spark.executor.cores": "4"}, 8),
        ("yarn", {}, 8),
    ],
)
def test_parallelism_follows_from_the_master_and_the_executors(
    master: str, conf: dict[str, str], expected: int
) -> None:
    assert slots(master, conf) == expected


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ("spark.ui.enabled=true", "a table of names and values; got 'spark.ui.enabled=true'"),
        (["spark.ui.enabled"], "a table of names and values"),
        ({"executor.cores": "1"}, "names that begin with 'spark.'; got 'executor.cores'"),
        ({"spark.a b": "1"}, "got 'spark.a b'"),
        ({"spark.executor.cores": 2}, "a text for 'spark.executor.cores'; got 2"),
        ({"spark.executor.cores": ["2"]}, "a text for 'spark.executor.cores'"),
        ({"spark.executor.cores": "two"}, "above 0 for 'spark.executor.cores'; got 'two'"),
        ({"spark.executor.instances": "0"}, "above 0 for 'spark.executor.instances'; got '0'"),
        (
            {"spark.python.worker.reuse": "false"},
            "leave out 'spark.python.worker.reuse': results rest on it being true",
        ),
        ({"spark.master": "yarn"}, "leave out 'spark.master': the setting master says it"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(conf: object, message: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        check_spark_conf(conf)
    assert message in refused.value.detail


def test_nothing_that_is_suggested_is_refused() -> None:
    check_spark_conf({})
    check_spark_conf(SUGGESTED)
    check_spark_conf({"spark.executor.instances": "10", "spark.hadoop.fs.s3a.impl": "x"})


def test_tables_become_names_and_texts() -> None:
    assert doctest.testmod(spark_conf).attempted
    assert doctest.testmod(spark_conf).failed == 0
    assert flattened({"spark.a": 1.5, "spark.b": "x", "spark.c": [1]}) == {
        "spark.a": "1.5",
        "spark.b": "x",
        "spark.c": [1],
    }
    assert flattened("no table") == "no table"


@pytest.mark.parametrize("length", [LONGEST_SOCKET_FOLDER - 1, LONGEST_SOCKET_FOLDER, LONGEST_SOCKET_FOLDER + 1])
def test_unix_domain_sockets_are_used_where_their_paths_have_room(length: int) -> None:
    folder = "/" + "t" * (length - 1)
    path = f"{folder}/.{uuid.uuid4()}.sock"  # as PySpark names them (pyspark/daemon.py)
    with closing(socket.socket(socket.AF_UNIX)) as listening, suppress(FileNotFoundError):
        fits = len(path) <= 107
        with nullcontext() if fits else pytest.raises(OSError, match="too long"):
            listening.bind(path)
    assert (SOCKETS.items() <= combined("local", {}, folder).items()) == fits
    (name,) = SOCKETS
    assert combined("local", {name: "false"}, "/tmp")[name] == "false"
