"""What a user adds to Spark's configuration reaches Spark."""

from __future__ import annotations

import orjson
import psutil
import pytest

from tests.kit.fixtures import FreshService

pytestmark = [pytest.mark.service, pytest.mark.long]


def test_given_configuration_reaches_the_driver(fresh_service: FreshService) -> None:
    conf = {"spark.driver.memory": "900m", "spark.driver.extraJavaOptions": "-Dbraid.driver=yes"}
    service = fresh_service(BRAID_SPARK_CONF=orjson.dumps(conf).decode())
    job = orjson.loads((service.data_dir / "job.json").read_bytes())
    jvm = psutil.Process(job["jvm_pid"]).cmdline()
    assert "-Xmx900m" in jvm
    assert {"-Dbraid.driver=yes", "-Xss4m"} <= set(jvm), "ours are kept"
    command_line = psutil.Process(job["pid"]).cmdline()
    assert not any("braid.driver" in argument for argument in command_line), "it may have secrets"
