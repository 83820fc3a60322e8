"""What the Spark driver tells of executors on a local master; on others see tests/executors."""

from __future__ import annotations

import os

import pytest

from braid.engine.spark.executors import Registered, read_registered
from braid.sources.core.storage import Storage
from tests.kit.client import Api
from tests.kit.service import RunningService

pytestmark = pytest.mark.service


def test_on_a_local_master_the_drivers_process_is_the_one_executor(service: RunningService, api: Api) -> None:
    executors = api.get("/plan")["executors"]
    assert (executors["now"], executors["wanted"], executors["bounds"]) == (1, None, None)
    assert read_registered(Storage(str(service.data_dir))) == Registered(1, os.cpu_count() or 1, idle=False)
