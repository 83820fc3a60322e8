"""The push log after crashes: torn frames, damaged frames, killed writers; and readers in other processes."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from braid.sources.connectors import push
from braid.sources.connectors.push import PushConnector, PushLog
from braid.sources.connectors.segment import SegmentFile, SegmentFrame, list_segments, segment_path
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until
from tests.sources.pushed import DEFINITION, bad, everything, folder_of, read, tuples

REPOSITORY = Path(__file__).resolve().parents[2]


def copy_without_acknowledging(storage: Storage, target: Path, acknowledged: int, cut: bytes) -> Storage:
    """Copy a data-dir as a crash could have left it: the last segment's bytes, and the durable offset."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(storage.local_path("streams"), target / "streams")
    copy = Storage(str(target))
    segment_path(folder_of(copy), list_segments(folder_of(copy))[-1]).write_bytes(cut)
    copy.local_path("streams/s1/durable").write_bytes(struct.pack("<q", acknowledged))
    return copy


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: for tests that make up what a crash left."""
    monkeypatch.setattr(push, "_sync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def frames(path: Path) -> list[SegmentFrame]:
    with SegmentFile(path) as segment:
        return list(segment.frames())


@pytest.mark.usefixtures("unsynced")
def test_a_frame_torn_at_any_byte_is_cut_off(storage: Storage, tmp_path: Path) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(tuples(0, 1), bad(2), 0, 0)
    log.append(tuples(3), bad(4), 0, 0, key="torn")
    log.close()
    path = segment_path(folder_of(storage), 0)
    data = path.read_bytes()
    whole, torn = frames(path)
    for length in range(torn.start, torn.end):
        for filling in (b"", bytes(torn.end - length), b"\xa5" * (torn.end - length)):
            if (data[:length] + filling) == data:
                continue
            crashed = copy_without_acknowledging(storage, tmp_path / "crashed", 3, data[:length] + filling)
            reopened = PushLog(crashed, DEFINITION)
            assert reopened.end() == whole.header.end
            assert segment_path(folder_of(crashed), 0).stat().st_size == whole.end
            assert [frame for frame in reopened.kept_frames() if frame.key is not None] == []
            reopened.append(tuples(30), [], 0, 0)
            assert read(crashed, 0, 4) == [0, 1, "raw 2", 30]
            reopened.close()


@pytest.mark.usefixtures("unsynced")
def test_acknowledged_frames_that_do_not_read_back_are_never_cut_off(storage: Storage, tmp_path: Path) -> None:
    log = PushLog(storage, DEFINITION)
    log.append(tuples(0, 1), bad(2), 0, 0)
    log.append(tuples(3), bad(4), 0, 0)
    log.close()
    path = segment_path(folder_of(storage), 0)
    data, (first, _) = path.read_bytes(), frames(path)
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        crashed = copy_without_acknowledging(storage, tmp_path / "crashed", 5, bytes(damaged))
        with pytest.raises(CorruptData):
            PushLog(crashed, DEFINITION)
        assert segment_path(folder_of(crashed), 0).read_bytes() == bytes(damaged)
        with pytest.raises(CorruptData):
            read(crashed, 0, 5)
        if position >= first.end:
            assert read(crashed, 0, 3) == [0, 1, "raw 2"]


WRITER = """
import sys, threading
sys.path.insert(0, {repository!r})
from braid.sources.connectors.push import PushLog
from braid.sources.core.storage import Storage
from tests.sources.pushed import DEFINITION, bad, tuples
log = PushLog(Storage({uri!r}), DEFINITION, roll_bytes=50_000)
lock = threading.Lock()
def push(thread):
    n = 0
    while True:
        number = thread * 1_000_000 + n
        end = log.append(tuples(*[number] * (1 + n % 3)), bad(number), 0, 0, key=str(number))
        with lock:
            print(number, end, flush=True)
        n += 1
threads = [threading.Thread(target=push, args=(thread,)) for thread in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def start_writer(storage: Storage) -> subprocess.Popen[str]:
    """Start a process that appends as fast as it can and prints what was acknowledged."""
    program = WRITER.format(repository=str(REPOSITORY), uri=storage.uri)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("acknowledgements", [1, 40, 400])
def test_a_killed_writer_loses_nothing_it_acknowledged(storage: Storage, acknowledgements: int) -> None:
    reader = PushConnector(storage, DEFINITION)
    acknowledged: list[tuple[int, int]] = []
    with start_writer(storage) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if not line.endswith("\n"):
                break  # the writer was killed in the middle of it
            number, end = map(int, line.split())
            acknowledged.append((number, end))
            assert reader.available(0)["0"].end >= end
            assert everything(list(reader.read("0", end - 1, end))) == [f"raw {number}"]
            if len(acknowledged) == acknowledgements:
                writer.kill()
    assert len(acknowledged) >= acknowledgements
    log = PushLog(storage, DEFINITION)
    assert log.end() >= max(end for _, end in acknowledged)
    for number, end in acknowledged:
        assert read(storage, end - 2, end) == [number, f"raw {number}"]
    assert {frame.key for frame in log.kept_frames()} >= {str(number) for number, _ in acknowledged}
    everything_kept = read(storage, 0, log.end())
    assert len(everything_kept) == log.end()
    assert log.append(tuples(5), [], 0, 0) == log.end()
    log.close()


OBSERVER = """
import sys
print("looking", flush=True)
while True:
    try:
        open(f"/proc/{sys.argv[1]}/smaps").read()
    except (FileNotFoundError, ProcessLookupError):
        break
"""


def test_a_killed_writer_lets_go_at_once_even_while_it_is_looked_at(tmp_path: Path) -> None:
    for attempt in range(4):
        storage = Storage(str(tmp_path / str(attempt)))
        with start_writer(storage) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline()
            command = [sys.executable, "-c", OBSERVER, str(writer.pid)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as observer:
                assert observer.stdout is not None
                assert observer.stdout.readline() == "looking\n"
                writer.kill()
                writer.wait(timeout=60)
                PushLog(storage, DEFINITION).close()


READER = """
import json, sys
sys.path.insert(0, {repository!r})
from braid.sources.connectors.push import PushConnector
from braid.sources.core.storage import Storage
from tests.sources.pushed import DEFINITION, everything
connector = PushConnector(Storage({uri!r}), DEFINITION)
seen = 0
while seen < 300:
    end = connector.available(0)["0"].end
    if end > seen:
        print(json.dumps(everything(list(connector.read("0", seen, end)))), flush=True)
        seen = end
"""


def test_another_process_reads_what_is_appended(storage: Storage) -> None:
    program = READER.format(repository=str(REPOSITORY), uri=storage.uri)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as reader:
        log = PushLog(storage, DEFINITION, roll_bytes=5_000)
        for n in range(100):
            log.append(tuples(3 * n, 3 * n + 1, 3 * n + 2), [], n, 10)
        wait_until(lambda: reader.poll() is not None, 60, "the reader must see 300 tuples")
        assert reader.stdout is not None
        assert [n for line in reader.stdout for n in json.loads(line)] == list(range(300))
        log.close()
