"""The watchdog: finds out when the job makes no progress, and ends the processes that hang, so that it is started anew.

The job shows *signs of life*: the planner writes one every second while Spark asks it for batches, and each batch ends
with a record. Without any for ``stall_seconds`` the service is not ready, and says so. Then

- processes of the job that use no processor, or are stopped, hang: the job is ended at once;
- a batch that goes on working is ended after ``batch_limit_seconds``. Time in which its threads waited for a core does
  not count (:mod:`braid.engine.recovery.processor_share`). Its number is noted, so that the job finds out what the
  batch cannot be run with before it runs it again (:mod:`braid.engine.recovery.isolation`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

import psutil

from braid.engine.data_layout import BATCHES, read_heartbeat
from braid.engine.recovery.isolation_log import note_outlasted, pending_batch
from braid.engine.recovery.processor_share import ProcessorShare
from braid.session.upkeep.job_supervisor import JobSupervisor
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

LOOK_SECONDS = 1.0
# what starts, shows no signs of life before it runs
START_SECONDS = 600.0
# so long a stalled job is watched before it is said to hang, and so much of a core it must use meanwhile
WATCHED_SECONDS, MIN_USE = 4.0, 0.05
# a batch that outlasts its limit again, with nothing found that holds it, is given twice the time, at most so often
MAX_DOUBLINGS = 4

log = logging.getLogger("braid.watchdog")


class Watchdog:
    """Watches the job of one supervisor; :meth:`look` is called every :data:`LOOK_SECONDS`.

    ``works_here``: batches run in processes of this machine, so that using no processor means that they hang.
    """

    def __init__(
        self,
        supervisor: JobSupervisor,
        storage: Storage,
        stall_seconds: float,
        batch_limit_seconds: float,
        works_here: bool = True,
    ) -> None:
        self._supervisor = supervisor
        self._storage = storage
        self._batches = RecordLog(storage, BATCHES)
        self._stall_seconds = stall_seconds
        self._batch_limit_seconds = batch_limit_seconds
        self._works_here = works_here
        self._sign: object = None
        self._silent = 0.0
        # the silent time, of which what follows the stall counts by the share of the processor that others left the job
        self._worked = 0.0
        self._share: ProcessorShare | None = None
        # processor seconds by process, of those that ended meanwhile, too; and all of them at each look
        self._used: dict[int, float] = {}
        self._use: list[float] = []
        self._outlasted: tuple[int, int] = (0, 0)
        self.stalls = 0
        """How often the job got nowhere for ``stall_seconds`` after its start."""

    def counts(self) -> dict[str, int]:
        """Return how often the job got nowhere, and how often it ended, or was ended, while the service went on."""
        return {"stalls": self.stalls, "restarts": self._supervisor.deaths}

    def follow(self, stopped: threading.Event) -> None:
        """Look again and again until ``stopped``."""
        while not stopped.wait(LOOK_SECONDS):
            try:
                self.look(LOOK_SECONDS)
            except Exception:  # the data folder may be away; the next look may see it
                log.exception("the watchdog could not check the job")

    def look(self, seconds: float) -> None:
        """Look at the job, ``seconds`` after the last time.

        Time in which the service itself stood still does not count, since the job may have, too.
        """
        pid = self._supervisor.pid
        sign = (pid, read_heartbeat(self._storage), self._batches.latest())
        if pid is None or sign != self._sign:
            if pid is not None and self._supervisor.stall is not None:
                log.info("the job makes progress again")
            self._sign, self._silent, self._used, self._use = sign, 0.0, {}, []
            self._supervisor.stall = None
            return
        self._silent += seconds
        if self._silent < (self._stall_seconds if sign[1] is not None else START_SECONDS):
            return
        members = self._supervisor.members()
        if self._supervisor.stall is None:
            self._worked, self._share = self._silent - seconds, None
            fields = {"silent_seconds": round(self._silent), "pids": [m.pid for m in members], "batch": sign[2] + 1}
            if self._supervisor.is_ready():
                self.stalls += 1
                log.error(
                    "the job shows no sign of life; if it hangs it is ended and started again", extra={"fields": fields}
                )
            else:  # processes start, and load what is compiled
                log.info("the job has ended no batch since its start; it is given time", extra={"fields": fields})
        self._supervisor.stall = (
            f"The job has shown no sign of life for {self._silent:.0f} s; what hangs is ended and started anew."
        )
        for member in members:
            with contextlib.suppress(psutil.Error):  # it has just ended
                self._used[member.pid] = sum(member.cpu_times()[:2])
        self._use.append(sum(self._used.values()))
        self._worked += seconds * self._share_of([member.pid for member in members])
        if _are_some_stopped(members):
            self._end("processes of it are suspended (SIGSTOP)")
        elif self._works_here and len(self._use) * seconds > WATCHED_SECONDS and self._is_still(seconds):
            self._end("its processes do nothing")
        elif self._worked >= self._limit():
            self._note_outlasted()
            self._end("a batch outlasts batch_limit_seconds")

    def _share_of(self, pids: Sequence[int]) -> float:
        if self._share is None:
            self._share = ProcessorShare(pids)
            return 1.0
        return self._share.of(pids)

    def _is_still(self, seconds: float) -> bool:
        watched = self._use[-round(WATCHED_SECONDS / seconds) - 1 :]
        return watched[-1] - watched[0] < MIN_USE * (len(watched) - 1) * seconds

    def _limit(self) -> float:
        seq, times = self._outlasted
        doublings = times if seq == self._batches.latest() + 1 else 0
        return max(self._stall_seconds, self._batch_limit_seconds) * 2.0 ** min(doublings, MAX_DOUBLINGS)

    def _note_outlasted(self) -> None:
        seq = pending_batch(self._storage)
        if seq is not None:
            before, times = self._outlasted
            self._outlasted = seq, times + 1 if before == seq else 1
            note_outlasted(self._storage, seq)

    def _end(self, why: str) -> None:
        log.error(
            "ending the job, which is started again",
            extra={"fields": {"why": why, "silent_seconds": round(self._silent)}},
        )
        self._silent, self._used, self._use = 0.0, {}, []
        self._supervisor.end_all()


def _are_some_stopped(processes: Sequence[psutil.Process]) -> bool:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                return True
    return False
