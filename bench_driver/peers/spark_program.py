"""Stock Spark Structured Streaming as a peer: starts and stops streaming queries as it is told, by JSON lines.

`python -m braid.bench_driver.peers.spark_program` reads one JSON object a line. The first is `{"streams": [{"name",
"dataset", "options", "columns", "location"}…], "cores", "own_generator"}`, answered by `{"ready": settings}`. Its files
are in its working directory.
Then come commands:

- `{"do": "start", "query", "sql", "streams", "slot", "probe", "most"}`, `most` rows in a batch or null for no bound: it
  answers `{"running": query}` when the first batch is done, or there was nothing to read, or
  `{"refused": query, "reason"}`;
- `{"do": "stop", "query"}`: it answers `{"stopped": query}`;
- `{"do": "offer", "rate", "rows"}` for the own generator, `rows` of a batch if the rate is null: all start again.

By itself it says `{"arrived", "latest": [[event time, rows]…]}` of each batch of a probe query's rows,
`{"taken": [time, rows]}` of the slowest query, and `{"failed": query, "reason"}`. It ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from braid.bench_driver.peers.flight_source import FlightSource, source_options
from braid.bench_driver.query_load.consume import latest_of

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# a query that fails before its first batch is started again, as a supervisor would: on a busy machine the Python
# process of its source may take longer than the 10 s that Spark waits
STARTS = 3
MIN_CENTS, MAX_CENTS = 99, 9_999

Say = Callable[[Mapping[str, Any]], None]


def spark_options(cores: int, folder: str) -> dict[str, str]:
    """Return what suits many small stateful queries on one machine; everything else is Spark's default."""
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": f"{folder}/spark",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # batches take turns in the order in which they come; with a FAIR pool for each query, ties go to the first
        # name, and of twenty queries on two cores eleven never got a task
        "spark.scheduler.mode": "FIFO",
        "spark.sql.session.timeZone": "UTC",
        # a task for each core: more tasks and more state stores cost time in every batch
        "spark.sql.shuffle.partitions": str(cores),
        # state beside the heap, of which a batch writes the changes only, in bounded memory
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "1024",
        # the default forks a process for every checkpoint file on a local disk
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.python.worker.reuse": "true",
    }


