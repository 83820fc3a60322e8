"""Spark's checkpoint is of one moment with the batch log, or the job does not start."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from operators.bucket_store import STATES
from operators.job.checkpoint import COMMITS, OFFSETS, check_checkpoint
from operators.job.lane_files import LaneFiles
from operators.job.offsets import Offset
from sources.errors import CorruptData
from sources.record_log import RecordLog
from sources.storage import Storage

OFFSET = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n' + orjson.dumps(Offset(seq=1).to_json())
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A data folder as a job leaves it that is killed in its third batch."""
    storage = Storage(str(tmp_path))
    for batch in range(3):
        storage.put(f"{OFFSETS}/{batch}", OFFSET)
    for batch in range(2):
        RecordLog(storage, "batches").append(batch + 1, {"seq": batch + 1, "lanes": {}})
        storage.put(f"{COMMITS}/{batch}", COMMIT)
    for folder in (OFFSETS, COMMITS):  # what was being written
        storage.put(f"{folder}/.9.8f0a.tmp", b"")
    return storage


def files(storage: Storage) -> list[str]:
    """Return what the check may remove, and has left."""
    return [f"{folder}/{name}" for folder in ("batches", OFFSETS, COMMITS) for name in storage.names(folder)]


def test_what_a_killed_job_leaves_stays(storage: Storage) -> None:
    before = files(storage)
    check_checkpoint(storage)
    storage.delete(f"{OFFSETS}/2")  # before that batch
    storage.delete(f"{COMMITS}/1")  # after its record
    check_checkpoint(storage)
    assert files(storage) == [path for path in before if path not in (f"{OFFSETS}/2", f"{COMMITS}/1")]


def test_a_new_folder_has_neither(tmp_path: Path) -> None:
    check_checkpoint(Storage(str(tmp_path)))


@pytest.mark.parametrize("path", [f"{OFFSETS}/2", f"{COMMITS}/1"])
def test_what_a_power_cut_tore_and_nobody_needs_goes(storage: Storage, path: str) -> None:
    whole, before = storage.get(path), files(storage)
    for length in range(len(whole)):
        for filling in (b"", bytes(len(whole) - length)):
            storage.put(path, whole[:length] + filling)
            check_checkpoint(storage)
            assert files(storage) == [file for file in before if file != path]
    storage.put(path, whole)
    check_checkpoint(storage)
    assert files(storage) == before


def test_an_offset_of_a_published_batch_must_be_there(storage: Storage) -> None:
    storage.delete(f"{OFFSETS}/2")
    for torn in (OFFSET[:-9], b""):
        storage.put(f"{OFFSETS}/1", torn)
        with pytest.raises(CorruptData, match=r"checkpoint/offsets/1 must be there, and whole.*batch 2 was published"):
            check_checkpoint(storage)
    storage.delete(f"{OFFSETS}/1")
    with pytest.raises(CorruptData, match="checkpoint/offsets/1 must be there"):
        check_checkpoint(storage)
    storage.delete_folder("checkpoint")
    with pytest.raises(CorruptData, match="checkpoint/offsets/1 must be there"):
        check_checkpoint(storage)


def test_the_record_of_a_committed_batch_must_be_there(storage: Storage) -> None:
    storage.delete("batches/000000000002.json")
    with pytest.raises(CorruptData, match=r"batches/000000000002\.json must be there.*Spark committed batch 2"):
        check_checkpoint(storage)


def test_the_state_that_the_newest_record_names_must_be_there_and_whole(storage: Storage) -> None:
    state = LaneFiles(storage, 3, None)
    state.put_entry(3, b"entry")
    manifest = state.settle()
    RecordLog(storage, "batches").append(3, {"seq": 3, "lanes": {"0": manifest}})
    check_checkpoint(storage)
    for path in [f"{STATES}/{name}" for name in storage.names(STATES)]:
        whole = storage.get(path)
        storage.put(path, whole[:-1])
        with pytest.raises(CorruptData, match=f"{path} must be there, and whole"):
            check_checkpoint(storage)
        storage.put(path, whole)
    RecordLog(storage, "batches").append(4, {"seq": 4})
    storage.put(f"{OFFSETS}/3", OFFSET)
    with pytest.raises(CorruptData, match="Another version of Braid"):
        check_checkpoint(storage)
