"""Entry point of the Spark driver process: ``python -m braid.engine.job_main --data-dir DIR --master MASTER``.

The service starts it and restarts it. Both speak through files in the data folder only: changelogs go in, batch records
come out. When standard input ends, the service is gone: this process then ends itself and its JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

import orjson
import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from braid.engine.data_layout import (
    BATCHES,
    FAILING_FILE,
    JOB_FILE,
    READY_FILE,
    WARM_UP_BATCHES,
    check_partitions,
    noting_damage,
    read_damage,
    read_partitions,
    write_heartbeat,
)
from braid.engine.pipeline import JobSettings, settle_partitions, start_job, start_spark
from braid.engine.planning.replaying import DEFAULT_SHARE
from braid.engine.recovery.isolation_log import begin_attempt
from braid.engine.sink import RouterSink, sweep_unpublished
from braid.engine.spark.executor_pool import ExecutorPool
from braid.engine.spark.executors import REGISTERED, read_max, read_wanted
from braid.engine.spark.spark_conf import KEPT_MEMORY, slots
from braid.engine.spark.worker_memory import default_limit
from braid.operators.state.key_groups import spread_over_partitions
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

STOP_SECONDS = 3.0
MAX_FAILURES_IN_A_ROW = 3
POLL_SECONDS = 0.02
ISOLATION_POLL_SECONDS = 0.5
SPARK_CONF = "BRAID_SPARK_CONF"
"""The variable with Spark's configuration as JSON: it may hold secrets, which arguments would show to everybody."""


class Job:
    """One Spark session and the streaming query in it."""

    def __init__(self, storage: Storage, settings: JobSettings) -> None:
        self._storage = storage
        self._settings = settings
        self._batches = RecordLog(storage, BATCHES)
        self._stopping = threading.Event()
        self._jvm: Any = None

    def stop_soon(self, *_: object) -> None:
        """Stop the query; whatever happens, the process ends within a few seconds."""
        if not self._stopping.is_set():
            self._stopping.set()
            timer = threading.Timer(STOP_SECONDS, self.end, args=(0,))
            timer.daemon = True
            timer.start()

    def end(self, status: int) -> None:
        """End the JVM and this process now: what is not committed will be replayed."""
        if self._jvm is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._jvm.pid, signal.SIGKILL)
        sys.stdout.flush()
        os._exit(status)

    def run(self) -> int:
        """Run until asked to stop; return the exit status."""
        self._write_processes()
        spark = start_spark(self._settings)
        self._jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
        self._write_processes()
        settle_partitions(
            self._storage, self._settings.partitions
        )  # only now: with a wrong master their number would be wrong
        pool = ExecutorPool(spark.sparkContext, self._settings.master, self._storage)
        pool.look()
        threading.Thread(target=pool.follow, args=(self._stopping,), name="executors", daemon=True).start()
        failures = 0
        while not self._stopping.is_set() and failures < MAX_FAILURES_IN_A_ROW:
            batches_before = self._batches.latest()
            if begin_attempt(self._storage):
                self._isolate(failures)
                if self._stopping.is_set():
                    break
            query = start_job(spark, self._settings, RouterSink)
            self._follow(query)
            if not self._stopping.is_set():
                print(f"The streaming query ended: {query.exception()}", flush=True)
                self._storage.delete(READY_FILE)
                failures = 1 if self._batches.latest() > batches_before + WARM_UP_BATCHES else failures + 1
                self._storage.put(FAILING_FILE, orjson.dumps({"pid": os.getpid(), "times": failures}))
                if read_damage(self._storage) is not None or not _is_alive(spark):
                    break
        return 0 if self._stopping.is_set() else 1

    def _isolate(self, failures: int) -> None:
        """Find out what the pending batch cannot be run with, in processes that may die."""
        failing = {"pid": os.getpid(), "times": failures, "is_isolating": True}
        self._storage.put(FAILING_FILE, orjson.dumps(failing))
        settings = self._settings
        partitions = orjson.dumps(spread_over_partitions(settings.partitions)).decode()
        command = [sys.executable, "-m", "braid.engine.recovery.isolation", settings.uri, partitions]
        command += [str(settings.worker_memory_bytes), str(settings.batch_limit_seconds), str(settings.join_row_limit)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **KEPT_MEMORY}) as search:
            while search.poll() is None:
                write_heartbeat(self._storage, time.monotonic_ns())
                if self._stopping.wait(ISOLATION_POLL_SECONDS):
                    search.kill()
        if search.returncode and not self._stopping.is_set():
            print(f"Looking for what the batch cannot be run with failed: exit status {search.returncode}.", flush=True)
        sweep_unpublished(self._storage)

    def _follow(self, query: StreamingQuery) -> None:
        """Write the ready file once the warm-up batches are committed; return when the query has ended."""
        ready_seq = self._batches.latest() + WARM_UP_BATCHES
        ready = False
        while query.isActive and not self._stopping.is_set():
            if not ready and self._batches.latest() >= ready_seq:
                self._storage.put(READY_FILE, orjson.dumps({"pid": os.getpid()}))
                self._storage.delete(FAILING_FILE)
                ready = True
            self._stopping.wait(0.2 if ready else POLL_SECONDS)
        if self._stopping.is_set():
            query.stop()

    def _write_processes(self) -> None:
        processes = {"": os.getpid()} | ({} if self._jvm is None else {"jvm_": self._jvm.pid})
        record: dict[str, Any] = {}
        for name, pid in processes.items():
            record[f"{name}pid"] = pid
            record[f"{name}create_time"] = psutil.Process(pid).create_time()
        self._storage.put(JOB_FILE, orjson.dumps(record))


