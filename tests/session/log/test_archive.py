"""Finished queries on disk, against a dict of them."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braid.session.log.archive import FOLDER, ROWS, Archive
from braid.session.log.archive_index import ArchiveIndex, IndexLevel
from braid.session.state.query_record import FAILED, FINISHED, RETIRED, QueryRecord
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage
from tests.session.records import record

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "expire", "open"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=25,
)


def ids(archive: Archive, after: int = 0, state: str | None = None) -> list[str]:
    """Return the ids that the archive lists; each must read back as what it is."""
    listed = []
    for number, read in archive.after(after, state):
        query = read()
        assert query is not None
        assert query.id == f"q-{number}"
        listed.append(query.id)
    return listed


def add(archive: Archive, *records: QueryRecord) -> None:
    """Write a segment and let it count."""
    segment = archive.write(records)
    assert segment is not None
    archive.add(segment)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_archive_knows_what_was_added_and_has_not_expired(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        archive, model, next_number, expired_us = Archive(storage), dict[int, QueryRecord](), 1, -1
        for now, (step, count, number) in enumerate(steps, 1):
            if step == "write":
                # numbers of one segment lie between those of others: queries do not finish in order
                numbers = [next_number + (i * 7 + number) % (count + 1) for i in range(count)]
                records = [
                    record(n, FAILED if n % 3 == 0 else RETIRED, now, name=f"name {n % 4}" if n % 2 else None)
                    for n in dict.fromkeys(numbers)
                ]
                next_number += 10
                if records:
                    add(archive, *records)
                    model |= {int(r.id[2:]): r for r in records}
                else:
                    assert archive.write(records) is None
            elif step == "expire":
                expired_us = max(expired_us, now - number)
                archive.expire(expired_us)
            else:
                segments = archive.segments
                archive = Archive(storage)
                archive.open(segments)
                archive.expire(expired_us)
            model = {n: r for n, r in model.items() if r.finished_us is not None and r.finished_us > expired_us}
            assert ids(archive) == [f"q-{n}" for n in sorted(model)]
            assert ids(archive, after=15) == [f"q-{n}" for n in sorted(model) if n > 15]
            failed = [n for n, r in model.items() if r.state == FAILED]
            assert ids(archive, state=FAILED) == [f"q-{n}" for n in sorted(failed)]
            assert archive.counts() == {RETIRED: len(model) - len(failed), FINISHED: 0, FAILED: len(failed)}
            for n in range(1, next_number):
                assert archive.find(n) == model.get(n)
            for name in ("name 1", "name 3", "name 2"):
                same_name = [r for n, r in sorted(model.items()) if r.name == name]
                assert archive.find_name(name) == (same_name[-1] if same_name else None)


def test_only_what_a_snapshot_names_counts_and_the_rest_is_swept(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    archive = Archive(storage)
    add(archive, record(1))
    unfinished = archive.write([record(2)])
    assert unfinished is not None
    assert ids(archive) == ["q-1"]
    reopened = Archive(storage)
    reopened.open(archive.segments)
    assert ids(reopened) == ["q-1"]
    add(reopened, record(3))
    assert len(storage.names(FOLDER)) == 3, "no segment is written over another"
    reopened.sweep(reopened.segments)
    assert len(storage.names(FOLDER)) == 2
    assert ids(reopened) == ["q-1", "q-3"]


def test_a_missing_segment_is_said_and_one_that_is_swept_under_a_reader_is_not(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    archive = Archive(storage)
    add(archive, record(1, name="one"))
    ((_, read),) = archive.after(0)
    archive.sweep([])
    assert read() is None
    assert archive.find(1) is None
    assert archive.find_name("one") is None
    with pytest.raises(CorruptData, match=r"finished/000000000001-….arrow must hold.*it is missing"):
        Archive(storage).open([1])


def test_a_segment_that_is_torn_is_told_by_its_name(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    add(Archive(storage), record(1))
    (name,) = storage.names(FOLDER)
    path = f"{FOLDER}/{name}"
    whole = storage.get(path)
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 50)]
    for torn in (b"", whole[: len(whole) // 2], whole[:-9], *flipped):
        storage.put(path, torn)
        with pytest.raises(CorruptData, match=f"file {path} must hold what was written"):
            Archive(storage).open([1])
    storage.put(path, whole)
    storage.move(path, f"{FOLDER}/000000000001.arrow")  # as versions before called it
    archive = Archive(storage)
    archive.open([1])
    assert ids(archive) == ["q-1"]


def test_records_of_many_batches_of_rows_are_found(tmp_path: Path) -> None:
    archive = Archive(Storage(str(tmp_path)))
    add(archive, *(record(n) for n in range(1, 2 * ROWS + 10)))
    for number in (1, ROWS, ROWS + 1, 2 * ROWS + 9):
        query = archive.find(number)
        assert query == record(number)
    assert archive.find(2 * ROWS + 10) is None


def test_the_index_has_few_levels_however_many_segments_come() -> None:
    index = ArchiveIndex()
    for segment in range(1, 400):
        index.add(IndexLevel.of_segment(segment, [segment], [segment], [False], ["all the same"]))
        assert len(index) == segment
    assert len(index._levels) <= 10
    assert [place.segment for place in index.find_name("all the same")] == list(range(399, 0, -1))
    index.expire(300)
    index.add(IndexLevel.of_segment(400, range(400, 900), [400] * 500, [False] * 500, [None] * 500))
    assert len(index) == 599, "what expired goes when levels are merged"
    assert sum(len(level.names) for level in index._levels) == 99


@pytest.mark.parametrize(("names", "max_bytes"), [(False, 26), (True, 42)])
def test_a_query_that_is_over_takes_few_bytes_of_memory(names: bool, max_bytes: int) -> None:
    queries, index = 100_000, ArchiveIndex()
    tracemalloc.start()
    try:
        for segment in range(1, 201):
            first = segment * 500
            numbers = range(first, first + 500)
            texts = [f"name {number}" if names else None for number in numbers]
            index.add(IndexLevel.of_segment(segment, list(numbers), [segment] * 500, [False] * 500, texts))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < max_bytes * queries
