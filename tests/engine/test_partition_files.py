"""The state of a partition as files: whatever batch begins with a manifest finds the state that it names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from braid.engine.partition_files import PartitionFiles
from braid.operators.state.bucket_store import STATES
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage
from tests.operators.pipeline import MemoryState


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def change(state: PartitionFiles | MemoryState, seq: int, entries: dict[int, bytes], rng: random.Random) -> None:
    """Change a state as a partition does in batch ``seq``; ``known`` are its entries."""
    for old in sorted(entries):
        if rng.random() < 0.3:
            state.drop_entry(old)
            del entries[old]
    if rng.random() < 0.7:
        entries[seq] = rng.randbytes(rng.randint(1, 9))
        state.put_entry(seq, entries[seq])
    if rng.random() < 0.9:
        state.set_head(f"head of {seq}".encode())


@pytest.mark.parametrize("seed", range(20))
def test_the_state_is_that_of_a_dictionary_however_often_batches_run(storage: Storage, seed: int) -> None:
    rng = random.Random(seed)
    path: str | None = None
    model = MemoryState()
    entries: dict[int, bytes] = {}
    for seq in range(1, 60):
        for _ in range(rng.randint(0, 2)):  # attempts whose batch was not published
            attempt = PartitionFiles(storage, seq, path)
            change(attempt, seq, dict(entries), rng)
            attempt.write_manifest()
        state, choices = PartitionFiles(storage, seq, path), rng.getstate()
        change(model, seq, dict(entries), rng)
        rng.setstate(choices)
        change(state, seq, entries, rng)
        before, path = path, state.write_manifest()
        read = PartitionFiles(storage, seq + 1, path)
        assert read.head() == model.head()
        assert {number: read.entry(number) for number in entries} == entries
        if before is not None:  # what the batch began with is still there, should it run again
            again = PartitionFiles(storage, seq, before)
            assert all(again.entry(int(number)) for number in again._entries)


def test_what_batches_drop_goes_two_batches_later(storage: Storage) -> None:
    path: str | None = None
    for seq in range(1, 40):
        state = PartitionFiles(storage, seq, path)
        state.put_entry(seq, b"entry")
        if seq > 1:
            assert state.oldest == seq - 1
            state.drop_entry(seq - 1)
        state.set_head(str(seq).encode())
        path = state.write_manifest()
        batches = {int(name[:12]) for name in storage.names(STATES)}
        assert batches == set(range(max(1, seq - 2), seq + 1)), "a manifest and an entry each"


def test_a_batch_that_changes_nothing_names_the_same_manifest(storage: Storage) -> None:
    assert PartitionFiles(storage, 1, None).write_manifest() is None
    state = PartitionFiles(storage, 1, None)
    state.set_head(b"{}")
    path = state.write_manifest()
    assert path is not None
    assert PartitionFiles(storage, 9, path).write_manifest() == path


def test_a_state_that_is_gone_or_damaged_is_named(storage: Storage) -> None:
    state = PartitionFiles(storage, 1, None)
    state.put_entry(1, b"entry")
    path = state.write_manifest()
    assert path is not None
    entry = next(f"{STATES}/{name}" for name in storage.names(STATES) if f"{STATES}/{name}" != path)
    for damage in (lambda _: None, lambda data: data[:-1], lambda data: data.replace(b"e", b"f"), lambda _: b""):
        for damaged in (entry, path):
            whole = storage.get(damaged)
            storage.delete(damaged)
            if (content := damage(whole)) is not None:
                storage.put(damaged, content)
            with pytest.raises(CorruptData, match=f"{damaged} must hold what was written.*from a backup"):
                PartitionFiles(storage, 2, path).entry(1)
            storage.put(damaged, whole)
    assert PartitionFiles(storage, 2, path).entry(1) == b"entry"