def _is_alive(spark: SparkSession) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def main(arguments: list[str] | None = None) -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description="The Spark job of a Braid service; the service starts it.")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--partitions", type=int, default=0, help="0: as many as the master has cores")
    parser.add_argument("--batch-target-seconds", type=float, default=1.0)
    parser.add_argument("--replay-share", type=float, default=DEFAULT_SHARE)
    parser.add_argument("--join-row-limit", type=int, default=1_000_000)
    parser.add_argument("--worker-memory-bytes", type=int, default=0, help="0: half of what there is, shared by cores")
    parser.add_argument("--batch-limit-seconds", type=float, default=60.0)
    parser.add_argument("--flush-batches", choices=("on", "off"), default="on")
    options = parser.parse_args(arguments)
    spark_conf = orjson.loads(os.environ.get(SPARK_CONF, "{}"))
    storage = Storage(options.data_dir)
    storage.delete(REGISTERED)
    max_executors = read_max(storage)
    largest_conf = (
        spark_conf if max_executors is None else {**spark_conf, "spark.executor.instances": str(max_executors)}
    )
    wanted_partitions = options.partitions or slots(options.master, largest_conf)
    with noting_damage(storage):
        check_partitions(storage)
    settled_partitions = read_partitions(storage)
    partitions = wanted_partitions if settled_partitions is None else settled_partitions
    if options.partitions not in (0, partitions):
        print(
            f"There are {partitions} partitions, as at the first start on this data folder; not {options.partitions}.",
            flush=True,
        )
    job = Job(
        storage,
        JobSettings(
            uri=str(storage.local_root or options.data_dir),
            master=options.master,
            partitions=partitions,
            target_seconds=options.batch_target_seconds,
            replay_share=options.replay_share,
            join_row_limit=options.join_row_limit,
            flush_batches=options.flush_batches == "on",
            worker_memory_bytes=options.worker_memory_bytes or default_limit(slots(options.master, spark_conf)),
            batch_limit_seconds=options.batch_limit_seconds,
            spark_conf=spark_conf,
            executors=read_wanted(storage),
        ),
    )
    signal.signal(signal.SIGTERM, job.stop_soon)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch_input, args=(job,), daemon=True).start()
    sweep_unpublished(storage)
    try:
        status = job.run()
    except Exception:
        traceback.print_exc()
        status = 1
    job.end(status)
    return status


def _watch_input(job: Job) -> None:
    """Stop the job when the service closes the pipe or dies."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    job.stop_soon()


if __name__ == "__main__":
    sys.exit(main())
