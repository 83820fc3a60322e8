"""Apache Flink SQL as a peer: a cluster of its own, and jobs that come and go as it is told, by JSON lines.

It runs with the Python of Flink's own environment (`flink_environment.py`), so it imports nothing of the project that
needs more than Python itself. It reads one JSON object a line. The first is `{"options": {name: value}, "slots": n,
"of_workload": {stream: tuples}}`, with the tuples of the workload for each of a stream's: it starts a JobManager and a
TaskManager in its working directory and answers `{"ready": {"versions"}}`. Then come commands:

- `{"do": "declare", "name", "sql"}` declares a table anew; it answers `{"declared": name}`;
- `{"do": "submit", "job": number, "queries": [{"sql", "times"}…], "together"}` submits one job: its one query, or all
  of them as one statement set. `times` are the columns with the event times of a probe query, null for one that is
  none. It answers `{"running": job}` when all of its tasks run, or `{"refused": job, "reason"}` when Flink does not
  plan it, `{"failed": job, "reason"}` when the cluster does not take it;
- `{"do": "cancel", "job"}`: it answers `{"stopped": job}`.

By itself it says `{"arrived", "latest": [[event time, rows]…]}` of rows of the probe queries, `{"taken": [time, rows]}`
of the source of the slowest job, and `{"failed": null, "reason"}`. It ends with its stdin, and Flink with it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from braid.bench_driver.peers.flink_watch import HOST, LOOK_SECONDS, FlinkWatch, Rest, Say, reason_of

UP_SECONDS = 90.0
READ_BYTES = 1 << 18
# of a statement that was planned and that the cluster did not take
NOT_SUBMITTED = "Failed to execute sql"
# Flink's logs go to stderr; stdout has nothing but what the `print` connector prints
LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = Stderr
appender.stderr.name = Stderr
appender.stderr.type = CONSOLE
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %-5p %c{1} - %m%n
"""
# nobody reads the client's stderr
CLIENT_LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.file.ref = File
appender.file.name = File
appender.file.type = FILE
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %c{1} - %m%n
"""

_PRINTED = re.compile(r"(p\d+\.\d+)(?::\d+)?> \+I\[(.*)\]$")


class PrintedRows:
    """What the `print` connector wrote to the TaskManager's stdout: `p<job>.<query>:<subtask>> +I[value, …]`."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[int, ...]] = {}
        self._rest = b""

    def expect(self, name: str, columns: Sequence[str], times: Sequence[str]) -> None:
        """Rows of `name` have these columns, of which `times` are event times."""
        self._times[name] = tuple(columns.index(time) for time in times)

    def take(self, read: bytes) -> list[list[float]]:
        """Return `[event time in seconds since 1970, rows]` of the rows that are complete with what was read."""
        *lines, self._rest = (self._rest + read).split(b"\n")
        latest: Counter[float] = Counter()
        for line in lines:
            match = _PRINTED.match(line.decode("utf-8", errors="replace"))
            if match is None or match[1] not in self._times:
                continue
            values = match[2].split(", ")
            event_times = [_seconds(values[index]) for index in self._times[match[1]] if values[index] != "null"]
            if event_times:
                latest[max(event_times)] += 1
        return [[event_time, rows] for event_time, rows in latest.items()]


@lru_cache(maxsize=4096)
def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).replace(tzinfo=UTC).timestamp()


class Cluster:
    """A standalone session cluster: one JobManager, one TaskManager, both children of this process."""

    def __init__(self, options: Mapping[str, Any], folder: Path) -> None:
        import pyflink
        from ruamel.yaml import YAML

        home = Path(pyflink.__file__).parent
        shipped = YAML(typ="safe").load(home / "conf" / "config.yaml")
        self.port = _free_port()
        # what the shipped configuration opens of the JDK is needed from Java 17 on
        self.options = {
            "env.java.opts.all": shipped["env"]["java"]["opts"]["all"],
            **self._addresses(folder),
            **options,
        }
        settings = folder / "conf"
        settings.mkdir()
        lines = (f"{name}: {json.dumps(value)}\n" for name, value in self.options.items())
        (settings / "config.yaml").write_text("".join(lines))
        (settings / "log4j-console.properties").write_text(LOGGING)
        (settings / "log4j-cli.properties").write_text(CLIENT_LOGGING)
        os.environ.update(FLINK_CONF_DIR=str(settings), FLINK_LOG_DIR=str(folder), FLINK_PID_DIR=str(folder))
        self.job_manager = self._start(home / "bin" / "jobmanager.sh", subprocess.DEVNULL)
        self.task_manager = self._start(home / "bin" / "taskmanager.sh", subprocess.PIPE)

    def _addresses(self, folder: Path) -> dict[str, Any]:
        return {
            "jobmanager.rpc.address": HOST,
            "jobmanager.rpc.port": _free_port(),
            "jobmanager.bind-host": HOST,
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "rest.port": self.port,
            "taskmanager.host": HOST,
            "taskmanager.bind-host": HOST,
            "execution.target": "remote",
            "execution.attached": False,
            "io.tmp.dirs": str(folder),
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        }

    @staticmethod
    def _start(script: Path, output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([str(script), "start-foreground"], stdin=subprocess.DEVNULL, stdout=output)

    def wait_up(self, slots: int) -> None:
        """Wait until all slots are there; raises RuntimeError when they are not in time."""
        deadline = time.monotonic() + UP_SECONDS
        slots_there = 0
        with contextlib.closing(Rest(self.port)) as rest:
            while slots_there < slots:
                self.check()
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the cluster must have {slots} slots within {UP_SECONDS:g} s, got {slots_there}"
                    )
                time.sleep(LOOK_SECONDS)
                with contextlib.suppress(OSError, http.client.HTTPException):
                    slots_there = (rest.ask("/overview") or {}).get("slots-total", 0)

    def check(self) -> None:
        """Raise RuntimeError when one of both has ended."""
        for name, process in (("JobManager", self.job_manager), ("TaskManager", self.task_manager)):
            if process.poll() is not None:
                raise RuntimeError(f"the {name} ended by itself with exit status {process.returncode}")

    def stop(self) -> None:
        """End both at once: nothing that they have is kept."""
        for process in (self.task_manager, self.job_manager):
            process.kill()


