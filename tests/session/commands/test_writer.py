"""The writer: one record for all commands that wait, checked one after the other, answered once durable and applied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from braid.session.commands.statements import to_definition
from braid.session.commands.writer import Command, CommandGroup, Writer
from braid.session.log.journal import Journal
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.session.state.requests import QueryPaused, Request, StreamCreated, StreamDropped
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import Conflict, NotReady
from tests.kit.waiting import wait_until
from tests.session.driver import STREAM

Requests = list[list[Request]]


class SlowJournal(Journal):
    """A journal whose writes wait until the test lets them through; the bytes are really written."""

    def __init__(self, folder: Path, latest: int = 0) -> None:
        super().__init__(folder, latest)
        self.writing = threading.Event()
        self.go_on = threading.Event()
        self.broken = False

    def append(self, number: int, record: dict[str, Any]) -> None:
        self.writing.set()
        assert self.go_on.wait(30)
        if self.broken:
            raise OSError(28, "No space left on device")
        super().append(number, record)


def giving(result: Request | Exception | None, **touches: frozenset[str]) -> Command:
    """Return a command whose check gives a request, nothing, or an error."""

    def check(_: CommandGroup) -> Request | None:
        if isinstance(result, Exception):
            raise result
        return result

    return Command(check, **touches)


class World:
    """A writer on a slow journal, and what it applied."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.journal = SlowJournal(folder, latest=number)
        self.applied: Requests = []
        self.announced: list[int] = []
        self.announce: Callable[[], object] = lambda: self.announced.append(len(self.applied))
        self._on_disk = Journal(folder)
        self.writer = Writer(SessionState(), lambda: 7)
        self.writer.start(self.journal, number, self._apply, lambda: self.announce())

    def _apply(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        (logged,) = self._on_disk.after(number - 1)
        assert logged[0] == number
        assert logged[1]["at_us"] == at_us == 7, "a record must be on disk when it is applied"
        self.applied.append(list(requests))

    def queue(self, *commands: Command) -> list[Any]:
        """Queue commands so that all of them wait when the writer takes them."""
        entered, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            entered.set()
            assert go_on.wait(30)

        blocker = threading.Thread(target=self.writer.call, args=(wait,))
        blocker.start()
        assert entered.wait(30)
        started = [self.writer.submit(command) for command in commands]
        go_on.set()
        blocker.join(30)
        return started


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.journal.go_on.set()
    world.writer.close()


def drop(number: int) -> StreamDropped:
    return StreamDropped(f"s-{number}")


def pause(number: int, **touches: frozenset[str]) -> Command:
    return giving(QueryPaused(f"q-{number}"), **touches)


def test_commands_that_wait_together_share_one_record_in_order(world: World) -> None:
    first = world.writer.submit(pause(0))
    assert world.journal.writing.wait(30)
    rest = [world.writer.submit(pause(number)) for number in range(1, 20)]
    assert not any(started._done.is_set() for started in [first, *rest])
    world.journal.go_on.set()
    for started in [first, *rest]:
        started.wait()
    assert world.applied == [[QueryPaused("q-0")], [QueryPaused(f"q-{number}") for number in range(1, 20)]]


@pytest.mark.parametrize(
    ("first", "second", "groups"),
    [
        ({"uses": {"a"}}, {"uses": {"a"}}, 1),
        ({"changes": {"a"}}, {"changes": {"b"}, "uses": {"c"}}, 1),
        ({"changes": {"a"}}, {"changes": {"a"}}, 2),
        ({"changes": {"a"}}, {"uses": {"a", "b"}}, 2),
        ({"uses": {"a"}}, {"changes": {"a"}}, 2),
    ],
)
def test_a_command_that_depends_on_one_before_it_is_checked_after_that_is_applied(
    world: World, first: dict[str, set[str]], second: dict[str, set[str]], groups: int
) -> None:
    world.journal.go_on.set()
    commands = [
        pause(number, **{name: frozenset(objects) for name, objects in touches.items()})
        for number, touches in enumerate((first, second, {}))
    ]
    for started in world.queue(*commands):
        started.wait()
    assert len(world.applied) == groups
    assert [request for requests in world.applied for request in requests] == [
        QueryPaused(f"q-{number}") for number in range(3)
    ]


def test_a_refused_command_changes_nothing_and_what_changes_nothing_is_not_logged(world: World) -> None:
    world.journal.go_on.set()
    refused, idle, accepted = world.queue(giving(Conflict("no")), giving(None), pause(1))
    with pytest.raises(Conflict, match="no"):
        refused.wait()
    idle.wait()
    accepted.wait()
    assert world.applied == [[QueryPaused("q-1")]]


def test_what_cannot_be_written_is_refused_and_not_applied_and_the_writer_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, 4)
    world.journal.broken = True
    world.journal.go_on.set()
    for started in world.queue(pause(1), giving(drop(1))):
        with pytest.raises(NotReady, match=r"No space left on device.*Nothing changed"):
            started.wait()
    assert (world.applied, world.announced) == ([], [])
    world.journal.broken = False
    world.writer.submit(pause(2)).wait()
    assert world.applied == [[QueryPaused("q-2")]]
    world.writer.close()
    assert [number for number, _ in Journal(tmp_path).after(4)] == [5]