def start_spark(options: Mapping[str, str]) -> SparkSession:
    """Start Spark in this process and a JVM beside it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("stock-spark")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(FlightSource)
    return spark


def generated_stream(
    spark: SparkSession, stream: Mapping[str, Any], cores: int, rate: int | None, rows: int
) -> DataFrame:
    """Return a stream of a dataset made by Spark's own generators from the numbers of its rows.

    At a rate it is `rate`, by the wall clock. Without one it is `rate-micro-batch`, which gives each batch the same
    `rows` however long the last one took; that is a second of event time.
    """
    if rate is None:
        source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=cores)
        time_of = f.timestamp_micros(f.lit(time.time_ns() // 1000) + f.expr(f"value * 1000000 div {rows}"))
    else:
        source = spark.readStream.format("rate").options(rowsPerSecond=rate, numPartitions=cores)
        time_of = f.col("timestamp")
    columns = generated_columns(stream["dataset"], stream["options"], stream["name"])
    types = dict(stream["columns"])
    return source.load().select(
        *(f.expr(columns[name]).cast(types[name]).alias(name) for name in columns), time_of.alias("time")
    )


def generated_columns(dataset: str, options: Mapping[str, Any], salt: str) -> dict[str, str]:
    """Return SQL of each column but the time, over the row number `value`; values as `queues/datasets.py` has them."""
    if dataset == "astream":
        keys = 1 if options["one_key"] else options["keys"]
        fields = {f"field{i}": _uniform(options["fields_max"], f"{salt}{i}") for i in range(5)}
        return {"key": f"value % {keys}", **fields}
    if dataset == "ajoin":
        return {f"a{i}": _uniform(options["atr_max"], f"{salt}{i}") for i in range(6)}
    if dataset not in ("purchases", "ads"):
        raise ValueError(f"a dataset must be purchases, ads, astream or ajoin, got {dataset!r}")
    draw = _normal if options["distribution"] == "normal" else _uniform
    keys = {"user_id": draw(options["users"], f"{salt}u"), "gem_pack": draw(options["gem_packs"], f"{salt}g")}
    if dataset == "ads":
        return keys
    return {**keys, "price": f"({_uniform(MAX_CENTS - MIN_CENTS + 1, f'{salt}p')} + {MIN_CENTS}) / 100.0D"}


def _uniform(limit: int, salt: str) -> str:
    return f"pmod(xxhash64(value, '{salt}'), {limit})"


def _normal(limit: int, salt: str) -> str:
    """Return a nearly normal draw about the middle whose limits are three standard deviations away.

    It is the sum of four uniform numbers of 16 bits, cut from one hash.
    """
    total = " + ".join(f"(shiftright(xxhash64(value, '{salt}'), {bits}) & 65535)" for bits in (0, 16, 32, 48))
    spread = limit / 6 / (65536 * (4 / 12) ** 0.5)
    return f"greatest(0, least({limit - 1}, floor({limit / 2}D + ({total} - 131070) * {spread}D)))"


class SparkProgram:
    """The streaming queries that run; commands come on one thread, Spark's events on others."""

    def __init__(self, spark: SparkSession, task: Mapping[str, Any], say: Say) -> None:
        self._spark = spark
        self._streams = {stream["name"]: stream for stream in task["streams"]}
        self._cores: int = task["cores"]
        self._own_generator: bool = task["own_generator"]
        self._say = say
        self._lock = threading.Lock()
        self._commands: dict[int, Mapping[str, Any]] = {}
        self._running: dict[int, StreamingQuery] = {}
        self._numbers: dict[str, int] = {}  # of Spark's run ids
        self._said_running: set[int] = set()
        self._taken: dict[int, list[int]] = {}
        self._rate: int | None = None
        self._rows = 1
        self._runs = 0
        self._starts: Counter[int] = Counter()
        self._views = threading.Lock()  # who starts a query has the streams' views for itself
        self._stops_and_restarts = ThreadPoolExecutor(1, "stops-and-restarts")
        spark.streams.addListener(_Events(self))

    def obey(self, command: Mapping[str, Any]) -> None:
        """Do what one command says."""
        match command["do"]:
            case "start":
                with self._lock:
                    self._commands[command["query"]] = command
                self._start(command)
            case "stop":
                self._stops_and_restarts.submit(self._stop, command["query"])
            case "offer":
                self._offer(command["rate"], command["rows"])
            case other:
                raise ValueError(f"a command must be start, stop or offer, got {other!r}")

    def began(self, run: str) -> None:
        """Say once of a query that it runs."""
        with self._lock:
            number = self._numbers.get(run)
            if number is None or number in self._said_running:
                return
            self._said_running.add(number)
        self._say({"running": number})

    def progressed(self, run: str, rows: Sequence[int]) -> None:
        """Count the rows that one batch of a query took from each of its sources."""
        with self._lock:
            number = self._numbers.get(run)
            taken = None if number is None else self._taken.get(number)
            if number is None or taken is None:
                return  # the first or last word of a query that is about to run or to stop
            self._taken[number] = [
                earlier + added for earlier, added in zip(taken or [0] * len(rows), rows, strict=True)
            ]
            slowest = min((min(counts, default=0) for counts in self._taken.values()), default=0)
        if self._own_generator:
            self._say({"taken": [time.time(), slowest]})

    def ended(self, run: str, reason: str | None) -> None:
        """Look after a query that ended; with a reason it failed."""
        with self._lock:
            number = self._numbers.pop(run, None)
        if number is not None and reason is not None:
            self._failed(number, reason)

    def _failed(self, number: int, reason: str) -> None:
        with self._lock:
            self._starts[number] += 1
            is_retried = number not in self._said_running and self._starts[number] < STARTS
        if is_retried:
            self._stops_and_restarts.submit(self._start_again, number)
        else:
            self._say({"failed": number, "reason": reason})

    def _start_again(self, number: int) -> None:
        with self._lock:
            command = self._commands.get(number)
        if command is not None:
            self._start(command)

    def _start(self, command: Mapping[str, Any]) -> None:
        with self._views:
            self._start_alone(command)

    def _start_alone(self, command: Mapping[str, Any]) -> None:
        number: int = command["query"]
        self._runs += 1
        try:
            for name in command["streams"]:
                stream = self._stream(self._streams[name], f"spark-{command['slot']}", command["most"])
                stream.withWatermark("time", "0 seconds").createOrReplaceTempView(name)
            writer = self._spark.sql(command["sql"]).writeStream.outputMode("append")
            writer = writer.option("checkpointLocation", f"{os.getcwd()}/checkpoints/{self._runs}")
            writer = writer.foreachBatch(self._hand_over) if command["probe"] else writer.format("noop")
            query = writer.queryName(f"{number}").start()
        except AnalysisException as error:
            self._say({"refused": number, "reason": _message_of(error)})
            return
        except (PySparkException, Py4JError) as error:
            self._failed(number, _message_of(error))
            return
        with self._lock:
            self._running[number] = query
            self._taken.setdefault(number, [])
            self._numbers[str(query.runId)] = number
        self._look_at(query)

    def _look_at(self, query: StreamingQuery) -> None:
        """Say what happened before the query's run had a number here."""
        if query.lastProgress is not None or query.status["message"] == "Waiting for data to arrive":
            self.began(str(query.runId))
        if not query.isActive and (error := query.exception()) is not None:
            self.ended(str(query.runId), _message_of(error))

    def _stream(self, stream: Mapping[str, Any], consumer: str, most: int | None) -> DataFrame:
        if self._own_generator:
            return generated_stream(self._spark, stream, self._cores, self._rate, self._rows)
        ddl = ", ".join(f"{name} {kind}" for name, kind in stream["columns"])
        options = source_options(stream["location"], stream["name"], consumer, self._cores, most)
        return self._spark.readStream.format(FlightSource.name()).schema(ddl).options(**options).load()

    def _hand_over(self, rows: DataFrame, _: int) -> None:
        table = rows.toArrow()
        arrived = time.time()
        if table.num_rows:
            self._say({"arrived": arrived, "latest": latest_of([table])})

    def _stop(self, number: int) -> None:
        with self._lock:
            query = self._running.pop(number, None)
            self._taken.pop(number, None)
            self._commands.pop(number, None)
            if query is not None:
                self._numbers.pop(str(query.runId), None)
        try:
            if query is not None:
                query.stop()
        except PySparkException as error:
            self._say({"failed": number, "reason": f"it does not stop: {_message_of(error)}"})
            return
        self._say({"stopped": number})

    def _offer(self, rate: int | None, rows: int) -> None:
        """Start all queries again, for a Spark source cannot change its rate."""
        self._rate, self._rows = rate, rows
        with self._lock:
            queries = dict(self._running)
            self._numbers.clear()
            self._said_running.clear()
        for query in queries.values():
            query.stop()
        for number in queries:
            self._start(self._commands[number])
        self._say({"offered": rate})


