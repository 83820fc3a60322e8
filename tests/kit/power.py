"""A disk whose power can be cut: a file system of its own in a file, mounted by a loop device.

What was written to it and not flushed is gone when it comes back, as after a power cut: `shutdown` of ext4 drops it.
Only root can mount, so elsewhere the tests that need it are skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until

SIZE = 2 << 30
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, fs/ext4/ext4.h of Linux
WITHOUT_FLUSHING = 2  # EXT4_GOING_FLAGS_NOLOGFLUSH


class Disk:
    """An ext4 file system below `folder`; `end` it whatever happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self._image = folder / "disk.img"
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        try:
            _run("mkfs.ext4", "-q", str(self._image))
            self._mount()
        except (OSError, subprocess.CalledProcessError) as problem:
            self.end()
            pytest.skip(f"A DISK WHOSE POWER CAN BE CUT COULD NOT BE MADE: {problem}")

    def cut(self) -> None:
        """Have it take nothing more, and keep nothing that was not flushed."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, WITHOUT_FLUSHING.to_bytes(4, "little"))
        finally:
            os.close(handle)

    def come_back(self) -> None:
        """Be there again, with what was flushed; nobody may have anything of it open."""
        self._unmount()
        self._mount()

    def end(self) -> None:
        """Remove it."""
        if self.folder.is_mount():
            self._unmount()
        self._image.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def _unmount(self) -> None:
        # who was just killed may still let go of its files
        wait_until(lambda: _succeeds("umount", str(self.folder)), 30, f"{self.folder} can be unmounted")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
