"""The plan log: a snapshot, changelogs and activations give what applying everything from the start gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.engine.data_layout import CHANGELOGS, PLANS, write_activation
from braid.engine.plan_log import PlanLog
from braid.engine.planning.offsets import Offset
from braid.operators.live_queries import LiveQueries
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.operators.pipeline import STREAM, aggregation, changelog


def write_history(storage: Storage, rng: random.Random) -> tuple[list[Offset], list[dict[str, Any]]]:
    """Write changelogs, activations and snapshots; return the offsets of all batches and the plan of each."""
    log, live = RecordLog(storage, CHANGELOGS), LiveQueries()
    offsets, plans = [Offset()], [live.to_json()]
    clock = None
    running: list[tuple[str, int]] = []
    for seq in range(1, rng.randint(3, 15)):
        epoch = live.epoch
        for _ in range(rng.choice([0, 0, 1, 3])):
            number = live.epoch + 1
            deleted = [q for q in running if rng.random() < 0.2]
            freed = [q for q in deleted if rng.random() < 0.5]
            running = [q for q in running if q not in freed]
            slot = next(s for s in range(100) if s not in {s for _, s in running})
            running.append((f"q{number}", slot))
            record = changelog(
                number, [(f"q{number}", slot, aggregation())], deleted, freed, streams=[STREAM] if number == 1 else []
            )
            log.append(number, record)
            live.apply(record, {STREAM.id: clock})
        clocks = {STREAM.id: clock}
        write_activation(storage, epoch, live.epoch, clocks)
        if rng.random() < 0.2:
            storage.put(f"{PLANS}/{live.epoch:012d}.json", orjson.dumps(live.to_json()))
        offsets.append(Offset(seq, live.epoch, clocks=clocks))
        plans.append(live.to_json())
        clock = rng.randint(0, 9) + (clock or 0)
    return offsets, plans


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_plan_of_any_batch(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    storage = Storage(str(tmp_path_factory.mktemp("data")))
    offsets, plans = write_history(storage, rng)
    plan = PlanLog(storage)
    seq = 1
    for _ in range(25):
        assert plan.at(offsets[seq - 1], offsets[seq]).to_json() == plans[seq], (seed, seq)
        jump = rng.random()  # the next batch, one later (others ran those between), a replay, another process
        seq = min(seq + 1, len(plans) - 1) if jump < 0.6 else rng.randint(1, len(plans) - 1)
        if jump > 0.9:
            plan = PlanLog(storage)


def test_a_batch_in_flight_needs_no_activation(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    RecordLog(storage, CHANGELOGS).append(1, changelog(1, [("a", 0, aggregation())], streams=[STREAM]))
    live = PlanLog(storage).at(Offset(), Offset(1, 1, clocks={STREAM.id: 5}))
    assert live.by_slot[0].active_from == {STREAM.id: 5}


def test_a_missing_activation_is_told(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    RecordLog(storage, CHANGELOGS).append(1, changelog(1))
    with pytest.raises(CorruptData, match="Epoch 1 is in the offset log, but no activation"):
        PlanLog(storage).at(Offset(1, 1), Offset(2, 1))


def test_the_changelogs_before_a_snapshot_are_not_needed(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    live = LiveQueries()
    for epoch in (1, 2):
        live.apply(changelog(epoch, [(f"q{epoch}", epoch, aggregation())]), {STREAM.id: epoch})
    storage.put(f"{PLANS}/{2:012d}.json", orjson.dumps(live.to_json()))
    RecordLog(storage, CHANGELOGS).append(3, changelog(3, [], [("q1", 1)], [("q1", 1)]))
    live_at_5 = PlanLog(storage).at(Offset(4, 2), Offset(5, 3, clocks={STREAM.id: 9}))
    assert [q.id for q in live_at_5.by_slot.values()] == ["q2"]


def test_no_activation_is_written_for_a_batch_without_a_new_epoch(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    write_activation(storage, 3, 3, {})
    assert storage.names("activations") == []
