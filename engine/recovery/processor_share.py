"""What processes get of the processor time that they want, so that limits count work and not how busy a machine is.

Linux tells for each thread how long it ran, and how long it could have run and waited for a core
(``/proc/PID/task/TID/schedstat``). Elsewhere processes count as having got all that they wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MIN_SHARE = 0.1
"""Time counts with a tenth at least: what never gets a core is ended after all."""


class ProcessorShare:
    """Measures the share between one look and the next; the first is when it is made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._before = _all_times(pids)

    def of(self, pids: Iterable[int]) -> float:
        """Return which part of the time in which threads of these processes could run they ran, since the last look.

        1 where they wanted nothing. What a process did that was not there at the last look counts as done since.
        """
        now = _all_times(pids)
        before, self._before = self._before, now
        ran, waited = (sum(times[at] - before.get(path, (0, 0))[at] for path, times in now.items()) for at in (0, 1))
        return max(MIN_SHARE, ran / (ran + waited)) if ran + waited > 0 else 1.0


def _all_times(pids: Iterable[int]) -> dict[Path, tuple[int, int]]:
    return {path: times for pid in pids for path, times in _times(pid)}


def _times(pid: int) -> Iterable[tuple[Path, tuple[int, int]]]:
    """Yield for each thread of a process how long it ran and waited (ns)."""
    with suppress(OSError, ValueError):  # it has just ended, or the system has no such figures
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):
                ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                yield task, (ran, waited)