class _Events(StreamingQueryListener):
    def __init__(self, program: SparkProgram) -> None:
        self._program = program

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: the program started it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        progress = event.progress
        self._program.progressed(str(progress.runId), [source.numInputRows for source in progress.sources])
        self._program.began(str(progress.runId))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """The query looked for tuples and there are none."""
        self._program.began(str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The query ended; with an exception if it was not stopped."""
        self._program.ended(str(event.runId), event.exception and _message_of(event.exception))


def _message_of(error: BaseException | str) -> str:
    """Return what an exception says without the JVM's stack trace."""
    return str(error).split("\n\tat ")[0].split("\nJVM stacktrace")[0].strip()


def _claim_stdout() -> Say:
    """Return a way to say JSON lines; what else is written to stdout, by the JVM too, goes to stderr from now on."""
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(value: Mapping[str, Any]) -> None:
        with lock:
            stdout.write(json.dumps(value) + "\n")
            stdout.flush()

    return say


def main() -> None:
    """Read the task and then the commands until stdin ends; state is scrap then, so nothing is stopped in order."""
    say = _claim_stdout()
    task = json.loads(sys.stdin.readline())
    options = spark_options(task["cores"], os.getcwd())
    program = SparkProgram(start_spark(options), task, say)
    say({"ready": {"spark": pyspark.__version__, **options}})
    for line in sys.stdin:
        program.obey(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
