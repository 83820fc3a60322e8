"""The push log of a stream as the service keeps it: outcomes of keys, and what waits to be read."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from braid.api import pushes
from braid.api.pushes import Pushes, PushStream
from braid.session.log import outcome_segments
from braid.sources.connectors.push import PushLog
from braid.sources.connectors.segment import list_segments, segment_path
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage
from braid.sources.formats.decoded import Decoded
from tests.sources.pushed import DEFINITION
from tests.sources.pushed import tuples as tuples_of

DAY_US = 86_400_000_000
ROOM = 1 << 30
AT_ONCE = 5
SECONDS = 20.0


class World:
    """A stream's push log that is opened, and opened again as after a crash."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(str(folder))
        self.now_us = 10 * DAY_US
        self.stream = self._open()

    def _open(self) -> PushStream:
        return PushStream(self.storage, DEFINITION, DAY_US, ROOM, self.now_us)

    def reopen(self) -> None:
        """Open the log again; what was in memory only is lost."""
        self.stream.log.close()
        self.stream = self._open()

    def push(self, key: str | None, fingerprint: str = "f", tuples: int = 1) -> Any:
        """Push so many tuples, and return the outcome."""
        return self.stream.push(lambda: Decoded(tuples_of(*range(tuples)), []), 100, key, fingerprint)[0]

    def files(self) -> dict[str, int]:
        """Return the files with outcomes, and when each was written."""
        return {path.name: path.stat().st_mtime_ns for path in self.storage.local_path(OUTCOMES).glob("*")}


OUTCOMES = f"streams/{DEFINITION.id}/outcomes"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(pushes, "SEGMENT_OUTCOMES", AT_ONCE)
    monkeypatch.setattr(outcome_segments, "SEGMENT_OUTCOMES", AT_ONCE)
    monkeypatch.setattr(pushes, "PushLog", partial(PushLog, roll_bytes=3000))
    new_world = World(tmp_path)
    monkeypatch.setattr(pushes, "_now_us", lambda: new_world.now_us)
    yield new_world
    new_world.stream.log.close()


def test_outcomes_are_written_once_and_little_of_them_is_in_memory(world: World) -> None:
    first = {f"k{n}": world.push(f"k{n}", tuples=n) for n in range(12)}
    world.stream.trim(0, 0)
    assert list(world.stream._newest) == ["k10", "k11"]
    before = world.files()
    assert len(before) == 2
    first |= {f"k{n}": world.push(f"k{n}", tuples=n) for n in range(12, 18)}
    world.stream.trim(0, 0)
    after = world.files()
    assert len(after) == 3
    assert {name: after[name] for name in before} == before
    end = world.stream.log.end()
    for _ in range(2):
        assert {key: world.push(key) for key in first} == first
        assert world.stream.log.end() == end
        world.reopen()
    with pytest.raises(NotAllowed, match="'k3' belongs to another request"):
        world.push("k3", fingerprint="other")


def test_keys_outlive_their_frames(world: World) -> None:
    first = {f"k{n}": world.push(f"k{n}", tuples=n) for n in range(30)}
    world.stream.trim(world.stream.log.end(), world.stream.log.end())
    assert world.storage.names(f"streams/{DEFINITION.id}/segments")[0] != f"{0:020d}.seg"
    for _ in range(2):
        world.reopen()
        end = world.stream.log.end()
        assert {key: world.push(key) for key in first} == first
        assert world.stream.log.end() == end


def test_keys_are_forgotten_after_a_day_and_their_files_removed(world: World) -> None:
    for n in range(AT_ONCE):
        world.push(f"old{n}")
    world.stream.trim(0, 0)
    world.now_us += DAY_US
    first = {f"new{n}": world.push(f"new{n}", tuples=n) for n in range(AT_ONCE)}
    end = world.stream.log.end()
    assert world.push("old0", tuples=7)["accepted"] == 1, "a day is not over"
    assert world.stream.log.end() == end
    world.now_us += 1
    world.stream.expire(world.now_us)
    world.stream.trim(0, 0)
    assert len(world.files()) == 1
    assert world.push("old0", tuples=7)["accepted"] == 7
    world.reopen()
    assert world.push("old0")["accepted"] == 7
    assert {key: world.push(key) for key in first} == first


