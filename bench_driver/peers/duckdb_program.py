"""Mixed queries by DuckDB over micro-batches of a second, as told by JSON lines: what a user would write in a day.

`python -m braid.bench_driver.peers.duckdb_program` reads one JSON object a line. The first is `{"stream", "location",
"tables", "cores"}`, answered by `{"ready": settings}`. Then come commands:

- `{"do": "prepare", "queries"}`: how many queries will run; answered by `{"prepared": settings}`;
- `{"do": "run", "query", "spec", "probe"}`: answered by `{"running": query}` or `{"refused": query, "reason"}`.

By itself it says `{"batch": [time, rows, processor seconds so far]}`, `{"arrived", "latest": [[event time, rows]…]}` of
each batch with rows of probe queries, and `{"failed": null, "reason"}`. It ends with its stdin.

A batch is what the queue has when a second has passed since the batch before began, or when that is done if it takes
longer, up to a bound. Each core has a database and its share of the queries, because DuckDB takes a core for a
statement over so few tuples whatever it is told; fewer queries than cores share a database that has all cores.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.flight as flight

from braid.bench_driver.mixed_query import MixedQuery
from braid.bench_driver.peers.duckdb_batches import DuckdbBatches, Rows
from braid.bench_driver.query_load.consume import latest_of
from braid.bench_driver.queues.mixed_datasets import static_table

CONSUMER = "duckdb"
PARTITION = "0"
BATCH_SECONDS = 1.0
# A batch has no more tuples than some seconds' work: 200 million tuples times queries take about three. It matters only
# while there is a backlog. With fewer than the least of them a batch is all statements and no tuples.
TUPLE_QUERIES = 200_000_000
MIN_ROWS, MAX_ROWS = 100_000, 4_000_000

Say = Callable[[Mapping[str, Any]], None]


def bound_batch(queries: int) -> int:
    """Return how many tuples a batch for so many queries has at most."""
    return max(MIN_ROWS, min(MAX_ROWS, TUPLE_QUERIES // max(1, queries)))


class QueueReader:
    """The reading end of one stream's queue; begins with what is generated after it was made."""

    def __init__(self, stream: str, location: str) -> None:
        self._path = {"path": stream, "consumer": CONSUMER}
        self._client = flight.FlightClient(location)
        self.at = self._end()
        ticket = flight.Ticket(json.dumps(self._range(self.at, self.at)).encode())
        self.schema: pa.Schema = self._client.do_get(ticket).schema

    def read(self, most: int) -> pa.Table | None:
        """Return the next tuples that there are, up to so many; None for none."""
        end = min(self._end(), self.at + most)
        if end <= self.at:
            return None
        ticket = flight.Ticket(json.dumps(self._range(self.at, end)).encode())
        batches = [chunk.data for chunk in self._client.do_get(ticket)]
        self.at = end
        return pa.Table.from_batches(batches, self.schema)

    def _end(self) -> int:
        (answer,) = self._client.do_action(flight.Action("offsets", json.dumps(self._path).encode()))
        return int(json.loads(answer.body.to_pybytes())["partitions"][PARTITION]["end"])

    def _range(self, start: int, end: int) -> dict[str, Any]:
        return {**self._path, "partition": PARTITION, "start": start, "end": end}


class DuckdbProgram:
    """The queries that run, in the databases of all cores."""

    def __init__(self, task: Mapping[str, Any], say: Say) -> None:
        self._reader = QueueReader(task["stream"], task["location"])
        self._tables = [(name, static_table(name)) for name in task["tables"]]
        self._cores: int = task["cores"]
        self._say = say
        self._databases: list[DuckdbBatches] = []
        self._max_rows = MAX_ROWS
        self._probes: set[int] = set()
        self._pool = ThreadPoolExecutor(self._cores, "databases")

    def obey(self, command: Mapping[str, Any]) -> None:
        """Do what one command says."""
        match command["do"]:
            case "prepare":
                self._prepare(command["queries"])
            case "run":
                self._run(command["query"], MixedQuery.from_json(command["spec"]), command["probe"])
            case other:
                raise ValueError(f"a command must be prepare or run, got {other!r}")

    def batch(self) -> None:
        """Take in what the queue has, and give the rows of what has ended."""
        tuples = self._reader.read(self._max_rows)
        if tuples is None:
            return
        rows = [each for of_one in self._pool.map(lambda each: _take(each, tuples), self._databases) for each in of_one]
        arrived = time.time()
        self._say({"batch": [arrived, tuples.num_rows, time.process_time()]})
        of_probes = [table for number, table in rows if number in self._probes]
        if of_probes:
            self._say({"arrived": arrived, "latest": latest_of(of_probes)})

    def _prepare(self, queries: int) -> None:
        databases = self._cores if queries >= self._cores else 1
        threads = self._cores // databases
        schema = self._reader.schema
        self._databases = [DuckdbBatches(schema, self._tables, threads) for _ in range(databases)]
        self._max_rows = bound_batch(queries)
        settings = {"databases": databases, "threads_of_a_database": threads, "max_rows_of_a_batch": self._max_rows}
        self._say({"prepared": settings})

    def _run(self, number: int, query: MixedQuery, probe: bool) -> None:
        try:
            self._databases[number % len(self._databases)].add(number, query, probe)
        except duckdb.Error as error:
            self._say({"refused": number, "reason": str(error)})
            return
        if probe:
            self._probes.add(number)
        self._say({"running": number})


def _take(database: DuckdbBatches, tuples: pa.Table) -> Rows:
    database.take(tuples)
    return database.fire()


def main() -> None:
    """Read the task and then the commands until stdin ends; run a batch a second in between."""

    def say(value: Mapping[str, Any]) -> None:
        print(json.dumps(value), flush=True)

    commands: queue.Queue[str] = queue.Queue()
    program = DuckdbProgram(json.loads(sys.stdin.readline()), say)
    say({"ready": {"duckdb": duckdb.__version__}})
    threading.Thread(target=_read_commands, args=(commands,), name="commands", daemon=True).start()
    due = time.monotonic()
    try:
        while True:
            try:
                program.obey(json.loads(commands.get(timeout=max(0.0, due - time.monotonic()))))
            except queue.Empty:
                due = time.monotonic() + BATCH_SECONDS
                program.batch()
    except (duckdb.Error, pa.ArrowException) as error:
        say({"failed": None, "reason": str(error)})
        raise


def _read_commands(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line)
    os._exit(0)  # what is in memory is scrap then


if __name__ == "__main__":
    main()
