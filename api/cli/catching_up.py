"""The progress bar of a query that reads the past: on standard error, where rows go somewhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from braid.client import BraidError, Client

_LOOK_SECONDS = 0.5


@contextmanager
def catching_up(braid: Client, query: Mapping[str, Any]) -> Iterator[None]:
    """Show how far a query has caught up while its rows are written to a file or a pipe.

    In a terminal the rows themselves show it.
    """
    if query.get("state") != "CATCHING_UP" or sys.stdout.isatty() or not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    shown = threading.Thread(target=_show, args=(braid, str(query["id"]), stop), daemon=True)
    shown.start()
    try:
        yield
    finally:
        stop.set()
        shown.join()


def _show(braid: Client, query_id: str, stop: threading.Event) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with (
        suppress(BraidError),  # the rows say what is wrong
        Client(braid.url, api_key=braid.api_key) as client,
        Progress(*columns, console=console, transient=True) as bars,
    ):
        tasks: dict[str, Any] = {}
        while not stop.wait(_LOOK_SECONDS):
            query = client.get_query(query_id)
            if query.get("state") != "CATCHING_UP":
                return
            for stream, progress in (query.get("progress") or {}).items():
                if progress["left"] is not None:
                    task = tasks.setdefault(stream, bars.add_task(f"catching up with {stream}", total=None))
                    bars.update(task, completed=progress["read"], total=progress["read"] + progress["left"])
