"""A query that ends workers, on a running service: it is found, and all others go on with all their rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.chaos.acts import some_tuples
from tests.chaos.arena import RECOVERY_SECONDS, Arena, ConfinedService, bystanding, confined
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.service, pytest.mark.long, pytest.mark.xdist_group("chaos")]

# what a statement may ask for is bounded; without these bounds one query is enough to end workers
WITHOUT_BOUNDS = {
    "BRAID_MAX_GROUP_KEYS": "100000",
    "BRAID_MAX_STATEMENT_TOKENS": "1000000",
    "BRAID_MAX_TUPLE_BYTES": "1000000000",
}


@pytest.fixture(scope="module")
def unbounded_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfinedService]:
    """A service that accepts what it cannot evaluate."""
    service = confined(tmp_path_factory.mktemp("culprits"), WITHOUT_BOUNDS)
    try:
        service.start()
        yield service
        service.stop()
    finally:
        service.end_everything()


def query_that_takes_all_memory(arena: Arena, stream: str, operator: str) -> str:
    """Register a query that no worker can evaluate, push tuples for it, and return its id."""
    many = ",".join(f"v{operator}{n}" for n in range(12_000))
    answer = arena.query(f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 SECONDS] GROUP BY {many}")
    assert answer is not None
    assert answer.status_code == 201, answer.text
    query: str = answer.json()["id"]
    some_tuples(arena, stream)
    return query


def test_a_query_that_takes_all_memory_fails_with_the_reason_and_others_go_on(
    unbounded_service: ConfinedService,
) -> None:
    with Arena(unbounded_service, random.Random(1)) as arena, bystanding(unbounded_service, 3) as bystander:
        stream = arena.stream()
        query = query_that_takes_all_memory(arena, stream, "+")
        bystander.push()
        failed = bystander.api.wait_state(query, "FAILED", deadline_seconds=RECOVERY_SECONDS)
        assert "worker_memory_bytes" in failed["error"] or "batch_limit_seconds" in failed["error"]
        bystander.settle()
        unbounded_service.wait_ready(RECOVERY_SECONDS)
        sums = arena.query(f"SELECT SUM(v) AS s FROM {stream}")
        assert sums is not None
        assert sums.status_code == 422, "and the service answers as ever"
        arena.leave()
        bystander.push()


def test_a_service_that_was_killed_while_a_culprit_is_looked_for_looks_again(
    unbounded_service: ConfinedService,
) -> None:
    with Arena(unbounded_service, random.Random(2)) as arena, bystanding(unbounded_service, 4) as bystander:
        stream = arena.stream()
        query = query_that_takes_all_memory(arena, stream, "*")
        wait_until(
            lambda: arena.processes("braid.engine.recovery.isolation"),
            RECOVERY_SECONDS,
            "the job looks for what is to blame",
        )
        unbounded_service.kill()
        unbounded_service.revive()
        bystander.push()
        bystander.api.wait_state(query, "FAILED", deadline_seconds=RECOVERY_SECONDS)
        bystander.settle()
        arena.leave()
