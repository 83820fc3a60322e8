"""The daemon that forks the processes of tasks: what it loads must survive a fork."""

from __future__ import annotations

import subprocess
import sys

FORK = """
import os, sys
from braid.engine.spark import task_daemon
before = set(sys.modules)
task_daemon.load()
child = os.fork()
if child == 0:
    import numpy as np
    from braid.operators import kernels
    from braid.engine import partition_task, source_task
    loaded = set(sys.modules)
    column = np.arange(1000, dtype=np.int64)
    assert kernels.total(column) == 499500, "compiled code must run in a process that was forked"
    assert (np.ones((300, 300)) @ np.ones((300, 300)) == 300).all(), "so must numpy's threads"
    assert loaded == set(sys.modules), sorted(set(sys.modules) - loaded)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(len(set(sys.modules) - before))
"""


def test_a_forked_process_has_what_tasks_need_and_it_works() -> None:
    finished = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) > 500, "what tasks need was in memory before"
