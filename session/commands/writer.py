"""The session's writer: the one thread that changes the session's state.

A *command* is a change that somebody asks for, its *request* the form in which the log keeps it, and a *group* the
commands whose requests become one record of the log, with one flush of the disk.

- A command is checked against the state, logged, applied and answered, all by this thread: it is applied to the state
  that it was checked against. One that is refused, or cannot be logged, changes nothing.
- The commands of a group are checked before any of them is applied. So a command that changes what one before it uses
  or changes, or uses what one before it changes, ends the group: it is checked once that group is applied.
- Whatever else changes the state (batches, changelogs, deadlines) is done by this thread, too, between groups.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from braid.session.log.journal import Journal, ObjectJournal
from braid.session.state.requests import Announced, Request, new_queries, request_to_json
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import NotReady

Apply = Callable[[int, int, Sequence[Request]], None]
Wake = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """A change that somebody asks for.

    ``check`` returns its request, None where nothing is to change, and raises why it is refused. It may be accepted as
    long as the objects that it ``uses`` stay as they are, and once it is applied those that it ``changes`` are others:
    streams, tables and queries by name, queries by id, too.
    """

    check: Callable[[CommandGroup], Request | None]
    changes: Set[str] = frozenset()
    uses: Set[str] = frozenset()


class CommandGroup:
    """The commands that are logged together: checked against ``state`` at ``at_us``, and not applied yet."""

    def __init__(self, state: SessionState, at_us: int) -> None:
        self.state = state
        self.at_us = at_us
        self.submissions: list[Submission] = []
        self.requests: list[Request] = []
        self.new_queries: Counter[str | None] = Counter()
        """How many queries the group accepts, by tenant."""
        self._uses: set[str] = set()
        self._changes: set[str] = set()

    def conflicts_with(self, command: Command) -> bool:
        """Whether a command can only be checked once the group is applied."""
        return not (
            self._changes.isdisjoint(command.changes)
            and self._changes.isdisjoint(command.uses)
            and self._uses.isdisjoint(command.changes)
        )

    def add(self, submission: Submission, command: Command, request: Request) -> None:
        """Add a command that was accepted."""
        submission.request = request
        self.submissions.append(submission)
        self.requests.append(request)
        self.new_queries.update(query.tenant for query in new_queries(request))
        self._uses |= command.uses
        self._changes |= command.changes


@dataclass(slots=True, eq=False)
class Submission:
    """A command that has begun; ``answer`` is called once it is done. Without a command there is nothing to wait for.

    The writer's thread calls ``on_done``.
    """

    answer: Callable[[], list[dict[str, Any]]]
    command: Command | None = None
    on_done: Sequence[Wake] = ()
    request: Request | None = None
    """What was logged; None where the command changed nothing."""
    _done: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None

    def wait(self) -> list[dict[str, Any]]:
        """Return the answer when the command is durable and applied, or raise why it was refused."""
        if self.command is not None:
            self._done.wait()
        return self.result()

    def result(self) -> list[dict[str, Any]]:
        """Return the answer of a command that is done, or raise why it was refused."""
        if self._error is not None:
            raise self._error
        return self.answer()

    def finish(self, error: BaseException | None = None) -> None:
        """Wake whoever waits."""
        self._error = error
        self._done.set()
        for wake in self.on_done:
            wake()


@dataclass(frozen=True)
class _Call:
    work: Callable[[], Any]
    result: Future[Any]

    def run(self) -> None:
        try:
            self.result.set_result(self.work())
        except BaseException as error:  # whatever it is, the thread that waits must get it
            self.result.set_exception(error)


class Writer:
    """The queue of commands, and the thread that takes them from it."""

    def __init__(self, state: SessionState, now_us: Callable[[], int]) -> None:
        self._state = state
        self._now_us = now_us
        self._changed = threading.Condition()
        self._queue: list[Submission | _Call] = []
        self._thread: threading.Thread | None = None
        self._is_running = self._is_closed = False
        self._step: Callable[[], float] | None = None
        self._step_at = math.inf

    # any thread

    def start(
        self, journal: Journal | ObjectJournal, number: int, apply: Apply, announce: Callable[[], object]
    ) -> None:
        """Take commands from now on, the first one's record after ``number``.

        ``apply(number, at_us, requests)`` is called for each record once it is durable, ``announce`` before commands
        are answered that the data plane must have heard of by then.
        """
        self._journal, self._number, self._apply, self._announce = journal, number, apply, announce
        self._thread = threading.Thread(target=self._run, name="session-writer", daemon=True)
        self._is_running = True
        self._thread.start()

    def follow(self, step: Callable[[], float]) -> None:
        """Call ``step`` between groups, now and then: each time it returns after how many seconds again."""
        with self._changed:
            self._step, self._step_at = step, 0.0
            self._changed.notify()

    def submit(self, command: Command, *on_done: Wake, answer: Callable[[], list[dict[str, Any]]] = list) -> Submission:
        """Queue a command after those already queued, without waiting; NotReady where none are taken."""
        submission = Submission(answer, command, on_done)
        with self._changed:
            if self._thread is None:
                raise NotReady("The service is starting; send the request again in a moment.")
            if self._is_closed:
                raise NotReady("The service is stopping; send the request again once it has started.")
            self._queue.append(submission)
            self._changed.notify()
        return submission

    def call(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the writer's thread, between groups, and return its result.

        It is done at once by the writer's thread itself, and while that does not run.
        """
        with self._changed:
            call = None
            if self._is_running and threading.current_thread() is not self._thread:
                call = _Call(work, Future())
                self._queue.append(call)
                self._changed.notify()
        if call is None:
            return work()
        result: T = call.result.result()
        return result

    def trim(self, upto: int) -> None:
        """Remove the log's records up to and including ``upto``."""
        self._journal.trim(upto)

    def close(self) -> None:
        """Do what waits, then stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._journal.close()

    # the writer's thread

    def perform(self, command: Command) -> None:
        """Check, log and apply a command at once."""
        submission = Submission(list, command)
        self._do([submission])
        submission.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._is_closed:
                    self._changed.wait(None if self._step is None else max(0.0, self._step_at - time.monotonic()))
                tasks, self._queue = self._queue, []
                if self._is_closed and not tasks:
                    self._is_running = False
                    return
            self._do(tasks)
            if self._step is not None and time.monotonic() >= self._step_at:
                self._step_at = self._step() + time.monotonic()

    def _do(self, tasks: Sequence[Submission | _Call]) -> None:
        group = self._new_group()
        for task in tasks:
            command = None if isinstance(task, _Call) else task.command
            if command is None or group.conflicts_with(command):
                self._commit(group)
                group = self._new_group()
            if isinstance(task, _Call):
                task.run()
                continue
            assert command is not None
            try:
                request = command.check(group)
            except BaseException as error:
                task.finish(error)
                continue
            if request is None:
                task.finish()
            else:
                group.add(task, command, request)
        self._commit(group)

    def _new_group(self) -> CommandGroup:
        return CommandGroup(self._state, self._now_us())

    def _commit(self, group: CommandGroup) -> None:
        if not group.requests:
            return
        error: BaseException | None = None
        try:
            self._write(group)
        except BaseException as raised:
            error = raised
        announced = [each for each in group.submissions if isinstance(each.request, Announced)]
        for submission in group.submissions:
            if error is not None:
                submission.finish(_not_written(error))
            elif submission not in announced:
                submission.finish()
        if announced and error is None:
            try:
                self._announce()
            except BaseException as raised:
                error = raised
            for submission in announced:
                submission.finish(error)

    def _write(self, group: CommandGroup) -> None:
        number = self._number + 1
        record = {"at_us": group.at_us, "requests": [request_to_json(request) for request in group.requests]}
        self._journal.append(number, record)
        self._number = number
        self._apply(number, group.at_us, group.requests)


def _not_written(error: BaseException) -> BaseException:
    if not isinstance(error, OSError):
        return error
    refusal = NotReady(
        f"A request must be on disk before it is answered; writing it failed: {error}."
        " Nothing changed; make room or repair the disk, then send it again."
    )
    refusal.__cause__ = error
    return refusal
