"""How often a server is asked what it has."""

from __future__ import annotations

import itertools

import pytest

from braid.sources.connectors import offset_watch
from braid.sources.connectors.connector import Extent
from braid.sources.connectors.offset_watch import QUIET_SECONDS, OffsetWatch

EVERY_SECONDS = 0.01
MAX_SECONDS = 5.0


class Clock:
    """Stands still until it is moved on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Server:
    """Has ``end`` tuples, or says ``error``; notes when it is asked."""

    def __init__(self, clock: Clock) -> None:
        self.end = 0
        self.error: Exception | None = None
        self.asked_at: list[float] = []
        self._clock = clock

    def ask(self) -> dict[str, Extent]:
        self.asked_at.append(self._clock.seconds)
        if self.error is not None:
            raise self.error
        return {"0": Extent(0, self.end)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let time pass as a test says, and answers be waited for however long they take."""
    clock = Clock()
    monkeypatch.setattr(offset_watch, "time", clock)
    monkeypatch.setattr(offset_watch, "STALL_SECONDS", 60)
    return clock


def pauses(watch: OffsetWatch, server: Server, clock: Clock, count: int) -> list[float]:
    """Call again and again until the server was asked ``count`` times more; return what lay between."""
    asked = len(server.asked_at)
    while len(server.asked_at) < asked + count:
        assert clock.seconds < MAX_SECONDS, "the server must be asked"
        watch.extents()
        clock.seconds += EVERY_SECONDS / 4
    times = server.asked_at[max(asked - 1, 0) :]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_a_quiet_server_is_asked_less_and_less_often_until_it_has_something_new(clock: Clock) -> None:
    server = Server(clock)
    watch = OffsetWatch(server.ask, "Stream 's'", (), every_seconds=EVERY_SECONDS)
    lengthening = [0.01, 0.02, 0.04, 0.08, QUIET_SECONDS, QUIET_SECONDS]
    assert pauses(watch, server, clock, 7) == pytest.approx(lengthening, abs=EVERY_SECONDS / 2)
    server.end = 5
    assert pauses(watch, server, clock, 4) == pytest.approx([QUIET_SECONDS, 0.01, 0.02, 0.04], abs=EVERY_SECONDS / 2)
    assert watch.extents() == {"0": (0, 5)}


def test_an_error_that_nobody_foresaw_is_told_and_the_server_asked_again(clock: Clock) -> None:
    server = Server(clock)
    watch = OffsetWatch(server.ask, "Stream 's'", (), every_seconds=EVERY_SECONDS)
    server.error = AttributeError("no such thing")
    with pytest.raises(AttributeError, match="no such thing"):
        pauses(watch, server, clock, 2)
    server.error, server.end = None, 3
    pauses(watch, server, clock, 1)
    assert watch.extents() == {"0": (0, 3)}
