"""Acts of chaos: what one person can send, and what can happen to processes. Others must not notice.

An act sends what it sends and returns; it asserts only what its own sender must be told.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import os
import signal
import struct
import threading
import time
from collections.abc import Sequence

import httpx
import numpy as np
import psutil
import pyarrow as pa

from tests.chaos.arena import ARROW, RECOVERY_SECONDS, START_US, Act, Arena, arrow_body
from tests.chaos.clocks import CLOCKS
from tests.chaos.damage import DAMAGES
from tests.kit.waiting import wait_until
from tests.kit.webhook import Receiver, receiving


def times(count: int, step_us: int = 1000) -> pa.Array:
    """Return so many event times."""
    return pa.array(START_US + step_us * np.arange(count), pa.timestamp("us"))


def refused(answer: httpx.Response | None, *statuses: int) -> None:
    """Assert that an answer, if one came, is a problem with one of these statuses."""
    if answer is not None and answer.status_code not in (429, 503):
        assert answer.status_code in statuses, f"{answer.status_code}: {answer.text[:500]}"


def a_view_of_negative_length(arena: Arena) -> None:
    """448 bytes of Arrow: validation finds nothing, and a cast ends the process."""
    views = struct.pack("<iiii", -65536, 0, 0, 0) + struct.pack("<i12s", 1, b"a")
    column = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(views)])
    answer = arena.push(arena.stream(), arrow_body(pa.record_batch({"k": column, "time": times(2)})), ARROW)
    refused(answer, 200, 400, 422)


def ten_million_nulls(arena: Arena) -> None:
    """224 bytes of Arrow that are ten million rows of a column which the stream does not have."""
    answer = arena.push(arena.stream(), arrow_body(pa.record_batch({"zz": pa.nulls(10_000_000)})), ARROW)
    refused(answer, 200, 400, 413, 422)


def a_bomb_of_zstd(arena: Arena) -> None:
    """300 kB that unpack to 9 GB."""
    zeros = pa.array(np.zeros(1 << 24, np.int64))
    body = arrow_body(pa.record_batch([zeros] * 20, names=[f"c{i}" for i in range(20)]), "zstd")
    refused(arena.push(arena.stream(), body, ARROW), 200, 400, 413, 422)
    known = pa.record_batch({"v": zeros, "time": pa.array(np.zeros(1 << 24, np.int64), pa.timestamp("us"))})
    refused(arena.push(arena.stream(), arrow_body(known, "zstd"), ARROW), 400, 413, 422)


def damaged_arrow(arena: Arena) -> None:
    """Arrow with bytes flipped, cut off and overwritten."""
    stream = arena.stream()
    batch = pa.record_batch({"k": ["a", None, "b" * 40] * 50, "v": list(range(150)), "time": times(150)})
    whole = arrow_body(batch)
    for _ in range(200):
        body = bytearray(whole)
        for _ in range(arena.rng.randint(1, 8)):
            body[arena.rng.randrange(len(body))] = arena.rng.randrange(256)
        refused(arena.push(stream, bytes(body[: arena.rng.randint(1, len(body))]), ARROW), 200, 400, 413, 422)


def malformed_lines(arena: Arena) -> None:
    """2 MB of lines that are no JSON, JSON of great depth, and numbers without end."""
    stream = arena.stream()
    for body in (
        b"{]\n" * 700_000,
        b"[" * 100_000,
        b'{"v": 1e999999999}\n' * 1000,
        b'{"v": ' + b"9" * 1_000_000 + b"}",
    ):
        refused(arena.push(stream, body), 200, 400, 413, 422)


def a_backlog(arena: Arena) -> None:
    """48 hours of a tuple a second in one push, under ten queries that group differently."""
    stream, count = arena.stream(), 172_800
    answers = [
        arena.query(
            f"SELECT MOD(v, {i + 2}) AS g, COUNT(*) AS n, SUM(v) AS s FROM {stream} [RANGE 2 SECONDS SLIDE 1 SECONDS]"
            f" WHERE v > {7 * i} GROUP BY MOD(v, {i + 2})"
        )
        for i in range(10)
    ]
    ids = [answer.json()["id"] for answer in answers if answer is not None and answer.status_code == 201]
    base = dt.datetime(2026, 1, 1)
    lines = (
        json.dumps({"v": i % 560, "time": (base + dt.timedelta(seconds=i)).isoformat() + "Z"}) for i in range(count)
    )
    answer = arena.push(stream, "\n".join(lines).encode())
    if answer is None or answer.status_code != 200 or len(ids) < 10:
        return

    def fired() -> int:
        return sum(answer.json()["rows_out"] for q in ids if (answer := arena.ask("GET", f"/queries/{q}")) is not None)

    wait_until(lambda: fired() >= 3_255_120, 300, lambda: f"all rows of a backlog come, there are {fired()}")
    assert fired() == 3_255_120


def groups_without_end(arena: Arena) -> None:
    """One query with 12 000 expressions to group by, then ordinary tuples."""
    stream = arena.stream()
    many = ",".join(f"v+{n}" for n in range(12_000))
    refused(arena.query(f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 SECONDS] GROUP BY {many}"), 201, 422)
    some_tuples(arena, stream)


def some_tuples(arena: Arena, stream: str, count: int = 400_000) -> None:
    """Push ordinary tuples."""
    numbers = pa.array(np.arange(count) % 1000)
    arena.push(stream, arrow_body(pa.record_batch({"v": numbers, "time": times(count, 1)})), ARROW)


def statements_without_end(arena: Arena) -> None:
    """Thousands of conditions, of distinct counts, of sums in HAVING, and of values in a list."""
    stream, other = arena.stream(), arena.stream()
    ors = " OR ".join(f"a.v + b.v = {n}" for n in range(3000))
    distinct = ", ".join(f"COUNT(DISTINCT v + {n}) AS c{n}" for n in range(990))
    sums = " AND ".join(f"SUM(v + {n}) > {n}" for n in range(4500))
    values = ", ".join(map(str, range(60_000)))
    for sql in (
        f"SELECT a.v FROM {stream} [RANGE 1 SECONDS] AS a, {other} [RANGE 1 SECONDS] AS b WHERE a.k = b.k AND ({ors})",
        f"SELECT {distinct} FROM {stream} [RANGE 1 SECONDS]",
        f"SELECT v FROM {stream} [RANGE 1 SECONDS] GROUP BY v HAVING {sums}",
        f"SELECT v FROM {stream} WHERE v IN ({values})",
    ):
        refused(arena.query(sql), 201, 400, 413, 422)
    for pushed in (stream, other):
        some_tuples(arena, pushed, 50_000)


def texts_that_grow(arena: Arena) -> None:
    """Rows of 40 kB, read 100 000 at a time, and texts that double again and again."""
    stream = arena.stream()
    wide = arena.query("SELECT " + ", ".join(f"RPAD(k, 1000) AS c{i}" for i in range(40)) + f" FROM {stream}")
    arena.query(f"SELECT REPLACE(REPLACE(k, 'x', RPAD('x', 1000)), 'x', RPAD('y', 10000)) AS t FROM {stream}")
    body = arrow_body(pa.record_batch({"k": ["x"] * 100_000, "time": times(100_000, 1)}))
    arena.push(stream, body, ARROW)
    if wide is None or wide.status_code != 201:
        return
    path = f"/queries/{wide.json()['id']}"

    def has_rows() -> bool:
        answer = arena.ask("GET", path)
        return answer is not None and answer.json().get("rows_out", 0) >= 100_000

    wait_until(has_rows, RECOVERY_SECONDS, "the rows are there")
    for form in ("application/json", "application/x-ndjson", ARROW):
        refused(arena.ask("GET", f"{path}/results?limit=100000", headers={"Accept": form}), 200, 413)


def dead_letters_without_end(arena: Arena) -> None:
    """A hundred thousand dead letters of 4 kB, asked for at once."""
    stream = arena.stream()
    some_tuples(arena, stream, 1000)
    text = "x" * 4000
    late = json.dumps({"k": text, "v": 1, "time": "2020-01-01T00:00:00Z"})
    for _ in range(20):
        arena.push(stream, "\n".join([late] * 5000).encode())
    refused(arena.ask("GET", f"/streams/{stream}/dead-letters?limit=100000"), 200, 400, 422)


def validations_by_clients_that_go(arena: Arena) -> None:
    """Forty statements of 85 kB to validate, by clients that do not wait."""
    stream = arena.stream()
    sql = f"SELECT v FROM {stream} WHERE " + " OR ".join(f"v = {n} AND k LIKE 'a{n}%'" for n in range(3000))

    def validate() -> None:
        with contextlib.suppress(httpx.TransportError):
            httpx.post(f"{arena.service.url}/queries/validate", json={"sql": sql}, timeout=0.5)

    together([threading.Thread(target=validate) for _ in range(40)])
    began = time.monotonic()
    answer = arena.ask("GET", "/healthz")
    assert answer is None or answer.status_code == 200, time.monotonic() - began


def together(threads: Sequence[threading.Thread]) -> None:
    """Run threads, and wait for all."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def queries_that_come_and_go(arena: Arena) -> None:
    """Twenty queries a second, created and deleted, for ten seconds."""
    stream = arena.stream()
    for number in range(200):
        answer = arena.query(f"SELECT SUM(v + {number}) AS s FROM {stream} [RANGE {1 + number % 5} SECONDS]")
        if answer is not None and answer.status_code == 201:
            arena.ask("DELETE", f"/queries/{answer.json()['id']}?drain=false")


