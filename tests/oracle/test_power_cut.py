"""The oracle with power cuts in between: what was answered, and every row, must be there when the disk comes back."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.power import Disk
from tests.oracle.driver import Driver
from tests.oracle.join_run import JoinRun
from tests.oracle.model import SECOND, Aggregation, Push
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, COUNT, SCHEMA, TUMBLE, others
from tests.oracle.verify import verify

pytestmark = [pytest.mark.service, pytest.mark.long]

CUTS = int(os.environ.get("BRAID_POWER_CUTS", "3"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.end()


def test_a_power_cut_loses_doubles_and_changes_nothing(fresh_service: FreshService, disk: Disk, tmp_path: Path) -> None:
    seed = random.randrange(1000)
    print(f"seed {seed}")
    rng = random.Random(seed)
    service = fresh_service(disk.folder / "data", BRAID_DRAIN_TIMEOUT="600")
    try:
        with Api(service.url, on_unreachable=service.revive) as api:
            joins = JoinRun(api, seed=seed, joins=9, rounds=CUTS + 1, folder=tmp_path)
            driver = Driver(api, SCHEMA)
            driver.create([ALL, BY_GEM_PACK, *others()[::3]])
            for number in range(CUTS):
                joins.next_round()
                driver.push(Push(200, seed=22 + number, span=10 * SECOND))
                driver.poll()
                driver.create([Aggregation((COUNT,), TUMBLE), ALL], wait=rng.choice([0, 30]))
                time.sleep(rng.uniform(0, 1))  # the moment must not matter
                disk.cut()
                service.end_everything()
                disk.come_back()
                service.start()
                driver.poll()
            joins.next_round()
            joins.finish()
            driver.push(Push(200, seed=30, span=10 * SECOND))
            driver.finish()
            verify(driver)
            joins.verify()
        service.stop()
    finally:
        service.end_everything()
