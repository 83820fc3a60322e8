"""Publishing a batch: once, whole, and what was staged and never published goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from braid.engine.sink import RouterWriter, StagedRows, publish, sweep_unpublished
from braid.engine.wire import BLOCK, OUTCOME, PROGRESS
from braid.sources.core.errors import NotReady
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def rows_of(seq: int, block: str, epoch: int = 1, tuples: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return what partitions send for a batch with one result block, which refers to files of tuples."""
    progress: dict[str, Any] = {
        "seq": seq,
        "epoch": epoch,
        "previous_epoch": epoch - 1,
        "clocks_at_start": {"s-1": 5},
        "started_us": 1,
        "failures": {},
    }
    entry = {"path": block, "kind": "selection", "slots": [0], "counts": [1], "tuples": list(tuples)}
    partition = {
        "partition": 0,
        "progress": 1,
        "bytes": 7,
        "busy_us": 3,
        "failures": {"q-9": "raised"},
        "path": f"states/{seq}",
    }
    return [
        (BLOCK, orjson.dumps(entry).decode()),
        (PROGRESS, orjson.dumps(progress).decode()),
        (OUTCOME, orjson.dumps(partition).decode()),
    ]


def test_publishing_a_batch_again_changes_nothing(storage: Storage) -> None:
    publish(storage, 1, rows_of(1, "results/a"))
    first = storage.get("batches/000000000001.json")
    publish(storage, 1, rows_of(1, "results/b"))
    assert storage.get("batches/000000000001.json") == first
    record = RecordLog(storage, "batches").read(1)
    assert [block["path"] for block in record["results"]] == ["results/a"]
    assert record["failures"] == {"q-9": "raised"}
    assert record["bytes"] == {"state": 7}
    assert record["partitions"] == {"0": "states/1"}
    assert orjson.loads(storage.get("activations/000000000001.json"))["clocks"] == {"s-1": 5}


@pytest.mark.parametrize("flush_batches", [True, False])
def test_a_batch_is_flushed_before_its_record_is_there(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, flush_batches: bool
) -> None:
    published_when_flushed = []
    monkeypatch.setattr(
        Storage, "flush", lambda flushed: published_when_flushed.append(RecordLog(flushed, "batches").latest())
    )
    writer = RouterWriter(storage.uri, [0], join_row_limit=1, flush_batches=flush_batches)
    writer.commit([StagedRows(rows_of(1, "results/a"))], 0)
    assert published_when_flushed == ([0] if flush_batches else [])
    assert RecordLog(storage, "batches").latest() == 1


def test_a_batch_that_partitions_saw_differently_is_not_published(storage: Storage) -> None:
    """Source tasks that ran again after some partitions were done may have read other than the first time."""
    other_partition = {"partition": 1, "progress": 2, "bytes": 0, "busy_us": 0, "failures": {}, "path": None}
    with pytest.raises(NotReady, match="the same batch 1"):
        publish(storage, 1, [*rows_of(1, "results/a"), (OUTCOME, orjson.dumps(other_partition).decode())])
    assert RecordLog(storage, "batches").latest() == 0
    assert not storage.names("activations")


def test_the_record_says_when_the_first_delay_of_any_partition_runs_out(storage: Storage) -> None:
    for seq, due in enumerate([[None, None], [9, None, 7], [3]], start=1):
        partition = {"progress": 1, "bytes": 0, "busy_us": 0, "failures": {}, "path": None}
        partitions = [{**partition, "partition": i, "due_us": us} for i, us in enumerate(due)]
        publish(
            storage,
            seq,
            [
                *rows_of(seq, "results/a", seq),
                *((OUTCOME, orjson.dumps(partition).decode()) for partition in partitions),
            ],
        )
    records = RecordLog(storage, "batches")
    assert [records.read(seq)["emit_due_us"] for seq in (1, 2, 3)] == [None, 7, 3]


def test_files_that_no_record_names_are_swept(storage: Storage) -> None:
    published = [
        "results/000000000001-old",
        "results/000000000002-named",
        "results/000000000002-referred-to",
        "buckets/000000000002-held",
        "tuples/000000000002-held",
        "states/000000000002-held",
    ]
    staged = [
        "results/000000000002-staged",
        "tuples/000000000003-x",
        "results/000000000003-x",
        "buckets/000000000003-y",
        "dead-letters/000000000003-z",
        "states/000000000003-x",
    ]
    for path in (*published, *staged):
        storage.put(path, b"bytes")
    publish(storage, 1, rows_of(1, "results/000000000001-old"))
    publish(storage, 2, rows_of(2, "results/000000000002-named", epoch=2, tuples=["results/000000000002-referred-to"]))
    assert sweep_unpublished(storage) == len(staged)
    assert all(storage.exists(path) for path in published)
    assert not any(storage.exists(path) for path in staged)
