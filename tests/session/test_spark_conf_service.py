"""What a user adds to Spark's configuration reaches the driver and its executors."""

from __future__ import annotations

import orjson
import psutil
import pytest

from tests.kit.fixtures import FreshService

pytestmark = pytest.mark.service


def test_given_configuration_reaches_the_driver_and_its_executors(fresh_service: FreshService) -> None:
    conf = {
        "spark.driver.memory": "900m",
        "spark.driver.extraJavaOptions": "-Dbraid.driver=yes",
        "spark.executor.extraJavaOptions": "-Dbraid.executor=yes",
    }
    service = fresh_service(BRAID_MASTER="local-cluster[1,1,1024]", BRAID_SPARK_CONF=orjson.dumps(conf).decode())
    jvm = psutil.Process(orjson.loads((service.data_dir / "job.json").read_bytes())["jvm_pid"])
    driver = jvm.cmdline()
    assert "-Xmx900m" in driver
    assert {"-Dbraid.driver=yes", "-Xss4m"} <= set(driver), "ours are kept"
    executors = [each.cmdline() for each in jvm.children() if "-Dbraid.executor=yes" in each.cmdline()]
    assert len(executors) == 1
    shown = [each.cmdline() for each in psutil.Process(service.pid).children() if each.pid != jvm.pid]
    assert all("spark.driver" not in argument for command in shown for argument in command), "it may have secrets"
