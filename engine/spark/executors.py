"""What the service and the Spark driver tell each other about executors: a file each way.

The service says how many are wanted (``executors.json``), and says nothing while their number is not its to decide. The
driver says how many there are (``registered.json``), and nothing while it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from braid.sources.core.storage import Storage

WANTED = "executors.json"
REGISTERED = "registered.json"


@dataclass(frozen=True)
class ExecutorRequest:
    """So many executors are wanted since ``at_us``, in microseconds since 1970."""

    wanted: int
    why: str
    at_us: int


@dataclass(frozen=True)
class Registered:
    """The executors that Spark has and will keep, and their cores.

    On a local master the driver's process is counted as one. ``idle``: no job ran; never so while
    nobody says how many are wanted.
    """

    executors: int
    cores: int
    idle: bool


def write_requests(storage: Storage, max_executors: int, requests: Sequence[ExecutorRequest]) -> None:
    """Ask for the executors of the last of ``requests``; those before it are kept for the record.

    There can be ``max_executors`` one day, and no more.
    """
    storage.put(WANTED, orjson.dumps({"most": max_executors, "asked": [asdict(request) for request in requests]}))


def read_requests(storage: Storage) -> list[ExecutorRequest]:
    """Return what was asked for, the newest last; empty while nothing was."""
    return [ExecutorRequest(**request) for request in _read_file(storage).get("asked", [])]


def read_wanted(storage: Storage) -> int | None:
    """Return how many executors are wanted, None while nobody says."""
    requests = read_requests(storage)
    return requests[-1].wanted if requests else None


def read_max(storage: Storage) -> int | None:
    """Return how many executors there can be one day, None while nobody says."""
    return _read_file(storage).get("most")


def write_registered(storage: Storage, registered: Registered) -> None:
    """Tell which executors there are."""
    storage.put(REGISTERED, orjson.dumps(asdict(registered)), durable=False)


def read_registered(storage: Storage) -> Registered | None:
    """Return the executors that there are, None while that is not known."""
    with suppress(FileNotFoundError, orjson.JSONDecodeError):  # it is not flushed to disk: a power cut may tear it
        return Registered(**orjson.loads(storage.get(REGISTERED)))
    return None


def _read_file(storage: Storage) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        message: dict[str, Any] = storage.get_json(WANTED)
        return message
    return {}
