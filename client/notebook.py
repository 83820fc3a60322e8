"""A cell of a notebook that shows the newest rows of a query, and goes on doing so as they come."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from braid.client.errors import BraidError
from braid.client.frames import library
from braid.client.table import Table, unreadable

_SECONDS_BETWEEN_UPDATES = 0.2


class LiveCell:
    """Shows each of `tables` in the place of the one before, below the cell that runs."""

    def __init__(self, title: str, tables: Iterator[Table]) -> None:
        self._title = title
        self._tables = tables
        self._stopped = threading.Event()

    def start(self) -> None:
        """Show the first table; the others follow in a thread, while other cells run."""
        display = library("IPython.display", "a cell").display
        try:
            first = next(self._tables)
        except BraidError as error:  # a cell that made the query must not look as if it had not
            display(unreadable(self._title, error))
            return
        handle = display(first, display_id=True)
        threading.Thread(target=self._update, args=(handle,), daemon=True).start()

    def stop(self) -> None:
        """Leave the cell as it is."""
        self._stopped.set()

    def _update(self, handle: Any) -> None:
        try:
            for table in self._tables:
                if self._stopped.is_set():
                    return
                handle.update(table)
                time.sleep(_SECONDS_BETWEEN_UPDATES)
        except BraidError as error:
            handle.update(unreadable(self._title, error))
        except RuntimeError:  # the client was closed
            return


def in_notebook() -> bool:
    """Whether a kernel runs this, whose frontend updates what it displayed."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