def test_nobody_waits_for_a_log_that_is_opened_but_who_pushes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_stream, begun, may_open = replace(DEFINITION, id="s2"), threading.Event(), threading.Event()
    opened: list[str] = []

    class Slow(PushStream):
        def __init__(self, storage: Storage, definition: StreamDefinition, *others: Any) -> None:
            opened.append(definition.id)
            if definition is DEFINITION:
                begun.set()
                assert may_open.wait(SECONDS)
            super().__init__(storage, definition, *others)

    monkeypatch.setattr(pushes, "PushStream", Slow)
    offsets = {"0": 0}
    all_pushes = Pushes(Storage(str(tmp_path)), 100.0, ROOM, lambda _: offsets)

    def push(definition: StreamDefinition) -> Any:
        return all_pushes.stream(definition).push(lambda: Decoded(tuples_of(1), []), 100, None, "")[0]

    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(push, DEFINITION) for _ in range(2)]
        try:
            assert begun.wait(SECONDS)
            assert pool.submit(push, other_stream).result(SECONDS)["accepted"] == 1
            pool.submit(all_pushes.absorb, {"seq": 1, "streams": {"s1": {"offsets": offsets}}}).result(SECONDS)
        finally:
            may_open.set()
        assert [future.result(SECONDS)["accepted"] for future in slow] == [1, 1]
    assert sorted(opened) == ["s1", "s2"]
    all_pushes.close()
    with pytest.raises(NotReady):
        all_pushes.stream(DEFINITION)


@pytest.mark.parametrize("lost", [".", "streams", f"streams/{DEFINITION.id}", f"streams/{DEFINITION.id}/segments"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_is_acknowledged_once_its_folder_is_gone(tmp_path: Path, lost: str, how: str) -> None:
    storage = Storage(str(tmp_path / "data"))
    pushes_of_all = Pushes(storage, 60.0, ROOM, lambda _: {})
    other = replace(DEFINITION, id="s2", name="other")

    def push(definition: StreamDefinition) -> Any:
        return pushes_of_all.stream(definition).push(lambda: Decoded(tuples_of(1), ()), 10, None, "f")[0]

    assert push(DEFINITION)["accepted"] == 1
    folder = storage.local_path(lost).resolve()
    shutil.move(folder, tmp_path / "elsewhere")
    if how == "replaced":
        shutil.copytree(tmp_path / "elsewhere", folder)
    for _ in range(2):
        with pytest.raises(NotReady, match="must stay where it is while the service runs"):
            push(DEFINITION)
    if lost in (".", "streams"):
        with pytest.raises(NotReady, match="must stay where it is while the service runs"):
            push(other)
        assert folder.exists() == (how == "replaced")
    else:
        assert push(other)["accepted"] == 1
    pushes_of_all.close()


def test_segments_stay_as_long_as_a_replay_needs_them_and_the_newest_bytes_stay_anyway(world: World) -> None:
    for _ in range(40):
        world.push(None, tuples=3)
    log = world.stream.log
    segments = list_segments(log._folder)
    assert len(segments) > 5
    world.stream.trim(log.end(), segments[2])
    assert list_segments(log._folder) == segments[2:], "a replay has read up to there"
    sizes = [segment_path(log._folder, first).stat().st_size for first in segments[2:]]
    world.stream._kept_bytes = sum(sizes[-3:])
    world.stream.trim(log.end(), log.end())
    assert list_segments(log._folder) == segments[-3:]


def test_a_key_is_known_after_a_restart_though_its_frames_are_not_looked_through_again(world: World) -> None:
    world.stream._kept_bytes = 1 << 30
    outcomes = {f"key-{number}": world.push(f"key-{number}", tuples=3) for number in range(40)}
    world.stream.trim(world.stream.log.end(), world.stream.log.end())
    first = list_segments(world.stream.log._folder)[0]
    assert first == 0, "the segments are kept"
    world.reopen()
    looked_through = {frame.key for frame in world.stream.log.kept_frames(world.stream._saved_upto)}
    assert len(looked_through) < len(outcomes) / 2
    for key, outcome in outcomes.items():
        assert world.push(key, tuples=3) == outcome
    assert world.stream.log.end() == 120, "nothing was appended twice"
