"""The progress bar of a query that reads the past, on standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from braid.client import BraidError, Client

_LOOK_SECONDS = 0.5


@contextmanager
def catching_up(braid: Client, query: Mapping[str, Any]) -> Iterator[Callable[[], None]]:
    """Show how far a query has caught up, and yield what ends that before the block does.

    Rows that come to a terminal show it themselves.
    """
    stop = threading.Event()
    shown = threading.Thread(target=_show, args=(braid, str(query["id"]), stop), daemon=True)
    is_shown = query.get("state") == "CATCHING_UP" and sys.stderr.isatty()
    if is_shown:
        shown.start()

    def end() -> None:
        stop.set()
        if is_shown:
            shown.join()

    try:
        yield end
    finally:
        end()


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
                    if stream not in tasks:
                        tasks[stream] = bars.add_task(f"catching up with {stream}")
                    bars.update(tasks[stream], completed=progress["read"], total=progress["read"] + progress["left"])
