"""A ring gives the same tuples for ever, with the event times that it is told, and without copying them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from braid.bench_driver.queues.datasets import RING_ROWS, find_dataset
from braid.bench_driver.queues.ring import Ring


def ring(seed: int = 1, stream: str = "a", rows: int = 1000, **options: object) -> Ring:
    return Ring(find_dataset("astream"), options, seed, stream, rows)


def test_keys_go_on_over_the_end_of_the_ring() -> None:
    small = ring(keys=7)
    assert small.rows == 1001
    end = small.end_of_turn(0)
    last_batch, next_batch = small.batch(end - 20, np.arange(20)), small.batch(end, np.arange(20))
    keys = np.array(last_batch["key"].to_pylist() + next_batch["key"].to_pylist())
    assert ((keys[:-1] + 1) % 7 == keys[1:]).all()


def test_a_full_ring_has_about_a_million_tuples() -> None:
    full = Ring(find_dataset("astream"), {}, 1, "a")
    assert RING_ROWS <= full.rows < RING_ROWS + 1000
    assert full.rows % 1000 == 0


def test_each_turn_gives_the_same_tuples_at_other_times() -> None:
    small = ring()
    batch, later_batch = small.batch(10, np.arange(50)), small.batch(10 + 7 * small.rows, np.arange(50) + 999)
    assert batch.drop_columns(["time"]) == later_batch.drop_columns(["time"])
    assert batch["time"].cast(pa.int64()).to_pylist() == list(range(50))
    assert later_batch["time"].cast(pa.int64()).to_pylist() == list(range(999, 1049))
    assert batch.schema == small.schema
    assert small.schema.field("time").type == pa.timestamp("us")


def test_tuples_are_not_copied() -> None:
    small = ring()
    batch, part = small.batch(0, np.arange(100)), small.batch(40, np.arange(10))
    assert part["field0"].buffers()[1].address == batch["field0"].buffers()[1].address


def test_streams_and_seeds_differ() -> None:
    rings = [ring(), ring(seed=2), ring(stream="b"), ring()]
    fields = [one_ring.batch(0, np.arange(100))["field0"] for one_ring in rings]
    assert fields[0] == fields[3]
    assert fields[0] != fields[1]
    assert fields[0] != fields[2]


def test_a_batch_must_not_go_over_the_end() -> None:
    small = ring()
    with pytest.raises(ValueError, match="must not go beyond 1000"):
        small.batch(990, np.arange(11))
