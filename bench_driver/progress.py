"""Show how far a benchmark is: lines that stay, and in a terminal below them what it does now."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.text import Text


class BenchProgress:
    """Tells of so many measurements; a context manager.

    Texts are printed as they are: nothing in them is taken for markup.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._label = self._last_text = ""
        self._status = console.status("") if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, label: str) -> None:
        """Say which measurement begins."""
        self._label, self._last_text = f"[{self._done + 1}/{self._total}] {label}", ""
        if self._status is None:
            self._line(self._label)
        else:
            self._status.update(Text(self._label))

    def step(self, text: str, share: float | None) -> None:
        """Say what the measurement does now, and what share of it (0 to 1) is done, None when that is not known."""
        if self._status is not None:
            self._status.update(Text(f"{self._label}: {text}" + ("" if share is None else f", {share:.0%}")))
        elif text != self._last_text:
            self._line(f"    {text}")
        self._last_text = text

    def end(self, outcome: str) -> None:
        """Say what came of the measurement, in a line that stays."""
        self._done += 1
        self._line(outcome)

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"{elapsed:7.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)
