"""A query that a command owns: however the command ends, it retires the query or says that it could not.

It ends by itself, by Ctrl-C, SIGTERM, a closed terminal, a closed pipe or an error.
"""

from __future__ import annotations

import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Unpack

import click

from braid.api.cli.output import note, print_json
from braid.client import BraidError, Client, QueryFailed, QueryFields

_RETIRE_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Registration = Callable[[Client], dict[str, Any]]


@dataclass
class OwnedQuery:
    """A query as it was registered, the cursor after its rows that were shown, and whether it has ended."""

    registered: dict[str, Any]
    cursor: str | None = None
    is_over: bool = False

    @property
    def id(self) -> str:
        """The id of the query."""
        return str(self.registered["id"])


def registration(sql: str, wait: float = 30.0, **fields: Unpack[QueryFields]) -> Registration:
    """Return the function that registers a query; called again, it returns the one that was registered."""
    key = str(uuid.uuid4())
    return lambda braid: braid.create_query(sql, wait=wait, key=key, **fields)


@contextmanager
def owned_query(braid: Client, register: Registration, as_json: bool = False) -> Iterator[OwnedQuery]:
    """Register a query, and retire it however the block ends; an interrupt ends the block.

    KeyboardInterrupt when the interrupt came before the service answered.
    """
    owned: OwnedQuery | None = None
    try:
        owned = OwnedQuery(register(braid))
        announce(owned.registered, as_json, detach=False)
        yield owned
    except KeyboardInterrupt:
        leave_interrupted_line()
        if owned is None:
            again = _register_again(braid, register)
            owned = None if again is None else OwnedQuery(again)
            raise
    except QueryFailed:
        if owned is not None:
            owned.is_over = True  # a failed query holds nothing that could be retired, and its error stays readable
        raise
    finally:
        _ignore_interrupts()
        if owned is not None and not owned.is_over:
            _retire(braid, owned)


def announce(registered: dict[str, Any], as_json: bool, detach: bool) -> None:
    """Say that a query is registered; QueryFailed when it failed at once."""
    query_id, state = registered["id"], registered.get("state")
    if state == "FAILED":
        raise QueryFailed(f"query {query_id} is FAILED: {registered.get('error')}")
    if detach and as_json:
        print_json([registered])
        return
    name = f" ({registered['name']})" if registered.get("name") else ""
    latency = registered.get("deployment_latency_seconds")
    deployed = "" if latency is None else f", deployed in {float(latency):.2f} s"
    ending = "" if detach else "; Ctrl-C retires it"
    click.echo(f"query {query_id}{name} is {state}{deployed}{ending}", err=not detach)


@dataclass
class Interrupt:
    """The signal that came, if any did."""

    number: int | None = None

    @property
    def ends_shell(self) -> bool:
        """Say whether the command must end, not only the query it follows."""
        return self.number is not None and self.number != signal.SIGINT


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Make SIGINT, SIGTERM and SIGHUP a KeyboardInterrupt.

    SIGINT is one also where a shell started the command in the background. SIGHUP stays ignored below `nohup`.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def raise_interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        interrupt.number = number
        _ignore_interrupts()
        raise KeyboardInterrupt

    numbers = [number for number in _SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    previous_handlers = {number: signal.signal(number, raise_interrupt) for number in numbers}
    try:
        yield interrupt
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _ignore_interrupts() -> None:
    """Let a second Ctrl-C not keep the command from retiring its query, which takes a bounded time."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _retire(braid: Client, owned: OwnedQuery) -> None:
    """Delete the query; a sink still gets the windows that are complete, nobody else would read them."""
    query_id = owned.id
    try:
        # an interrupt may have left the connections of `braid` in the middle of an answer
        with Client(braid.url, timeout=_RETIRE_SECONDS, api_key=braid.api_key) as client:
            client.delete_query(query_id, drain=owned.registered.get("sink") is not None)
    except BraidError as error:
        after_option = "" if owned.cursor is None else f" --after {owned.cursor}"
        click.echo(
            f"Query {query_id} could not be retired ({error}): it goes on. Retire it with "
            f"`braid drop {query_id}`, or read on with `braid results {query_id} --follow{after_option}`.",
            err=True,
        )
        return
    note(f"retired query {query_id}")


def _register_again(braid: Client, register: Registration) -> dict[str, Any] | None:
    """Send the request again, under the same key, to learn which query it registered."""
    try:
        with Client(braid.url, timeout=_RETIRE_SECONDS, api_key=braid.api_key) as client:
            return register(client)
    except BraidError as error:
        click.echo(
            f"Interrupted before the service answered ({error}): `braid queries` shows whether it is there.",
            err=True,
        )
        return None


def leave_interrupted_line() -> None:
    """Begin a new line where the terminal has written ^C into the current one."""
    if sys.stdout.isatty():
        click.echo()
