"""The push log: offsets, group commit, recovery after crashes at any byte, trimming; and its readers."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.connectors.push import PushConnector, PushLog
from braid.sources.connectors.segment import SegmentFile, list_segments, segment_path
from braid.sources.core.errors import Conflict, CorruptData, NotAllowed, NotReady
from braid.sources.core.storage import Storage
from tests.sources.pushed import DEFINITION, SCHEMA, bad, everything, folder_of, read, tuples


def test_what_is_appended_is_read_at_its_offsets(storage: Storage) -> None:
    reader = PushConnector(storage, DEFINITION)
    assert reader.available(0) == {"0": (0, 0)}
    log = PushLog(storage, DEFINITION)
    assert log.append(tuples(0, 1), bad(2), 1_000, 300) == 3
    assert log.append(tuples(), bad(3, 4), 2_000, 20) == 5
    assert log.append(tuples(), [], 2_500, 20) == 5
    assert log.append(tuples(5, 6, 7), [], 3_000, 90) == 8
    assert reader.available(0) == {"0": (0, 8)}
    assert log.end() == 8
    first, second, third = reader.read("0", 0, 8)
    assert first.tuples.equals(tuples(0, 1))
    assert first.malformed == tuple(bad(2))
    assert (first.received_us, second.received_us, third.received_us) == (1_000, 2_000, 3_000)
    assert (first.bytes, second.bytes, third.bytes) == (300, 20, 90)
    assert second.tuples.schema == SCHEMA.arrow
    everything_once = [0, 1, "raw 2", "raw 3", "raw 4", 5, 6, 7]
    for start in range(9):
        for end in range(start, 9):
            chunks = list(reader.read("0", start, end))
            assert everything(chunks) == everything_once[start:end]
    assert sum(c.bytes for n in range(8) for c in reader.read("0", n, n + 1)) == 410
    with pytest.raises(ValueError, match="partition '0' only"):
        next(reader.read("1", 0, 1))
    log.close()


def test_offsets_that_are_not_there_are_an_error(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(tuples(0, 1), [], 0, 0)
    with pytest.raises(CorruptData, match="ends before them"):
        read(storage, 0, 3)
    with pytest.raises(CorruptData, match="ends before them"):
        read(storage, 2, 3)
    log.close()


def test_reopening_goes_on_where_it_was_and_answers_keys(storage: Storage) -> None:
    outcome = {"accepted": 2, "rejected": 0, "errors": []}
    log = PushLog(storage, DEFINITION)
    log.append(tuples(0, 1), [], 7, 100, key="k1", fingerprint="f", outcome=outcome)
    log.append(tuples(2), [], 8, 100)
    log.append(tuples(), [], 9, 0, key="empty")
    log.close()
    log = PushLog(storage, DEFINITION)
    assert log.end() == 3
    keyed = [f for f in log.kept_frames() if f.key is not None]
    answers = [(f.key, f.fingerprint, f.outcome, f.received_us) for f in keyed]
    assert answers == [("k1", "f", outcome, 7), ("empty", None, None, 9)]
    assert log.append(tuples(3), [], 10, 1) == 4
    assert read(storage, 0, 4) == [0, 1, 2, 3]
    log.close()


def test_a_second_writer_is_kept_out(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION)
    with pytest.raises(Conflict, match="One process at a time may write stream 'pushed'"):
        PushLog(storage, DEFINITION)
    log.close()
    log.close()
    with pytest.raises(NotReady, match="the log is closed"):
        log.append(tuples(1), [], 0, 0)
    PushLog(storage, DEFINITION).close()


def test_a_remote_storage_is_not_allowed() -> None:
    remote = Storage("mock://bucket")
    with pytest.raises(NotAllowed, match="local folder, got 'mock://bucket'"):
        PushLog(remote, DEFINITION)
    with pytest.raises(NotAllowed, match="local folder"):
        PushConnector(remote, DEFINITION)


def test_segments_roll_and_are_trimmed_when_wholly_below(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION, roll_bytes=2_000)
    reader = PushConnector(storage, DEFINITION)
    for n in range(20):
        log.append(tuples(n), [], n, 10)
        assert everything(list(reader.read("0", max(0, n - 5), n + 1))) == list(range(max(0, n - 5), n + 1))
    firsts = list_segments(folder_of(storage))
    assert len(firsts) > 3
    assert read(storage, 0, 20) == list(range(20))
    log.trim(firsts[2] - 1)
    assert list_segments(folder_of(storage)) == firsts[1:]
    log.trim(10**9)
    assert list_segments(folder_of(storage)) == firsts[-1:]
    with pytest.raises(CorruptData, match="not kept any more"):
        list(reader.read("0", 0, 20))
    assert everything(list(reader.read("0", firsts[-1], 20))) == list(range(firsts[-1], 20))
    log.close()
    log = PushLog(storage, DEFINITION)
    assert log.end() == 20
    log.close()


def test_frames_with_a_key_without_offsets_do_not_disturb_rolling(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION, roll_bytes=1)
    for n in range(5):
        log.append(tuples(n), [], 0, 0)
        log.append(tuples(), [], 0, 0, key=f"k{n}")
    assert [frame.key for frame in log.kept_frames() if frame.key is not None] == [f"k{n}" for n in range(5)]
    assert read(storage, 0, 5) == [0, 1, 2, 3, 4]
    log.close()


def test_threads_share_flushes_and_lose_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = []

    def slow_sync(file: int) -> None:
        flushes.append(file)
        time.sleep(0.005)  # a disk that takes its time
        os.fsync(file)

    monkeypatch.setattr("braid.sources.connectors.push._sync", slow_sync)
    log = PushLog(storage, DEFINITION, roll_bytes=20_000)
    ends: list[int] = []

    def push(thread: int) -> None:
        for n in range(25):
            number = thread * 1000 + n
            end = log.append(tuples(number), bad(number), number, 10, key=str(number))
            assert log.end() >= end
            ends.append(end)

    threads = [threading.Thread(target=push, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(ends) == list(range(2, 402, 2))
    items = read(storage, 0, 400)
    assert items[1::2] == [f"raw {n}" for n in items[::2]]
    assert sorted(items[::2]) == sorted(t * 1000 + n for t in range(8) for n in range(25))
    for thread_number in range(8):
        items_of_thread = [n for n in items[::2] if n // 1000 == thread_number]
        assert items_of_thread == sorted(items_of_thread)
    assert len(flushes) < 150
    assert sum(frame.key is not None for frame in log.kept_frames()) == 200
    log.close()


def broken_disk(*_: Any) -> None:
    """Stand in for a call that the disk refuses."""
    raise OSError(errno.EIO, "Input/output error")


def test_a_full_disk_refuses_and_keeps_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(tuples(0), [], 0, 0)
    real_write = os.pwrite

    def half_write(file: int, data: Any, position: int) -> int:
        if position % 64 == 0:
            return real_write(file, bytes(data)[:100], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half_write)
    with pytest.raises(NotReady, match=r"must be writable, got .* No space left on device; free the disk"):
        log.append(tuples(1), [], 0, 0)
    monkeypatch.setattr(os, "pwrite", real_write)
    assert log.end() == 1
    assert log.append(tuples(2), [], 0, 0) == 2
    assert read(storage, 0, 2) == [0, 2]
    monkeypatch.setattr("braid.sources.connectors.push._sync", broken_disk)
    monkeypatch.setattr(os, "ftruncate", broken_disk)
    for _ in range(2):
        with pytest.raises(NotReady):
            log.append(tuples(3), [], 0, 0)
    monkeypatch.undo()
    with pytest.raises(NotReady, match="restart the service"):
        log.append(tuples(3), [], 0, 0)
    log.close()
    log = PushLog(storage, DEFINITION)
    assert log.end() >= 2
    assert read(storage, 0, 2) == [0, 2]
    log.close()


def test_a_log_begins_with_its_bytes_on_disk_or_not_at_all(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that cannot note how far it is on disk must not begin."""

    def no_room(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", no_room)
        for _ in range(2):
            with pytest.raises(NotReady, match=r"'pushed' must be writable, got .* No space left on device; free the"):
                PushLog(storage, DEFINITION)
    with monkeypatch.context() as full:
        full.setattr("braid.sources.connectors.push._make_folders", no_room)
        with pytest.raises(NotReady, match="No space left on device"):
            PushLog(storage, DEFINITION)
    log = PushLog(storage, DEFINITION)
    assert log.append(tuples(0), [], 0, 0) == 1
    log.close()


def test_tuples_of_another_schema_are_refused(storage: Storage) -> None:
    log = PushLog(storage, DEFINITION)
    with pytest.raises(ValueError, match="must have schema"):
        log.append(pa.record_batch({"n": [1]}), [], 0, 0)
    with pytest.raises(TypeError):
        log.append(tuples(1), [], 0, 0, key="k", outcome={1, 2})
    assert log.append(tuples(1), [], 0, 0) == 1
    log.close()


FRAMES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(FRAMES, st.sampled_from([1, 1_500, 10**6]), st.data())
def test_any_range_of_any_log_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    frames: list[tuple[int, int, bool]],
    roll_bytes: int,
    data: st.DataObject,
) -> None:
    storage = Storage(str(tmp_path_factory.mktemp("log")))
    log = PushLog(storage, DEFINITION, roll_bytes=roll_bytes)
    expected: list[Any] = []
    for good, malformed, reopen in frames:
        numbers = range(len(expected), len(expected) + good + malformed)
        end = log.append(tuples(*numbers[:good]), bad(*numbers[good:]), 0, 0, key="k")
        expected += [*numbers[:good], *(f"raw {n}" for n in numbers[good:])]
        assert end == len(expected)
        if reopen:
            log.close()
            log = PushLog(storage, DEFINITION, roll_bytes=roll_bytes)
    assert log.end() == len(expected)
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    assert read(storage, start, end) == expected[start:end]
    log.close()


