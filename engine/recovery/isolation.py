"""Finding out what a batch cannot be run with: it runs in parts, each in a process that may die.

A batch that ends workers, or never ends, would do so whenever it runs again, for all queries. The culprit is one query
more than the others leave room for, or a stretch of a stream's input. It goes into the offset of the batch, in Spark's
log, before the batch runs again, so that every further run agrees: ``failed`` and ``passed_over`` of
:class:`braid.engine.planning.offsets.Offset`.

``python -m braid.engine.recovery.isolation DATA_DIR PARTITIONS MEMORY_BYTES SECONDS JOIN_ROW_LIMIT`` does it for the
batch that is logged and not published; nothing else may run batches meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryFile

import orjson

from braid.engine.plan_log import PlanLog
from braid.engine.planning.offsets import Offset, PassedOver, Span
from braid.engine.recovery.checkpoint import read_offset, rewrite_offset
from braid.engine.recovery.isolation_log import pending_batch
from braid.engine.recovery.processor_share import ProcessorShare
from braid.engine.spark.worker_memory import limit_memory
from braid.operators import failure_isolation
from braid.sources.core.storage import Storage

POLL_SECONDS = 0.02
# threads that wait for a core are seen to have waited once they run
SHARE_SECONDS = 0.5
# more culprits in one batch are not looked for: then something else is wrong
MAX_CULPRITS = 200
_SAMPLES = 64
_OUT_OF_MEMORY, _RAISED = 3, 4
_LEFT_OUT = "left out to find a culprit"


@dataclass(frozen=True)
class Failure:
    """Why a run did not get through, and which queries were being evaluated then, by id; none where nobody knows."""

    reason: str
    suspects: tuple[str, ...] = ()


Run = Callable[[Offset], Failure | None]


def isolate(end: Offset, queries: Sequence[str], run: Run) -> Offset | None:
    """Return the offset of a batch without what it cannot be run with, None where it can be run as it is.

    ``queries`` are the ids of all, the oldest first; ``run`` tries the batch that ends at an offset. RuntimeError when
    the batch cannot be run whatever is left out.
    """
    found = end
    for _ in range(MAX_CULPRITS):
        failure = run(found)
        if failure is None:
            return None if found is end else found
        candidates = [query for query in queries if query not in found.failed]
        suspects = [query for query in candidates if query in failure.suspects]
        if suspects and run(_leaving_out(found, suspects)) is None:
            others = [query for query in candidates if query not in suspects]
            found = _without_query(found, others + suspects, len(suspects), failure, run)
        elif run(_leaving_out(found, candidates)) is None:
            found = _without_query(found, candidates, len(candidates), failure, run)
        else:
            found = _without_input(found, candidates, run)
    raise RuntimeError(f"Batch {end.seq} cannot be run even without {MAX_CULPRITS} queries and pieces of input.")


def _leaving_out(offset: Offset, queries: Iterable[str]) -> Offset:
    return replace(offset, failed={**offset.failed, **dict.fromkeys(queries, _LEFT_OUT)})


def _without_query(offset: Offset, candidates: Sequence[str], suspects: int, failure: Failure, run: Run) -> Offset:
    """Fail the first of the last ``suspects`` candidates with which, and all before it, the batch cannot be run.

    Without the suspects it can be run; with all candidates it cannot, because of ``failure``.
    """
    low, high = len(candidates) - suspects, len(candidates)
    while high - low > 1:
        middle = (low + high) // 2
        tried = run(_leaving_out(offset, candidates[middle:]))
        low, high, failure = (middle, high, failure) if tried is None else (low, middle, tried)
    return replace(offset, failed={**offset.failed, candidates[high - 1]: failure.reason})


def _without_input(offset: Offset, queries: Sequence[str], run: Run) -> Offset:
    """Pass over the first stretch of input that cannot be read, with no query running."""
    spans = [piece for span in offset.spans for piece in span.without(offset.passed_over)]
    total = sum(span.end - span.start for span in spans)

    def only(pieces: Iterable[Span]) -> Failure | None:
        kept = list(pieces)
        gone = [
            PassedOver(rest.stream, rest.partition, rest.start, rest.end, _LEFT_OUT)
            for span in spans
            for rest in span.without(PassedOver(p.stream, p.partition, p.start, p.end, "") for p in kept)
        ]
        return run(replace(_leaving_out(offset, queries), passed_over=(*offset.passed_over, *gone)))

    if only(()) is not None:
        raise RuntimeError(f"Batch {offset.seq} cannot be run even without any query and input.")
    low, high, failure = 0, total, None
    while high - low > 1:
        middle = (low + high) // 2
        tried = only(_first(spans, middle))
        low, high, failure = (middle, high, failure) if tried is None else (low, middle, tried)
    failure = failure or only(_first(spans, high))
    if failure is None:
        return offset  # this time it ran: the caller tries again
    *_, span = _first(spans, high)
    begin = span.end - 1
    whole = next(s for s in spans if (s.stream, s.partition) == (span.stream, span.partition) and s.end > begin)

    def is_bad(at: int) -> bool:
        return only([Span(span.stream, span.partition, at, at + 1)]) is not None

    step = 1
    while begin + step < whole.end and is_bad(begin + step):
        step *= 2
    end = min(begin + step, whole.end)
    # a good piece between two bad ones may have been jumped over; this finds it unless it is short beside what is bad
    sampled = range(begin + 1, end, max(1, (end - begin) // _SAMPLES))
    end = next((at for at in sampled if not is_bad(at)), end)
    bad = max((at for at in (begin, *sampled) if at < end), default=begin)
    while end - bad > 1:
        middle = (end + bad) // 2
        end, bad = (end, middle) if is_bad(middle) else (middle, bad)
    passed_over = PassedOver(span.stream, span.partition, begin, end, failure.reason)
    return replace(offset, passed_over=(*offset.passed_over, passed_over))


def _first(spans: Sequence[Span], count: int) -> list[Span]:
    """Return the first ``count`` tuples of spans."""
    first = []
    for span in spans:
        if count > 0:
            first.append(replace(span, end=min(span.end, span.start + count)))
            count -= span.end - span.start
    return first


class RunApart:
    """Runs a batch that begins at ``start`` in a process of its own, with limits."""

    def __init__(
        self,
        storage: Storage,
        start: Offset,
        partitions: Sequence[int],
        memory_bytes: int,
        seconds: float,
        join_row_limit: int,
    ) -> None:
        self._storage = storage
        self._start = start
        self._partitions = list(partitions)
        self._memory_bytes = memory_bytes
        self._seconds = seconds
        self._join_row_limit = join_row_limit

    def __call__(self, end: Offset) -> Failure | None:
        """Run it up to what would be published; nothing of it counts."""
        with TemporaryFile() as evaluated:
            pid = os.fork()
            if pid == 0:
                self._run_and_exit(end, evaluated.fileno())
            status = self._wait(pid)
            evaluated.seek(0)
            suspects = evaluated.read().decode().split("\n")
        if status == 0:
            return None
        return Failure(self._reason(status), tuple(filter(None, suspects)))

    def _wait(self, pid: int) -> int | None:
        """Return the exit status of a process, the negative number of the signal that ended it, None for no end."""
        share, worked, before = ProcessorShare([pid]), 0.0, time.monotonic()
        while worked < self._seconds:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(POLL_SECONDS)
            elapsed = time.monotonic() - before
            if elapsed >= SHARE_SECONDS:
                worked, before = worked + elapsed * share.of([pid]), before + elapsed
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None

    def _reason(self, status: int | None) -> str:
        if status is None:
            return f"A batch takes longer than {self._seconds:g} seconds with it (setting batch_limit_seconds)."
        if status in (_OUT_OF_MEMORY, -signal.SIGKILL):
            mib = self._memory_bytes >> 20
            return f"A batch takes more than {mib} MiB of memory with it (setting worker_memory_bytes)."
        if status < 0:
            return f"It ends the process that runs a batch ({signal.Signals(-status).name})."
        return "It raises an error that ends the batch; the job's log has it."

    def _run_and_exit(self, end: Offset, evaluated: int) -> None:
        status = _RAISED
        try:

            def observe(queries: Sequence[str]) -> None:
                os.pwrite(evaluated, text := "\n".join(queries).encode(), 0)
                os.ftruncate(evaluated, len(text))

            failure_isolation.observe(observe)
            limit_memory(self._memory_bytes)
            run_batch(self._storage, self._start, end, self._partitions, self._join_row_limit)
            status = 0
        except MemoryError:
            status = _OUT_OF_MEMORY
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def run_batch(storage: Storage, start: Offset, end: Offset, partitions: Sequence[int], join_row_limit: int) -> None:
    """Run a batch up to what would be published, source tasks and partitions one after the other."""
    from braid.engine.partition_task import PartitionTasks
    from braid.engine.source_task import SourceTasks
    from braid.engine.wire import to_batch

    rows = list(SourceTasks(storage, PlanLog(storage), list(partitions)).run(start, end, 0, 1))
    partition_tasks = PartitionTasks(storage, PlanLog(storage), partitions, join_row_limit)
    for partition in partitions:
        partition_tasks.run([to_batch([row for row in rows if row.partition == partition])])


def main(arguments: Sequence[str]) -> int:
    """Isolate what the pending batch cannot be run with, and say so on standard output."""
    from braid.operators import kernels

    data_dir, partitions, memory_bytes, seconds, join_row_limit = arguments
    storage = Storage(data_dir)
    seq = pending_batch(storage)
    if seq is None:
        return 0
    kernels.warm_up()
    start = read_offset(storage, seq - 1) if seq > 1 else Offset()
    end = read_offset(storage, seq)
    live = PlanLog(storage).at(start, replace(end, failed={}))
    queries = [q.id for q in sorted(live.by_slot.values(), key=lambda q: (q.epoch, len(q.id), q.id))]
    run = RunApart(storage, start, orjson.loads(partitions), int(memory_bytes), float(seconds), int(join_row_limit))
    found = isolate(end, queries, run)
    if found is None:
        print(f"Batch {seq} could be run apart from the job: no query and no row is at fault.", flush=True)
        return 0
    rewrite_offset(storage, seq, found)
    for query, reason in found.failed.items():
        if query not in end.failed:
            print(f"Batch {seq} is run without query {query}: {reason}", flush=True)
    for passed_over in found.passed_over[len(end.passed_over) :]:
        stream, partition, first, stop, reason = passed_over
        print(
            f"Batch {seq} is run without what stream {stream} has in partition {partition} from offset {first} up to"
            f" {stop}: {reason}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
