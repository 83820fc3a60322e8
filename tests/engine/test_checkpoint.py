"""Spark's checkpoint is of one moment with the batch log, or the job does not start."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from braid.engine.data_layout import ACTIVATIONS, CHANGELOGS, PARTITIONS, PLANS, write_activation
from braid.engine.partition_files import PartitionFiles
from braid.engine.planning.offsets import Offset
from braid.engine.recovery.checkpoint import COMMITS, OFFSETS, check_checkpoint
from braid.operators.state.bucket_store import INLINE_BYTES, STATES, put_payload
from braid.operators.state.partition_state import Payload, pack
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

OFFSET = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n' + orjson.dumps(Offset(seq=1).to_json())
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A data folder as a job leaves it that is killed in its third batch."""
    storage = Storage(str(tmp_path))
    for batch in range(3):
        storage.put(f"{OFFSETS}/{batch}", OFFSET)
    for batch in range(2):
        RecordLog(storage, "batches").append(batch + 1, {"seq": batch + 1, "epoch": 0, "partitions": {}})
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


def test_no_bit_of_the_offset_of_a_published_batch_may_be_another(storage: Storage) -> None:
    begin = OFFSET.rindex(b"\n") + 1
    for at in range(begin, len(OFFSET)):
        for bit in range(8):
            storage.put(f"{OFFSETS}/1", OFFSET[:at] + bytes([OFFSET[at] ^ 1 << bit]) + OFFSET[at + 1 :], durable=False)
            with pytest.raises(CorruptData, match=r"checkpoint/offsets/1 must be there, and whole"):
                check_checkpoint(storage)
    assert storage.exists(f"{OFFSETS}/2"), "that of the batch after it, which may be begun"


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


def test_partitions_are_as_many_as_in_the_newest_record(storage: Storage) -> None:
    RecordLog(storage, "batches").append(3, {"seq": 3, "epoch": 0, "partitions": {}, "operator_busy_us": [5, 7]})
    storage.put_json(PARTITIONS, {"partitions": 2})
    check_checkpoint(storage)
    for edited in (b'{"partitions":3}', b"{}", b"[]", b'{"partitions":"many"}', b""):
        storage.put(PARTITIONS, edited)
        with pytest.raises(CorruptData, match=r"partitions\.json must hold"):
            check_checkpoint(storage)
    storage.put(PARTITIONS, b'{"partitions":2}')  # as a version before wrote it
    check_checkpoint(storage)
    storage.delete(PARTITIONS)
    with pytest.raises(CorruptData, match=r"partitions, 2 as the record of batch 3 says.*it is missing"):
        check_checkpoint(storage)


def test_what_the_queries_are_rebuilt_of_must_be_there(storage: Storage) -> None:
    changelogs = RecordLog(storage, CHANGELOGS)
    for epoch in (1, 2, 3, 4):
        changelogs.append(epoch, {"epoch": epoch})
        write_activation(storage, epoch - 1, epoch, {})
    storage.put_json(f"{PLANS}/000000000001.json", {"epoch": 1})
    changelogs.trim(1)
    RecordLog(storage, "batches").append(3, {"seq": 3, "epoch": 3, "partitions": {}})
    check_checkpoint(storage)
    for folder, unneeded in ((CHANGELOGS, 0), (ACTIVATIONS, 1), (PLANS, 0)):
        for name in storage.names(folder)[unneeded : 3 if folder == ACTIVATIONS else None]:
            path = f"{folder}/{name}"
            whole = storage.get(path)
            storage.put(path, whole.replace(b":1", b":2").replace(b":2", b":9").replace(b":3", b":9")[:-1] + b" ")
            with pytest.raises(CorruptData, match=f"{path} must hold JSON"):
                check_checkpoint(storage)
            storage.delete(path)
            if name != "000000000004.json":  # of which nobody here knows
                with pytest.raises(CorruptData, match="it is missing"):
                    check_checkpoint(storage)
            storage.put(path, whole)
    check_checkpoint(storage)


def test_a_batch_record_must_not_be_missing_between_others(storage: Storage) -> None:
    for seq in (3, 4):
        RecordLog(storage, "batches").append(seq, {"seq": seq, "epoch": 0, "partitions": {}})
    storage.put(f"{OFFSETS}/3", OFFSET)
    check_checkpoint(storage)
    storage.delete("batches/000000000003.json")
    with pytest.raises(CorruptData, match=r"batches/000000000003\.json must hold.*it is missing"):
        check_checkpoint(storage)


def test_the_state_that_the_newest_record_names_must_be_there_and_whole(storage: Storage) -> None:
    state = PartitionFiles(storage, 3, None)
    bucket = Payload(*put_payload(storage, 3, bytes(INLINE_BYTES + 1)))
    state.put_entry(3, pack([Payload("", b"small"), bucket]))
    manifest = state.write_manifest()
    RecordLog(storage, "batches").append(3, {"seq": 3, "epoch": 0, "partitions": {"0": manifest}})
    check_checkpoint(storage)
    for path in [bucket.path, *(f"{STATES}/{name}" for name in storage.names(STATES))]:
        whole = storage.get(path)
        for damaged in (whole[:-1], b"", whole[:-1] + bytes([whole[-1] ^ 1]), None):
            storage.delete(path)
            if damaged is not None:
                storage.put(path, damaged)
            with pytest.raises(CorruptData, match=f"{path} must hold what was written.*from a backup"):
                check_checkpoint(storage)
        storage.put(path, whole)
    RecordLog(storage, "batches").append(4, {"seq": 4})
    storage.put(f"{OFFSETS}/3", OFFSET)
    with pytest.raises(CorruptData, match="Another version of Braid"):
        check_checkpoint(storage)
