"""A service that is killed between the steps of a test, by lot."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.kit.client import Api
from tests.kit.fixtures import FreshService


def run_with_crashes(fresh_service: FreshService, seed: int, run: Callable[[Api, Callable[[], None]], None]) -> None:
    """Call ``run`` with a new service, and with what kills and starts that one half of the times it is called."""
    service = fresh_service()
    draw = random.Random(seed)

    def crash() -> None:
        if draw.random() < 0.5:
            service.kill()
            service.start()

    with Api(service.url, on_unreachable=service.start) as api:
        run(api, crash)
