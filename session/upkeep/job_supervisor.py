"""Keep the Spark driver running, with the JVM and the workers that it starts.

The Spark driver writes files in the data directory: ``job.json`` with the process ids of itself and of its JVM (and
when those processes were created, because ids are reused), ``ready.json`` with its own id once its first batches are
committed, and ``failing.json`` with its own id and how often the query ended in a row, until it is ready again. Once a
process of the job has found a file missing or damaged without which no batch can be run, ``damaged.json`` says so: then
the driver ends and is not started again, because only a backup helps.

Temporary files of the driver and its workers go into folders of their own, made before each start. The JVM is killed
in the end, and would leave some 15 MB behind each time; ``scratch.json`` says which folders must be removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import psutil

from braid.engine.data_layout import DAMAGED, FAILING_FILE, HEARTBEAT, JOB_FILE, READY_FILE, read_damage
from braid.engine.recovery.checkpoint import check_checkpoint
from braid.session.upkeep.supervisor import Supervisor, family_of, is_gone, kill_all, log
from braid.sources.core.storage import Storage

SCRATCH_FILE = "scratch.json"
SCRATCH_PREFIX = "braid-job-"
SPARK_LOCAL_DIRS = "SPARK_LOCAL_DIRS"


class JobSupervisor(Supervisor):
    """Runs the Spark driver."""

    def __init__(self, command: Sequence[str], storage: Storage, log_file: Path, **options: Any) -> None:
        super().__init__("job", command, log_file, **options)
        self._storage = storage
        self.stall: str | None = None
        """Why the job makes no progress, as the watchdog sees it; None while it makes some."""

    def start(self) -> None:
        """End what an earlier service left behind, and start the child; CorruptData for a damaged checkpoint."""
        self._end_leftovers()
        self._storage.delete(DAMAGED)
        check_checkpoint(self._storage)
        super().start()

    def is_ready(self) -> bool:
        """Whether the child that runs now has committed its first batches, and gets on."""
        if self.stall is not None or self._storage.exists(DAMAGED):
            return False
        ready = _read_json(self._storage, READY_FILE).get("pid")
        return ready is not None and ready == self.pid

    def why_not_ready(self) -> str:
        """Say what the child is doing while it is not ready."""
        if self._stopping.is_set():
            return "The service is stopping."
        damage = read_damage(self._storage)
        if damage is not None:
            return f"The job ends and is not started again. {damage}"
        if self.stall is not None:
            return self.stall
        failing = _read_json(self._storage, FAILING_FILE)
        if self.pid is not None and failing.get("pid") == self.pid:
            if failing.get("is_isolating"):
                return (
                    "A batch could not be run; the job is finding out which query or which input is to blame."
                    f" The log says how: {self.log_file}."
                )
            return (
                f"The Spark job's query ended {failing['times']} times in a row and is started again."
                f" The log says why: {self.log_file}."
            )
        if self.deaths:
            return (
                f"The Spark job is being restarted; it ended {self.deaths} times, the last time with"
                f" {self._last_end}. Its log is {self.log_file}."
            )
        return "The Spark job is starting; its first batches are not committed yet."

    def members(self) -> list[psutil.Process]:
        """Return the processes of the job that run: the driver, its JVM, and all that they started."""
        pid = self.pid
        return [] if pid is None else family_of(pid)

    def end_all(self) -> None:
        """End the job with all its processes, whatever they do; it is started anew."""
        kill_all(self.members())

    def _may_start_again(self) -> bool:
        damage = read_damage(self._storage)
        if damage is not None:
            log.error("the job cannot go on", extra={"fields": {"why": damage}})
        return damage is None

    def _before_spawn(self) -> None:
        self.stall = None
        self._storage.delete(HEARTBEAT)
        self._storage.delete(READY_FILE)
        self._storage.delete(FAILING_FILE)
        self._environment |= make_scratch(self._storage)

    def _end_leftovers(self) -> None:
        end_leftovers(self._storage)
        remove_scratch(self._storage)


def make_scratch(storage: Storage) -> dict[str, str]:
    """Make folders for the temporary files of a job, note them and return the variables that name them to it."""
    local_dirs = list(filter(None, os.environ.get(SPARK_LOCAL_DIRS, "").split(",")))
    temp_folder, *local_folders = folders = [
        tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent) for parent in (None, *local_dirs)
    ]
    try:
        storage.put(SCRATCH_FILE, orjson.dumps({"folders": folders}))
    except OSError:  # nobody would remove folders that are not noted
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return {"TMPDIR": temp_folder} | ({SPARK_LOCAL_DIRS: ",".join(local_folders)} if local_folders else {})


def remove_scratch(storage: Storage) -> None:
    """Remove the folders that the last :func:`make_scratch` noted, as far as they are on this machine."""
    for folder in _read_json(storage, SCRATCH_FILE).get("folders", []):
        if isinstance(folder, str) and Path(folder).name.startswith(SCRATCH_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
    storage.delete(SCRATCH_FILE)


def end_leftovers(storage: Storage) -> None:
    """End the driver and the JVM that ``job.json`` names, with all processes they started, and remove the file.

    A process counts only if it was created at the time in the file: process ids are reused.
    """
    job = _read_json(storage, JOB_FILE)
    leftovers: list[psutil.Process] = []
    for name in ("", "jvm_"):
        pid, created = job.get(f"{name}pid"), job.get(f"{name}create_time")
        if isinstance(pid, int) and isinstance(created, (int, float)):
            with contextlib.suppress(psutil.Error):
                if abs(psutil.Process(pid).create_time() - created) < 1:
                    leftovers += family_of(pid)
    leftovers = [process for process in leftovers if not is_gone(process)]
    if leftovers:
        log.warning("ending processes that an earlier job left", extra={"fields": {"pids": [p.pid for p in leftovers]}})
        kill_all(leftovers)
    storage.delete(JOB_FILE)


def _read_json(storage: Storage, path: str) -> dict[str, Any]:
    try:
        value = orjson.loads(storage.get(path))
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