def test_changes_of_streams_are_answered_once_the_data_plane_was_told(world: World) -> None:
    world.journal.go_on.set()
    answered: list[str] = []
    world.writer.submit(pause(1), lambda: answered.append("pause")).wait()
    assert world.announced == []
    world.announce = lambda: answered.append("told")
    statement = parse_statement(STREAM.format("ads"))
    assert isinstance(statement, CreateStream)
    created = StreamCreated(to_definition(statement, "s-2", "", 7))
    for request in (drop(1), created):
        world.writer.submit(giving(request), lambda: answered.append("stream")).wait()
    assert answered == ["pause", "told", "stream", "told", "stream"]

    def fail() -> None:
        raise OSError("the disk is full")

    world.announce = fail
    stream, other = world.queue(giving(drop(3)), pause(4))
    with pytest.raises(OSError, match="full"):
        stream.wait()
    other.wait()
    assert world.applied[-1] == [drop(3), QueryPaused("q-4")], "it is logged and applied: the changelog comes later"


def test_work_is_done_between_groups_by_the_writers_thread(world: World) -> None:
    world.journal.go_on.set()
    seen: list[Requests] = []
    world.writer.submit(pause(1))

    def look() -> threading.Thread:
        seen.append(list(world.applied))
        return world.writer.call(threading.current_thread)

    assert world.writer.call(look).name == "session-writer"
    assert seen == [[[QueryPaused("q-1")]]]
    with pytest.raises(ZeroDivisionError):
        world.writer.call(lambda: 1 // 0)
    world.writer.call(lambda: world.writer.perform(pause(2)))
    assert world.applied[-1] == [QueryPaused("q-2")]
    with pytest.raises(Conflict):
        world.writer.call(lambda: world.writer.perform(giving(Conflict("no"))))


def test_steps_are_taken_between_commands(world: World) -> None:
    world.journal.go_on.set()
    steps: list[threading.Thread] = []

    def step() -> float:
        steps.append(threading.current_thread())
        return 0.001 if len(steps) < 3 else 1000.0

    world.writer.follow(step)
    wait_until(lambda: len(steps) == 3, 30, "the writer steps")
    world.writer.submit(pause(1)).wait()
    assert {thread.name for thread in steps} == {"session-writer"}
    assert len(steps) == 3


def test_a_closed_writer_does_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    started = world.writer.submit(pause(1))
    world.journal.go_on.set()
    world.writer.close()
    started.wait()
    assert [number for number, _ in Journal(tmp_path).after(0)] == [1]
    with pytest.raises(NotReady, match="stopping"):
        world.writer.submit(pause(2))
    assert world.writer.call(threading.current_thread) is threading.current_thread(), "nobody else could do it"
    with pytest.raises(NotReady, match="starting"):
        Writer(SessionState(), lambda: 7).submit(pause(1))
