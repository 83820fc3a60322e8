"""Numbered records: whole or not there, and cheap to follow however many are kept."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage


class CountingStorage(Storage):
    """Counts how often a folder is listed."""

    listed = 0

    def names(self, folder: str) -> list[str]:
        self.listed += 1
        return super().names(folder)


@pytest.fixture
def log(tmp_path: Path) -> RecordLog:
    log = RecordLog(Storage(str(tmp_path)), "log")
    for number in range(1, 6):
        log.append(number, {"number": number})
    return log


def test_records_follow_a_number_in_order(log: RecordLog) -> None:
    assert [(n, r["number"]) for n, r in log.after(2)] == [(3, 3), (4, 4), (5, 5)]
    assert list(log.after(5)) == []
    assert list(log.after(9)) == []
    assert log.numbers() == [1, 2, 3, 4, 5]
    assert (log.has(5), log.has(6), log.latest()) == (True, False, 5)


def test_what_was_trimmed_is_skipped(log: RecordLog) -> None:
    log.trim(3)
    assert log.numbers_after(0) == range(4, 6)
    assert log.numbers_after(4) == range(5, 6)
    assert [n for n, _ in log.after(1)] == [4, 5]
    with pytest.raises(FileNotFoundError):
        log.read(3)
    log.trim(9)
    assert log.numbers() == []
    assert [n for n, _ in log.after(0)] == []


def test_a_record_that_is_torn_is_told_by_its_name(log: RecordLog, tmp_path: Path) -> None:
    path = tmp_path / "log" / "000000000003.json"
    for torn in (path.read_bytes()[:-3], b""):
        path.write_bytes(torn)
        with pytest.raises(CorruptData, match=r"log/000000000003\.json must hold JSON to go on.*from a backup"):
            log.read(3)
        assert log.read(4) == {"number": 4}


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    log = RecordLog(Storage(str(tmp_path)), "log")
    assert (log.latest(), log.numbers(), list(log.after(0))) == (0, [], [])
    log.trim(5)


def test_following_the_end_lists_no_folder(tmp_path: Path) -> None:
    storage = CountingStorage(str(tmp_path))
    writer, reader = RecordLog(storage, "log"), RecordLog(storage, "log")
    assert reader.latest() == 0
    storage.listed = 0
    for number in range(1, 20):
        writer.append(number, {"number": number})
        assert [n for n, _ in reader.after(number - 1)] == [number]
        assert list(reader.after(number)) == []
    assert storage.listed == 0


def test_every_byte_of_a_record_counts(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    log = RecordLog(storage, "log")
    for record in ({}, {"seq": 1, "text": 'a "crc" of ü', "numbers": {"1": [2.5, None]}}):
        log.append(1, record)
        assert log.read(1) == record
        whole = storage.get("log/000000000001.json")
        for at in range(len(whole)):
            for bit in range(8):
                storage.put("log/000000000001.json", whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
                with pytest.raises(CorruptData, match=r"log/000000000001\.json must hold JSON"):
                    log.read(1)
        storage.put("log/000000000001.json", orjson.dumps(record))  # as versions before wrote it
        assert log.read(1) == record