@pytest.mark.parametrize("length", [1, 20_000])
def test_a_segment_that_is_cut_while_it_is_read_is_refused_by_its_name(storage: Storage, length: int) -> None:
    """What is cut under a map would end the process."""
    log = PushLog(storage, DEFINITION)
    for n in range(1000):  # several blocks
        log.append(tuples(n), [], 0, 0)
    reader = PushConnector(storage, DEFINITION).read("0", 0, 1000)
    read_before = [next(reader)]
    path = segment_path(folder_of(storage), 0)
    os.truncate(path, length)
    with pytest.raises(CorruptData, match=f"Segment {path.name} must hold a whole frame"):
        read_before.extend(reader)
    assert everything(read_before) == list(range(len(read_before)))
    log.close()


def test_a_durable_offset_that_is_cut_ends_nobody_and_comes_back_with_the_next_push(storage: Storage) -> None:
    log, reader = PushLog(storage, DEFINITION), PushConnector(storage, DEFINITION)
    log.append(tuples(0, 1), [], 0, 0)
    assert reader.available(0)["0"].end == 2
    os.truncate(folder_of(storage).parent / "durable", 0)
    with pytest.raises(CorruptData, match="durable must hold what was written"):
        reader.available(0)
    log.append(tuples(2), [], 0, 0)
    assert reader.available(0)["0"].end == 3
    log.close()


def test_an_index_finds_offsets_from_the_middle(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.sources.connectors.segment.MARK_BYTES", 1_000)
    log = PushLog(storage, DEFINITION, roll_bytes=10_000)
    for n in range(60):
        log.append(tuples(n), [], 0, 0)
    reader = PushConnector(storage, DEFINITION)
    for start in [*range(0, 60, 7), *range(59, 0, -5)]:
        assert everything(list(reader.read("0", start, 60))) == list(range(start, 60))
    with SegmentFile(segment_path(folder_of(storage), 0)) as segment:
        starts = [frame.start for frame in segment.frames()]
    assert starts == sorted(starts)
    assert all(start % 64 == 0 for start in starts)
    log.close()
