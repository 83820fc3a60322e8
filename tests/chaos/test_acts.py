"""Each act of chaos by itself: the rows of all others are right, and the service is ready again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.acts import ACTS
from tests.chaos.arena import Act, ConfinedService, carry_out, confined
from tests.chaos.clocks import CLOCKS
from tests.kit.moved_clock import NO_CLOCK
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long, pytest.mark.xdist_group("chaos")]


@pytest.fixture(scope="module")
def arena_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfinedService]:
    """One service for all acts: what one leaves behind must not matter to the next."""
    service = confined(tmp_path_factory.mktemp("chaos"), {})
    try:
        service.start()
        yield service
        service.stop()
    finally:
        service.end_everything()


@pytest.mark.parametrize("act", ACTS, ids=[act.__name__ for act in ACTS])
def test_others_have_all_their_rows_after(act: Act, arena_service: ConfinedService) -> None:
    if act in CLOCKS and arena_service.clock is None:
        pytest.skip(NO_CLOCK)
    arena_service.revive()
    carry_out(act, arena_service, seed=7)
    wait_until(arena_service.alive, 1, "the service runs")