class FlinkClient:
    """Plans and submits SQL, one statement after the other."""

    def __init__(self, cluster: Cluster, printed: PrintedRows) -> None:
        from pyflink.common import Configuration
        from pyflink.table import EnvironmentSettings, TableEnvironment

        settings = Configuration()
        for name, value in cluster.options.items():
            settings.set_string(name, str(value).lower() if isinstance(value, bool) else str(value))
        builder = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
        self._tables = TableEnvironment.create(builder.build())
        self._printed = printed

    def declare(self, name: str, sql: str) -> None:
        """Declare a table, in place of the one of its name."""
        self._tables.execute_sql(f"DROP TABLE IF EXISTS `{name}`")
        self._tables.execute_sql(sql)

    def submit(self, job: int, queries: Sequence[Mapping[str, Any]], together: bool) -> str:
        """Submit a job and return its id at Flink."""
        self._tables.get_config().set("pipeline.name", f"job {job}")
        inserts = [self._insert(f"p{job}.{place}", query) for place, query in enumerate(queries)]
        if together:
            statements = self._tables.create_statement_set()
            for table, sink in inserts:
                statements.add_insert(sink, table)
            result = statements.execute()
        else:
            [(table, sink)] = inserts
            result = table.execute_insert(sink)
        return str(result.get_job_client().get_job_id())

    def _insert(self, name: str, query: Mapping[str, Any]) -> tuple[Any, Any]:
        from pyflink.table import DataTypes, TableDescriptor
        from pyflink.table.expressions import col

        table = self._tables.sql_query(query["sql"])
        if query["times"] is None:
            return table, TableDescriptor.for_connector("blackhole").build()
        # a sink takes one row time at most, so these become timestamps like any other
        times = [col(time).cast(DataTypes.TIMESTAMP(3)).alias(time) for time in query["times"]]
        table = table.add_or_replace_columns(*times)
        self._printed.expect(name, table.get_schema().get_field_names(), query["times"])
        return table, TableDescriptor.for_connector("print").option("print-identifier", name).build()


def forward_printed(output: int, printed: PrintedRows, say: Say) -> None:
    """Say what the probe queries printed, until the TaskManager ends."""
    while read := os.read(output, READ_BYTES):
        arrived = time.time()
        if latest := printed.take(read):
            say({"arrived": arrived, "latest": latest})


def serve(client: FlinkClient, watch: FlinkWatch, say: Say) -> None:
    """Do what is told until stdin ends."""
    flink_ids: dict[int, str] = {}
    for line in sys.stdin:
        command = json.loads(line)
        match command["do"]:
            case "declare":
                client.declare(command["name"], command["sql"])
                say({"declared": command["name"]})
            case "submit":
                job = command["job"]
                try:
                    flink_ids[job] = client.submit(job, command["queries"], command["together"])
                except Exception as error:  # py4j's own kinds and Flink's; all are an answer
                    text = str(error)
                    say({"failed" if NOT_SUBMITTED in text else "refused": job, "reason": reason_of(text)})
                    continue
                watch.tell("starting", job, flink_ids[job])
            case "cancel":
                watch.tell("stopping", command["job"], flink_ids.pop(command["job"]))


def main() -> int:
    """Start Flink, and end it when told to, or when this process is left alone."""
    lock = threading.Lock()

    def say(value: Mapping[str, Any]) -> None:
        with lock:
            print(json.dumps(value), flush=True)

    task = json.loads(sys.stdin.readline())
    cluster = Cluster(task["options"], Path.cwd())
    try:
        assert cluster.task_manager.stdout is not None
        printed = PrintedRows()
        output = cluster.task_manager.stdout.fileno()
        threading.Thread(target=forward_printed, args=(output, printed, say), daemon=True).start()
        client = FlinkClient(cluster, printed)
        cluster.wait_up(task["slots"])
        watch = FlinkWatch(cluster.port, cluster.check, say, task["of_workload"])
        watch.start()
        say({"ready": {"versions": _versions()}})
        serve(client, watch, say)
    finally:
        cluster.stop()
    return 0


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"flink": version("apache-flink")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
