"""Shards of the deliveries: each deliverer makes those of one.

It owns the parts of :mod:`braid.router.delivery.progress` of its shard, and holds a lock on each, so that no
query is delivered twice at a time; one that finds a part held waits for it.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from braid.router.delivery.progress import PARTS
from braid.sources.core.errors import NotAllowed
from braid.sources.core.storage import Storage

LOCK_SECONDS = 0.5
LOCKS = "deliveries/locks"

log = logging.getLogger("braid.deliverer")


@dataclass(frozen=True)
class DeliveryShard:
    """Shard ``number`` (from 1) of ``of`` equal ones."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= PARTS:
            raise NotAllowed(
                f"The shard of a deliverer must be I/N with 1 <= I <= N <= {PARTS}, such as 1/4; got {self}."
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> DeliveryShard:
        """Read ``I/N``."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal()):
            raise NotAllowed(f"The shard of a deliverer must be I/N, such as 1/4; got {text!r}.")
        return cls(int(number), int(of))

    @property
    def parts(self) -> range:
        """The parts that it owns."""
        return range(self.number - 1, PARTS, self.of)


@contextmanager
def holding(storage: Storage, shard: DeliveryShard, stopping: threading.Event) -> Iterator[None]:
    """Hold the parts of a shard, or wait until they can be held; where files cannot be locked, nothing is."""
    with ExitStack() as stack:
        if storage.local_root is not None:
            folder = storage.local_path(LOCKS)
            folder.mkdir(parents=True, exist_ok=True)
            for part in shard.parts:
                stack.enter_context(_lock(folder / f"{part:02d}", stopping))
        yield


@contextmanager
def _lock(path: Path, stopping: threading.Event) -> Iterator[None]:
    with path.open("a") as file:
        has_warned = False
        while not stopping.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if not has_warned:
                    log.warning(
                        "waiting for another deliverer that has a part of this shard",
                        extra={"fields": {"lock_file": str(path)}},
                    )
                    has_warned = True
                stopping.wait(LOCK_SECONDS)
        yield