def a_sink_that_refuses_rows(arena: Arena) -> None:
    """A webhook that answers 400 for every third row, for good: dead letters of its query, and the rest arrives."""
    stream = arena.stream()
    with receiving() as receiver:
        receiver.refusal, receiver.refuses = 400, lambda row: row["v"] % 3 == 0
        sink = {"connector": "webhook", "url": receiver.url, "sink.max_retries": 0}
        query = arena.running(f"SELECT v FROM {stream}", sink=sink)
        if query is None:
            return
        for pushed in (range(9), range(9, 18)):
            lines = "\n".join(json.dumps({"v": v, "time": f"2026-01-01T00:00:{v:02d}Z"}) for v in pushed)
            wait_until(functools.partial(arena.push, stream, lines.encode()), RECOVERY_SECONDS, "a push is answered")
            _wait_delivered(arena, query, receiver, pushed.stop)
        letters = arena.answered(f"/queries/{query}/dead-letters").json()["rows"]
        assert sorted(letter["tuple"]["v"] for letter in letters) == list(range(0, 18, 3)), letters
        assert all("answered 400" in letter["detail"] for letter in letters), letters


def _wait_delivered(arena: Arena, query: str, receiver: Receiver, end: int) -> None:
    """Wait until the rows up to ``end`` have arrived, but for each third, which is a dead letter."""
    taken = [v for v in range(end) if v % 3]

    def delivery() -> dict[str, object]:
        told = arena.answered(f"/queries/{query}").json()["delivery"]  # None until a deliverer has said something
        return dict(told or {"refused": 0})

    def arrived() -> bool:
        return sorted({row["v"] for _, row in receiver.rows}) == taken and delivery()["refused"] == end - len(taken)

    wait_until(arrived, RECOVERY_SECONDS, lambda: f"{taken} arrive; {receiver.rows} have; {delivery()}")


