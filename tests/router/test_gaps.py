"""Result blocks and dead letters that are missing or damaged: readers are told once, and read what follows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.router.batch_index import BatchIndex
from braid.router.dead_letter_reader import DeadLetterReader
from braid.router.page import Page
from braid.router.result_reader import ResultReader
from braid.sources.core.errors import Gone
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.router.batches import BatchWriter
from tests.router.test_result_reader import AGGREGATION, STREAM, Deployed, commit_numbers, window_table

Damage = Callable[[Path], None]


def flip(share: float) -> Damage:
    """Return what flips a bit of a byte, so far into a file."""

    def damage(file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[int(share * (len(data) - 1))] ^= 4
        file.write_bytes(data)

    return damage


DAMAGES: dict[str, Damage] = {
    **{f"a flipped bit {share:.0%} into it": flip(share) for share in (0, 0.25, 0.5, 0.75, 1)},
    "removed": Path.unlink,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]) and None,
    "cut in half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]) and None,
    "emptied": lambda file: file.write_bytes(b"") and None,
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0") and None,
}


@pytest.fixture(params=DAMAGES.values(), ids=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    """Each way in which a file may be damaged."""
    made: Damage = request.param
    return made


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """An empty data directory."""
    return Storage(str(tmp_path))


def commit_blocks(writer: BatchWriter, *blocks: list[int]) -> dict[str, Any]:
    """Commit a batch with a selection block for each list of numbers."""
    return writer.commit(
        1, results=[writer.selection(STREAM, pa.table({"n": pa.array(b, pa.int64())}), [{0}] * len(b)) for b in blocks]
    )


def pages(read: Callable[[str | None], Page]) -> list[Page]:
    """Return all pages there are."""
    found = [read(None)]
    while found[-1].has_more:
        found.append(read(found[-1].cursor))
    return found


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_lost_block_is_told_once_and_the_rows_of_all_others_are_read(
    storage: Storage, damage: Damage, limit: int
) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    records = [commit_blocks(writer, [1, 2], [3, 4, 5], [6]), commit_blocks(writer, [7]), commit_blocks(writer, [8])]
    for record in records:
        reader.absorb(record)
    lost = records[0]["results"][1]["path"]
    damage(storage.local_path(lost))
    read = pages(lambda cursor: reader.read(Deployed(0, 1), cursor, limit))
    assert [n for page in read for n in page.table["n"].to_pylist()] == [1, 2, 6, 7, 8]
    gaps = [page.gap for page in read if page.gap is not None]
    assert [(gap.rows, gap.first_seq, gap.last_seq) for gap in gaps] == [(3, 1, 1)]
    assert lost in str(gaps[0])
    with_gap = next(page for page in read if page.gap is not None)
    assert with_gap.table["n"][0].as_py() == 6, "the gap is told before the row that follows it"
    from_there = reader.read(Deployed(0, 1), with_gap.cursor_after_gap, 1)
    assert from_there.gap is None
    assert from_there.table["n"].to_pylist() == [6]


def test_lost_blocks_one_after_another_are_one_gap(storage: Storage, damage: Damage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    records = [commit_numbers(writer, [n, n]) for n in range(5)]
    for record in records:
        reader.absorb(record)
    for record in records[1:4]:
        damage(storage.local_path(record["results"][0]["path"]))
    first, second = pages(lambda cursor: reader.read(Deployed(0, 1), cursor, 100))
    assert first.gap is None
    assert second.gap is not None
    assert (second.gap.rows, second.gap.first_seq, second.gap.last_seq) == (6, 2, 4)
    assert second.table["n"].to_pylist() == [4, 4]


def test_rows_of_windows_are_lost_by_batch(storage: Storage, damage: Damage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    deployed = Deployed(2, 1, query=AGGREGATION)
    for name in ("a", "b", "c"):
        blocks = [window_table([(2, 1, name, number, 1)]) for number in range(2)]
        reader.absorb(writer.commit(1, results=[writer.aggregation(STREAM, block) for block in blocks]))
    damage(storage.local_path(reader.index.entry(2).blocks[1].path))
    read = pages(lambda cursor: reader.read(deployed, cursor, 100))
    assert [name for page in read for name in page.table["name"].to_pylist()] == ["a", "a", "c", "c"]
    assert [(page.gap.rows, page.gap.first_seq) for page in read if page.gap is not None] == [(2, 2)]


def test_lost_dead_letters_are_a_gap(storage: Storage, damage: Damage) -> None:
    writer, index = BatchWriter(storage), BatchIndex(RecordLog(storage, "batches"))
    letter = {"reason": "late", "detail": None, "received_us": 1, "tuple": None}
    for batch in range(3):
        blocks = [[{**letter, "raw": f"{batch}-{block}-{row}"} for row in range(2)] for block in range(2)]
        index.absorb(writer.commit(1, dead_letters=[writer.dead_letters(STREAM, rows) for rows in blocks]))
    reader = DeadLetterReader(storage, index)
    damage(storage.local_path(index.entry(2).dead_letters[0][1]))
    read = pages(lambda cursor: reader.read(STREAM, cursor, 3))
    raw = [text for page in read for text in page.table["raw"].to_pylist()]
    assert raw == [f"{batch}-{block}-{row}" for batch in range(3) for block in range(2) for row in range(2)][:4] + [
        f"1-1-{row}" for row in range(2)
    ] + [f"2-{block}-{row}" for block in range(2) for row in range(2)]
    assert [(page.gap.rows, page.gap.first_seq) for page in read if page.gap is not None] == [(2, 2)]
    for tail in range(6):
        last = reader.read(STREAM, reader.before_last(STREAM, tail), 100).table["raw"].to_pylist()
        assert last == raw[len(raw) - tail :], "the newest are not behind the gap"


def test_a_block_with_other_rows_than_its_record_says_is_a_gap(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    record = commit_numbers(writer, [1, 2])
    record["results"][0]["counts"] = [3]
    reader.absorb(record)
    page = reader.read(Deployed(0, 1), None, 9)
    assert page.gap is not None
    assert "slot 0 has 3 rows, and it has 2" in page.gap.why


def test_a_block_without_a_checksum_in_its_name_is_read(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    record = commit_numbers(writer, [1, 2])
    result = record["results"][0]
    storage.move(result["path"], "results/000000000001-0123456789abcdef0123456789abcdef.arrow")
    result["path"] = "results/000000000001-0123456789abcdef0123456789abcdef.arrow"
    reader.absorb(record)
    assert reader.read(Deployed(0, 1), None, 9).table["n"].to_pylist() == [1, 2]


def test_a_block_that_retention_removes_meanwhile_is_gone(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    record = commit_numbers(writer, [1])
    reader.absorb(record)
    storage.delete(record["results"][0]["path"])
    writer.log.trim(1)
    with pytest.raises(Gone, match="passed their retention"):
        reader.read(Deployed(0, 1), None, 9)


def test_a_block_that_is_cut_while_it_is_read_ends_nobody(storage: Storage) -> None:
    writer, reader = BatchWriter(storage), ResultReader(storage)
    record = commit_numbers(writer, list(range(200_000)))
    reader.absorb(record)
    page = reader.read(Deployed(0, 1), None, 10)
    os.truncate(storage.local_path(record["results"][0]["path"]), 10)
    assert reader.read(Deployed(0, 1), page.cursor, 10).table["n"].to_pylist() == list(range(10, 20))
    assert ResultReader(storage, reader.index).read(Deployed(0, 1), None, 10).gap is not None
