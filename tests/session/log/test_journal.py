"""What was appended reads back, whatever is torn off the end; what was acknowledged is never skipped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from braid.session.log import journal as journal_module
from braid.session.log.journal import Journal, ObjectJournal, open_journal
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage


def record(number: int) -> dict[str, Any]:
    """Return a record that tells its number."""
    return {"number": number, "text": "ä\n" * (number % 5)}


def fill(journal: Journal | ObjectJournal, first: int, last: int) -> None:
    """Append the records ``first`` to ``last``."""
    for number in range(first, last + 1):
        journal.append(number, record(number))


def read(folder: Path, after: int = 0) -> list[int]:
    """Return the numbers of the records after one, which must be what was written."""
    records = list(Journal(folder).after(after))
    assert all(value == record(number) for number, value in records)
    return [number for number, _ in records]


def only_file(folder: Path) -> Path:
    """Return the one segment."""
    (path,) = folder.iterdir()
    return path


@given(st.lists(st.tuples(st.sampled_from(["append", "trim", "open"]), st.integers(0, 8)), max_size=40))
def test_records_are_kept_in_order_until_they_are_trimmed(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, latest, trimmed = Path(name), 0, 0
        journal = Journal(folder, roll_bytes=100)
        for step, count in steps:
            if step == "append":
                fill(journal, latest + 1, latest + count)
                latest += count
            elif step == "trim":
                trimmed = max(trimmed, latest - count)
                journal.trim(trimmed)
            else:
                journal.close()
                journal = Journal(folder, latest, roll_bytes=100)
            numbers = read(folder)
            assert numbers == list(range(latest + 1 - len(numbers), latest + 1)), "no gaps, and none is lost at the end"
            assert len(numbers) >= latest - trimmed
            assert read(folder, trimmed) == list(range(trimmed + 1, latest + 1))
        journal.trim(latest)
        assert list(folder.iterdir()) == []
        journal.close()


def test_what_a_crash_tore_off_is_not_there_and_the_next_goes_on_behind_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal, 1, 3)
    journal.close()
    whole = only_file(tmp_path).read_bytes()
    end_of_second = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for size in range(end_of_second, len(whole)):
        only_file(tmp_path).write_bytes(whole[:size])
        assert read(tmp_path) == [1, 2]
    only_file(tmp_path).write_bytes(whole[:end_of_second] + b"\0" * 30)
    assert read(tmp_path) == [1, 2], "a page that never got to the disk"
    journal = Journal(tmp_path, latest=2)
    fill(journal, 3, 4)
    assert read(tmp_path) == [1, 2, 3, 4]
    journal.trim(2)
    assert read(tmp_path) == [3, 4]
    journal.close()


@pytest.mark.parametrize("segments", [1, 2])
def test_a_record_that_was_acknowledged_and_does_not_read_back_is_said(tmp_path: Path, segments: int) -> None:
    journal = Journal(tmp_path)
    fill(journal, 1, 3)
    journal.close()
    damaged = bytearray(only_file(tmp_path).read_bytes())
    damaged[damaged.index(b"\n") + 20] ^= 1
    only_file(tmp_path).write_bytes(damaged)
    if segments == 2:
        journal = Journal(tmp_path, latest=3)
        fill(journal, 4, 4)
        journal.close()
    with pytest.raises(CorruptData, match=r"Record 2 must be in 000000000001\.log"):
        read(tmp_path)


def test_a_missing_segment_end_is_said(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    fill(journal, 1, 3)
    journal.close()
    path = only_file(tmp_path)
    fill(Journal(tmp_path, latest=3), 4, 4)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptData, match="Record 3"):
        read(tmp_path)


@pytest.mark.parametrize("failing", ["_sync", "_write", "sync_folder"])
def test_an_append_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    first = 1 if failing == "sync_folder" else 3
    journal = Journal(tmp_path)
    fill(journal, 1, first - 1)
    real = getattr(journal_module, failing)

    def full(*arguments: Any) -> None:
        real(*arguments)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, failing, full)
        with pytest.raises(OSError, match="No space left"):
            journal.append(first, {"refused": True})
    assert read(tmp_path) == list(range(1, first)), "also when the service is killed now"
    fill(journal, first, 5)
    assert read(tmp_path) == [1, 2, 3, 4, 5]
    journal.trim(5)
    assert list(tmp_path.iterdir()) == []


def test_elsewhere_than_on_a_local_disk_each_record_is_an_object(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.local_root = None
    assert isinstance(storage._fs, fs.LocalFileSystem)
    journal = open_journal(storage, "requests")
    assert isinstance(journal, ObjectJournal)
    fill(journal, 1, 4)
    journal.trim(1)
    journal.close()
    assert [number for number, _ in open_journal(storage, "requests", 4).after(1)] == [2, 3, 4]
    storage.delete("requests/000000000003.json")
    with pytest.raises(CorruptData, match="missing"):
        list(open_journal(storage, "requests", 4).after(1))
