"""When a batch is looked into: once it was begun again in vain, or took too long; and how its offset is rewritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from braid.engine.data_layout import BATCHES
from braid.engine.planning.offsets import Offset, PassedOver
from braid.engine.recovery.checkpoint import read_offset, rewrite_offset
from braid.engine.recovery.isolation_log import begin_attempt, note_outlasted, pending_batch
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def log_offset(storage: Storage, seq: int) -> None:
    """Write the offset of a batch as Spark does."""
    lines = [b"v1", b'{"batchWatermarkMs":0}', orjson.dumps(Offset(seq=seq, streams={"a": {"0": seq}}).to_json())]
    storage.put(f"checkpoint/offsets/{seq - 1}", b"\n".join(lines))


def test_a_batch_is_pending_from_its_offset_to_its_record(storage: Storage) -> None:
    assert pending_batch(storage) is None
    log_offset(storage, 1)
    assert pending_batch(storage) == 1
    RecordLog(storage, BATCHES).append(1, {})
    assert pending_batch(storage) is None


def test_a_batch_is_looked_into_once_it_was_begun_again_in_vain(storage: Storage) -> None:
    assert not begin_attempt(storage)
    log_offset(storage, 1)
    assert not begin_attempt(storage), "it may have been an accident"
    assert begin_attempt(storage)
    assert not begin_attempt(storage), "it was looked into just now"
    RecordLog(storage, BATCHES).append(1, {})
    log_offset(storage, 2)
    assert not begin_attempt(storage), "another batch is counted anew"


def test_a_batch_that_took_too_long_is_looked_into_at_once(storage: Storage) -> None:
    log_offset(storage, 1)
    note_outlasted(storage, 1)
    assert begin_attempt(storage)
    assert not begin_attempt(storage)
    RecordLog(storage, BATCHES).append(1, {})
    log_offset(storage, 2)
    note_outlasted(storage, 1)
    assert not begin_attempt(storage), "it was another one"


def test_torn_files_count_as_none(storage: Storage) -> None:
    log_offset(storage, 1)
    for path in ("attempts.json", "outlasted.json"):
        storage.put(path, b'{"seq"')
    assert not begin_attempt(storage)


def test_an_offset_is_rewritten_in_the_form_of_sparks_log(storage: Storage) -> None:
    log_offset(storage, 3)
    storage.put("checkpoint/offsets/.2.crc", b"of what it was")
    changed = replace(read_offset(storage, 3), failed={"q-1": "why"}, passed_over=(PassedOver("a", "0", 1, 2, "why"),))
    rewrite_offset(storage, 3, changed)
    version, metadata, _ = storage.get("checkpoint/offsets/2").splitlines()
    assert (version, metadata) == (b"v1", b'{"batchWatermarkMs":0}')
    assert read_offset(storage, 3) == changed
    assert not storage.exists("checkpoint/offsets/.2.crc")
