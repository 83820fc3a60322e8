"""Show how far a benchmark is: bars in a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.progress import Task as Bar
from rich.text import Text


class BenchProgress:
    """One bar for all measurements, one for what the current one does; a context manager.

    Texts are printed as they are: nothing in them is taken for markup.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._last_text = ""
        self._bars: Bars | None = None
        if console.is_terminal:
            self._bars = Bars(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                _CountColumn(),
                TimeElapsedColumn(),
                console=console,
            )
            self._overall = self._bars.add_task("all measurements", total=total, count=True)
            self._step = self._bars.add_task("", total=None, count=False)

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin(self, label: str) -> None:
        """Say which measurement begins."""
        self._last_text = ""
        if self._bars is not None:
            self._bars.update(self._overall, description=label)
            self._bars.reset(self._step, description="starting", total=None)
        else:
            self._line(f"[{self._done + 1}/{self._total}] {label}")

    def step(self, text: str, share: float | None) -> None:
        """Say what the measurement does now, and what share of it (0 to 1) is done, None when that is not known."""
        if self._bars is not None:
            is_known = share is not None
            self._bars.update(self._step, description=text, total=1.0 if is_known else None, completed=share or 0.0)
        elif text != self._last_text:
            self._line(f"    {text}")
        self._last_text = text

    def end(self, outcome: str) -> None:
        """Say what came of the measurement, in a line that stays."""
        self._done += 1
        if self._bars is not None:
            self._bars.update(self._overall, completed=self._done)
        self.note(outcome)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._line(text)

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"{elapsed:7.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)


class _CountColumn(ProgressColumn):
    """How many of how many, for the bar that counts; the other one is a share."""

    def __init__(self) -> None:
        super().__init__()
        self._count = MofNCompleteColumn()

    def render(self, task: Bar) -> Text:
        """Return the text beside a bar."""
        if task.fields["count"]:
            return self._count.render(task)
        return Text("" if task.total is None else f"{task.percentage:3.0f} %")
