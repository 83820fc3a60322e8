"""Old results go, by age and by size; what is kept stays readable, and nothing below it is half there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.router.batch_index import BatchIndex
from braid.router.dead_letter_reader import DeadLetterReader
from braid.router.result_reader import ResultReader
from braid.router.retention import NEWEST_KEPT, Retention
from braid.sources.core.errors import Gone
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.router.batches import SECOND, BatchWriter
from tests.router.test_result_reader import Deployed, read_all

STREAM = "s-1"
BATCH_US = SECOND  # batch n is committed at n + 1/2 seconds


def fill(storage: Storage, batches: int) -> tuple[BatchWriter, ResultReader]:
    """Commit batches of one row (its seq), one dead letter each."""
    writer, reader = BatchWriter(storage), ResultReader(storage)
    commit(writer, reader, batches)
    return writer, reader


def commit(writer: BatchWriter, reader: ResultReader, batches: int) -> None:
    """Commit more such batches."""
    for seq in range(writer.seq + 1, writer.seq + batches + 1):
        tuples = pa.table({"n": pa.array([seq], pa.int64())})
        letter = {"reason": "late", "detail": "", "received_us": seq, "tuple": None, "raw": str(seq)}
        reader.absorb(
            writer.commit(
                1,
                results=[writer.selection(STREAM, tuples, [{0}])],
                dead_letters=[writer.dead_letters(STREAM, [letter])],
            )
        )


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 60), st.integers(0, 70), st.integers(0, 70), st.integers(0, 60), st.integers(0, 60))
def test_trims_keep_a_readable_suffix(batches: int, now: int, applied: int, age: int, kept_files: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        writer, reader = fill(storage, batches)
        per_batch = (storage.size("results") + storage.size("dead-letters")) / batches
        size = int(per_batch * kept_files) + 1
        retention = Retention(storage, writer.log, reader.index, seconds=age, size=size)
        trimmed = retention.trim(now * SECOND, applied)

        too_old = [n for n in range(1, batches + 1) if n * SECOND + SECOND // 2 < (now - age) * SECOND]
        too_much = range(1, max(0, batches - kept_files) + 1)
        allowed = range(1, min(applied - 1, batches - NEWEST_KEPT) + 1)
        trimmed_batches = [n for n in allowed if n in too_old or n in too_much]
        batches_left = [n for n in range(1, batches + 1) if n not in trimmed_batches]
        assert trimmed.batches == len(trimmed_batches)
        assert writer.log.numbers() == batches_left
        for again in (reader, ResultReader(storage, BatchIndex(RecordLog(storage, "batches"), batches))):
            assert [row["n"] for row in read_all(again, Deployed(0, 1), 3)] == batches_left
            letters = DeadLetterReader(storage, again.index).read(STREAM, None, 100)
            assert letters.table["raw"].to_pylist() == [str(n) for n in batches_left]
        assert len(storage.names("results")) == len(batches_left) == len(storage.names("dead-letters"))
        assert trimmed.bytes_left == storage.size("results") + storage.size("dead-letters")
        assert retention.trim(now * SECOND, applied).batches == 0
        last = min(batches - NEWEST_KEPT, max([0, *too_old, *too_much]))
        assert trimmed.held_back == (last >= max(1, applied))


def test_a_cursor_below_what_is_kept_is_gone(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = fill(storage, 40)
    letters = DeadLetterReader(storage, reader.index)
    old, new = (reader.read(Deployed(0, 1), None, n).cursor for n in (3, 30))
    old_letter = letters.read(STREAM, None, 3).cursor
    closed: list[str] = []
    retention = Retention(storage, writer.log, reader.index, seconds=0, size=1 << 30, on_removed=closed.append)
    assert retention.trim(10**15, 40).batches == 40 - NEWEST_KEPT
    assert len(closed) == 2 * (40 - NEWEST_KEPT)
    with pytest.raises(Gone, match="oldest batch kept is 25"):
        reader.read(Deployed(0, 1), old, 9)
    with pytest.raises(Gone, match="oldest batch kept is 25"):
        letters.read(STREAM, old_letter, 9)
    assert reader.read(Deployed(0, 1), new, 1).table["n"].to_pylist() == [31]


def test_tuples_go_with_the_last_batch_that_refers_to_them(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    writer = BatchWriter(storage)
    index = BatchIndex(writer.log)
    storage.put("tuples/shared", b"." * 1000)
    for seq in range(1, 31):
        link = f"results/{seq:012d}-tuples"
        storage.link("tuples/shared", link)
        block = writer.selection(STREAM, pa.table({"n": [seq]}), [{0}])
        index.absorb(writer.commit(1, results=[block | {"tuples": [link]}, block | {"tuples": [link]}]))
    storage.delete("tuples/shared")
    retention = Retention(storage, writer.log, index, seconds=0, size=1 << 30)
    assert retention.trim(10**15, 30).batches == 30 - NEWEST_KEPT
    links_left = [f"{seq:012d}-tuples" for seq in writer.log.numbers()]
    assert [name for name in storage.names("results") if name.endswith("-tuples")] == links_left
    assert storage.get(f"results/{links_left[0]}") == b"." * 1000
    shares = sum(storage.size_of(f"results/{name}") for name in links_left)
    assert shares == pytest.approx(1000, abs=len(links_left)), (
        "however many links there are, the bytes are counted once"
    )


def test_what_no_record_and_no_partition_names_goes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = fill(storage, 40)
    for seq in range(1, 42):  # of attempts that failed, or were repeated
        for folder in ("results", "dead-letters", "buckets", "tuples", "states"):
            storage.put(f"{folder}/{seq:012d}-attempt", b"bytes")
    reader.absorb(writer.commit(1, oldest_needed=37))
    retention = Retention(storage, writer.log, reader.index, seconds=0, size=1 << 30)
    retention.trim(10**15, 41)
    first = 41 - NEWEST_KEPT + 1
    for folder in ("results", "dead-letters"):
        names = storage.names(folder)
        assert min(names)[:12] == f"{first:012d}"
        assert {f"{seq:012d}-attempt" for seq in range(first, 42)} <= set(names)
    for folder in ("buckets", "tuples", "states"):
        assert storage.names(folder) == [f"{seq:012d}-attempt" for seq in range(37, 42)]
    reader.absorb(writer.commit(1, oldest_needed=None))
    retention.trim(10**15, 41)
    assert storage.names("tuples") == []


def test_a_trim_that_was_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    writer, _ = fill(storage, 30)
    for seq in (1, 2):  # blocks gone, records still there
        for part in (*writer.log.read(seq)["results"], *writer.log.read(seq)["dead_letters"]):
            storage.delete(part["path"])
    index = BatchIndex(RecordLog(storage, "batches"), 30)
    assert ResultReader(storage, index).read(Deployed(0, 1), None, 1).gap is not None
    Retention(storage, writer.log, index, seconds=0, size=1 << 30).trim(10**15, 30)
    rows = read_all(ResultReader(storage, index), Deployed(0, 1), 5)
    assert [row["n"] for row in rows] == list(range(30 - NEWEST_KEPT + 1, 31))


def test_a_trim_looks_at_what_comes_and_goes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = fill(storage, 200)
    retention = Retention(storage, writer.log, reader.index, seconds=199, size=1 << 30)
    assert retention.trim(201 * SECOND, 200).batches == 1
    listed: list[str] = []
    looked_at: list[str] = []
    with monkeypatch.context() as watched:
        for method in ("names", "size", "sizes"):
            watched.setattr(Storage, method, lambda _, folder: listed.append(folder) or [])
        plain = Storage.size_of
        watched.setattr(Storage, "size_of", lambda self, path: looked_at.append(path) or plain(self, path))
        for _ in range(3):
            commit(writer, reader, 2)
            trimmed = retention.trim((writer.seq + 1) * SECOND, writer.seq)
            assert trimmed.batches == 2
        assert retention.count() == trimmed.bytes_left
    assert not set(listed) & {"results", "dead-letters", "batches"}
    assert len(looked_at) == 3 * 2 * (2 + 2), "two files of each batch that comes, and of each that goes"
    assert writer.log.numbers() == list(range(8, 207))
    assert retention.count() == storage.size("results") + storage.size("dead-letters")


def test_what_could_not_be_removed_goes_later_and_is_counted_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = fill(storage, 200)
    retention = Retention(storage, writer.log, reader.index, seconds=100, size=1 << 30)
    plain, attempts = Storage.delete, iter(range(10**6))

    def busy(self: Storage, path: str) -> None:
        if next(attempts) == 5:
            raise OSError("device or resource busy")
        plain(self, path)

    monkeypatch.setattr(Storage, "delete", busy)
    with pytest.raises(OSError, match="busy"):
        retention.trim(160 * SECOND, 200)
    retention.trim(162 * SECOND, 200)
    batches_left = writer.log.numbers()
    assert batches_left == list(range(62, 201))
    assert len(storage.names("results")) == len(storage.names("dead-letters")) == len(batches_left)
    assert retention.count() == storage.size("results") + storage.size("dead-letters")


def test_dead_letters_page_by_stream(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = BatchWriter(storage), ResultReader(storage)
    letters = DeadLetterReader(storage, reader.index)
    numbers = np.arange(30)
    for batch_numbers in np.array_split(numbers, 7):
        blocks = [
            writer.dead_letters(
                stream,
                [
                    {
                        "reason": "malformed",
                        "detail": "d",
                        "received_us": 1,
                        "tuple": None,
                        "raw": f"{stream}{n}",
                    }
                    for n in part
                ],
            )
            for stream in ("a", "b")
            for part in np.array_split(batch_numbers, 2)
        ]
        reader.absorb(writer.commit(1, dead_letters=blocks))
        reader.absorb(writer.commit(1))
    for stream in ("a", "b", "c"):
        raw_texts, cursor, more = [], None, True
        while more:
            page = letters.read(stream, cursor, 4)
            raw_texts += page.table["raw"].to_pylist()
            cursor, more = page.cursor, page.has_more
        assert raw_texts == [f"{stream}{n}" for n in (numbers if stream != "c" else [])]


@pytest.mark.parametrize(("seconds", "size"), [(-1, 0), (0, -1)])
def test_negative_limits_are_refused(tmp_path: Path, seconds: float, size: int) -> None:
    storage = Storage(str(tmp_path))
    writer, reader = fill(storage, 1)
    with pytest.raises(ValueError, match="must not be negative"):
        Retention(storage, writer.log, reader.index, seconds=seconds, size=size)