def paths_into_the_data_folder(arena: Arena) -> None:
    """Sinks, tables and streams of files in and above the data folder, also by other names of it."""
    stream, own = arena.stream(), arena.service.data_dir
    link = own.parent / f"{stream}_link"
    link.symlink_to(own)
    columns = "v BIGINT, time TIMESTAMP LATENESS INTERVAL '0' SECOND"
    for path in (own / "results", own, own.parent, link / "results", link / "logs" / ".." / "batches"):
        options = f"connector = 'file', path = '{path}', format = 'json'"
        body = {"sql": f"SELECT v FROM {stream}", "sink": {"connector": "file", "path": str(path)}}
        for answer in (
            arena.ask("POST", "/queries", json=body),
            arena.ask("POST", "/tables", json={"sql": f"CREATE TABLE {stream}_t (v BIGINT) WITH ({options})"}),
            arena.ask("POST", "/streams", json={"sql": f"CREATE STREAM {stream}_s ({columns}) WITH ({options})"}),
        ):
            refused(answer, 422)
            if answer is not None and answer.status_code == 422:
                assert "the data folder of the service" in answer.json()["detail"], answer.text
    link.unlink()


def _signal(arena: Arena, number: int, *words: str) -> None:
    processes = arena.processes(*words)
    if processes:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(arena.rng.choice(processes).pid, number)


def a_worker_is_killed(arena: Arena) -> None:
    """A Python worker of Spark's is killed."""
    _signal(arena, signal.SIGKILL, "task_daemon", "pyspark.worker")


def the_jvm_is_killed(arena: Arena) -> None:
    """The JVM is killed."""
    _signal(arena, signal.SIGKILL, "java", "SparkSubmit")


def the_driver_is_killed(arena: Arena) -> None:
    """The Spark driver is killed."""
    _signal(arena, signal.SIGKILL, "braid.engine.job_main")


def the_service_is_killed(arena: Arena) -> None:
    """The service is killed, and started again."""
    arena.service.kill()
    arena.service.revive()


def a_worker_is_stopped(arena: Arena) -> None:
    """All workers of Spark's are stopped, and nobody lets them go on."""
    for process in arena.processes("task_daemon", "pyspark.worker"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def the_jvm_is_stopped(arena: Arena) -> None:
    """The JVM is stopped, and nobody lets it go on."""
    _signal(arena, signal.SIGSTOP, "java", "SparkSubmit")


def the_driver_is_stopped(arena: Arena) -> None:
    """The Spark driver is stopped."""
    _signal(arena, signal.SIGSTOP, "braid.engine.job_main")


def the_planner_is_stopped(arena: Arena) -> None:
    """The process that plans batches is stopped."""
    _signal(arena, signal.SIGSTOP, "python_streaming_source_runner")


INPUT: tuple[Act, ...] = (
    a_view_of_negative_length, ten_million_nulls, a_bomb_of_zstd, damaged_arrow, malformed_lines, a_backlog,
)  # fmt: skip
REQUESTS: tuple[Act, ...] = (
    groups_without_end, statements_without_end, texts_that_grow, dead_letters_without_end,
    validations_by_clients_that_go, queries_that_come_and_go, a_sink_that_refuses_rows, paths_into_the_data_folder,
)  # fmt: skip
FAULTS: tuple[Act, ...] = (
    a_worker_is_killed, the_jvm_is_killed, the_driver_is_killed, the_service_is_killed, a_worker_is_stopped,
    the_jvm_is_stopped, the_driver_is_stopped, the_planner_is_stopped,
)  # fmt: skip
ACTS = (*INPUT, *REQUESTS, *FAULTS, *DAMAGES, *CLOCKS)
