"""A clock that tests move, of a process and its children: that of the machine stays as it is.

They preload a library (``moved_clock.c``) that adds to CLOCK_REALTIME what a file says. libfaketime does this too, but
Python 3.11 cannot sleep with Debian's, and the JVM hangs with newer ones.
"""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from pathlib import Path

NO_CLOCK = "moving the clock takes a C compiler (cc), on Linux"


class MovedClock:
    """The clock of the processes that run in :attr:`environment`."""

    def __init__(self, folder: Path) -> None:
        """Put it into a folder; AssertionError where the library cannot be compiled."""
        library, self._file = folder / "moved_clock.so", folder / "clock"
        folder.mkdir(parents=True, exist_ok=True)
        source = Path(__file__).with_suffix(".c")
        command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr
        self._file.write_bytes(bytes(8))
        self.ahead = dt.timedelta()
        self.environment = {"LD_PRELOAD": str(library), "BRAID_MOVED_CLOCK": str(self._file)}

    @staticmethod
    def can_be_had() -> bool:
        """Whether there is a C compiler, on Linux."""
        return sys.platform == "linux" and shutil.which("cc") is not None

    def jump(self, seconds: int) -> None:
        """Set the clock ahead by so many seconds, or back."""
        self.ahead += dt.timedelta(seconds=seconds)
        nanoseconds = round(self.ahead.total_seconds()) * 10**9
        with self._file.open("r+b", buffering=0) as file:
            file.write(nanoseconds.to_bytes(8, "little", signed=True))

    def now(self) -> dt.datetime:
        """Return what time it is by this clock."""
        return dt.datetime.now(dt.UTC) + self.ahead
