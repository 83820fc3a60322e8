"""What outlives a task is looked at by no collection until the next full one; cycles made later still go."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from braid.engine.spark import worker_memory
from braid.engine.spark.worker_memory import freeze_garbage


class Node:
    """Something that can be part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_alive_is_frozen() -> None:
    gc.unfreeze()
    node = Node()
    gc.collect()
    freeze_garbage()
    assert gc.get_freeze_count() > 1000
    assert not any(collected is node for collected in gc.get_objects())


def test_cycles_that_a_task_leaves_behind_are_collected() -> None:
    gc.collect()
    freeze_garbage()
    reference = weakref.ref(Node())
    gc.collect()
    assert reference() is None


def test_cycles_that_were_frozen_go_with_the_next_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_memory, "_TASKS_BETWEEN_FULL_COLLECTIONS", 5)
    node: Node | None = Node()
    reference = weakref.ref(node)
    gc.collect()
    while not gc.get_freeze_count():
        freeze_garbage()
    node = None
    for _ in range(5):
        gc.collect()
        freeze_garbage()
    gc.collect()
    assert reference() is None


def test_a_process_that_takes_more_than_its_limit_gets_a_memory_error_and_so_do_those_that_it_forks() -> None:
    code = (
        "import os; from braid.engine.spark.worker_memory import limit_memory; limit_memory(400 << 20)\n"
        "def take():\n"
        "    try: bytearray(600 << 20)\n"
        "    except MemoryError: return 7\n"
        "    return 0\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(take())\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == take() == 7"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_half_of_the_memory_is_shared_by_the_cores_but_for_a_least_part() -> None:
    there_is = worker_memory.memory_there_is()
    assert there_is > 0
    assert worker_memory.default_limit(1) == max(worker_memory.MIN_MEMORY, there_is // 2)
    assert worker_memory.default_limit(10**6) == worker_memory.MIN_MEMORY
