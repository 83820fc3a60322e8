"""The flight connector against real Flight servers: what it reads, what it refuses, and what it bears."""

from __future__ import annotations

import gc
import json
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from braid.sources.connectors.flight import ANSWER_SECONDS, MAX_ROWS, FlightConnector
from braid.sources.connectors.offset_watch import ASK_EVERY_SECONDS, STALL_SECONDS
from braid.sources.connectors.registry import open_connector, validate_definition
from braid.sources.core.errors import CorruptData, Gone, NotAllowed, NotReady
from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP, ColumnType, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until
from tests.sources.scripted_server import DEADLINE_SECONDS, Script, serving

SCHEMA = StreamSchema((Field("n", BIGINT), Field("price", DOUBLE), Field("time", TIMESTAMP)), "time", 0)
INT = ColumnType("INT")
PROJECT = Path(__file__).resolve().parents[2]


def rows(start: int, end: int) -> pa.Table:
    """Make the tuples ``[start, end)``, which tell their numbers."""
    numbers = list(range(start, end))
    values = [numbers, [n / 2 for n in numbers], numbers]
    return pa.table([pa.array(v, t) for v, t in zip(values, SCHEMA.arrow.types, strict=True)], schema=SCHEMA.arrow)


@contextmanager
def connected(script: Script, schema: StreamSchema = SCHEMA, **options: str) -> Iterator[FlightConnector]:
    """Run a server and open a stream that pulls from it."""
    with serving(script) as server:
        yield connector(server.port, schema, 5.0, **options)


def connector(port: int, schema: StreamSchema = SCHEMA, patience: float = 5.0, **options: str) -> FlightConnector:
    """Open the stream "numbers", of id "s7", at a port."""
    all_options = {"location": f"grpc://127.0.0.1:{port}", **options}
    return FlightConnector(StreamDefinition("s7", "numbers", schema, "flight", "", all_options), patience)


def read(stream: FlightConnector, start: int, end: int, partition: str = "0") -> pa.Table:
    """Read tuples as one table."""
    return pa.Table.from_batches([c.tuples for c in stream.read(partition, start, end)], stream._schema.arrow)


def numbers(start: int, end: int, first: int = 0) -> Script:
    """Return the script of a server with partition "0" of tuples ``[start, end)``."""
    return Script({"0": (first, rows(start, end))})


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; asking is the work that makes it so."""
    wait_until(condition, DEADLINE_SECONDS, "what the test waits for")


def unused_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def schema_of(**types: ColumnType) -> StreamSchema:
    """Return a schema of these columns and the event time."""
    return StreamSchema((*(Field(n, t) for n, t in types.items()), Field("time", TIMESTAMP)), "time", 0)


def one_column(values: Any, count: int) -> Script:
    """Return the script of a server with column "c" and good event times."""
    return Script({"0": (0, pa.table({"c": values, "time": pa.array(range(count), pa.timestamp("us"))}))})


def test_a_range_gives_its_tuples_in_order_and_again_the_same() -> None:
    script = Script({"a": (0, rows(0, 50)), "b": (0, rows(1000, 1007))})
    with connected(script) as stream:
        until(lambda: stream.available(0) == {"a": (0, 50), "b": (0, 7)})
        before = time.time_ns() // 1000
        chunks = list(stream.read("a", 3, 21))
        assert [c.tuples.num_rows for c in chunks] == [4, 4, 4, 4, 2]
        assert all(before <= c.received_us <= time.time_ns() // 1000 for c in chunks)
        assert sum(c.bytes for c in chunks) == 18 * 24
        for _ in range(2):
            assert read(stream, 3, 21, "a").equals(rows(3, 21))
        assert read(stream, 0, 7, "b").equals(rows(1000, 1007))
        assert list(stream.read("a", 5, 5)) == []


def test_large_batches_come_in_chunks() -> None:
    table = pa.table({"time": pa.array(range(MAX_ROWS + 5), pa.timestamp("us"))})
    with connected(Script({"0": (0, table)}, batch_rows=2 * MAX_ROWS), schema_of()) as stream:
        assert [c.tuples.num_rows for c in stream.read("0", 0, MAX_ROWS + 5)] == [MAX_ROWS, 5]


@pytest.mark.parametrize(
    ("options", "path", "consumer"), [({}, "numbers", "s7"), ({"path": "p", "consumer": "me"}, "p", "me")]
)
def test_the_server_learns_path_and_consumer(options: dict[str, str], path: str, consumer: str) -> None:
    script = numbers(0, 5)
    with connected(script, SCHEMA, **options) as stream:
        read(stream, 1, 4)
        until(lambda: stream.available(0) == {"0": (0, 5)})
    assert script.questions[0] == {"path": path, "consumer": consumer}
    assert script.pulls[0] == {"path": path, "consumer": consumer, "partition": "0", "start": 1, "end": 4}


def test_columns_are_matched_by_name() -> None:
    table = rows(0, 9)
    served = pa.table(
        {"TIME": table["time"], "more": table["n"], "Price": table["price"], "N": table["price"], "n": table["n"]}
    )
    with connected(Script({"0": (0, served)})) as stream:
        assert read(stream, 0, 9).equals(table)


def test_types_are_cast_where_no_value_changes() -> None:
    table = rows(0, 9)
    narrow = pa.table(
        {
            "n": table["n"].cast(pa.int32()),
            "price": table["price"].cast(pa.float32()),
            "time": table["time"].cast(pa.timestamp("ns", "UTC")),
        }
    )
    with connected(Script({"0": (0, narrow)})) as stream:
        assert read(stream, 0, 9).equals(table)
    texts = pa.array(["a", None, "ü"])
    with connected(one_column(texts.dictionary_encode(), 3), schema_of(c=ColumnType("VARCHAR"))) as stream:
        assert read(stream, 0, 3)["c"].to_pylist() == texts.to_pylist()


@pytest.mark.parametrize(
    ("declared", "column", "message"),
    [
        (INT, pa.array(["1"]), "Column 'c' must be castable to INT, got Arrow type string"),
        (INT, pa.array([True]), "Column 'c' must be castable to INT, got Arrow type bool"),
        (
            BIGINT,
            pa.array([1], pa.timestamp("us")),
            r"Column 'c' must be castable to BIGINT, got Arrow type timestamp\[us\]",
        ),
        (TIMESTAMP, pa.array([1]), "Column 'c' must be castable to TIMESTAMP, got Arrow type int64"),
        (INT, pa.array([[1]]), "Column 'c' must be castable to INT, got Arrow type list"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    declared: ColumnType, column: pa.Array, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(one_column(column, 1), schema_of(c=declared)) as stream:
        with pytest.raises(NotAllowed, match=message):
            read(stream, 0, 1)
        # the planner is told of nothing to read, so that the job goes on without this stream
        until(lambda: stream.available(0) != {} or bool(caplog.messages))
        assert stream.available(0) == {}
    assert re.search(message, caplog.text)


def test_columns_must_be_there_once() -> None:
    table = pa.table({"TIME": pa.array([1], pa.timestamp("us")), "Time": pa.array([1], pa.timestamp("us"))})
    with (
        connected(Script({"0": (0, table)}), schema_of()) as stream,
        pytest.raises(NotAllowed, match="The Arrow schema must have column 'time' once; it has 'TIME', 'Time'"),
    ):
        read(stream, 0, 1)
    with (
        connected(Script({"0": (0, rows(0, 1).drop_columns("n"))})) as stream,
        pytest.raises(NotAllowed, match="The Arrow schema lacks column 'n'; it has 'price', 'time'"),
    ):
        read(stream, 0, 1)


def test_rows_that_do_not_fit_become_malformed_and_keep_their_offsets() -> None:
    table = pa.table(
        {
            "n": pa.array(range(100, 106)),
            "price": pa.array([0.5, float("nan"), -0.0, float("-inf"), 1.0, None]),
            "time": pa.array([0, 1, 2, 3, None, 2**62], pa.timestamp("us")),
        }
    )
    with connected(Script({"0": (10, table)}, batch_rows=100)) as stream:
        (chunk,) = stream.read("0", 10, 16)
        assert chunk.tuples.column("n").to_pylist() == [100, 101, 102]
        assert str(chunk.tuples.column("price").to_pylist()) == "[0.5, None, 0.0]", "NaN is NULL"
        assert [m.detail for m in chunk.malformed] == [
            "partition 0, offset 13: column 'price' must be a DOUBLE, got -inf"
            " (it must be finite and within the range of doubles)",
            "partition 0, offset 14: column 'time' is the event time and must not be NULL or missing",
            "partition 0, offset 15: column 'time' must be a TIMESTAMP of the years 1 to 9999, got one outside",
        ]
        assert json.loads(chunk.malformed[1].raw) == {"n": 104, "price": 1.0, "time": None}
    wide = one_column(pa.array([1, 2**40]), 2)
    with connected(wide, schema_of(c=INT)) as stream:
        (chunk,) = stream.read("0", 0, 2)
    assert chunk.tuples.num_rows == 1
    assert "offset 1: column 'c' must be an INT, got 1099511627776" in chunk.malformed[0].detail


def test_text_that_is_none_is_not_taken() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    with (
        connected(one_column(broken, 1), schema_of(c=ColumnType("VARCHAR"))) as stream,
        pytest.raises(CorruptData, match=r"must send sound record batches, and the one with tuple 0 .* is not.*UTF8"),
    ):
        read(stream, 0, 1)


@pytest.mark.parametrize(
    ("end", "extra", "got"), [(12, 0, "asked for the 2 from 10 to 12, got none"), (7, 1, "got at least 1")]
)
def test_more_or_fewer_rows_than_asked_for_are_an_error(end: int, extra: int, got: str) -> None:
    script = numbers(0, 10)
    script.extra = extra
    with connected(script) as stream, pytest.raises(CorruptData, match=f"must give exactly the tuples .* {got}"):
        read(stream, 3, end)


def test_a_pull_that_breaks_off_goes_on_where_it_was() -> None:
    script = numbers(0, 30)
    script.failures = [2, 0, 1]
    with connected(script) as stream:
        assert read(stream, 1, 30).equals(rows(1, 30))
    assert [p["start"] for p in script.pulls] == [1, 9, 9, 13]


def test_a_pull_that_the_server_cancels_goes_on_and_interrupts_nobody() -> None:
    script = numbers(0, 30)
    script.failures, script.failure = [1, 0, 2], fl.FlightCancelledError
    with connected(script) as stream:
        assert read(stream, 0, 30).equals(rows(0, 30))
    assert [p["start"] for p in script.pulls] == [0, 4, 4, 12]


def test_a_pull_that_stalls_is_given_up_and_interrupts_nobody() -> None:
    script = numbers(0, 30)
    script.stalled = threading.Event()
    with serving(script) as server:
        stream = connector(server.port, patience=0.3)
        chunks = stream.read("0", 0, 30)
        assert next(chunks).tuples.num_rows == 4
        try:
            with pytest.raises(NotReady, match=r"must give tuples \d+ to 30 .* gave none for 0.3 s: "):
                list(chunks)
        finally:
            script.stalled.set()
        assert read(stream, 4, 30).equals(rows(4, 30))


def test_no_code_reads_a_whole_flight_stream_at_once() -> None:
    """When its call is cancelled, `read_all` of pyarrow's reader interrupts the main thread, whichever reads."""
    imported = re.compile(r"^(import pyarrow\.flight|from pyarrow import .*\bflight\b)", re.MULTILINE)
    sources = {path: path.read_text(encoding="utf-8") for path in PROJECT.glob("[!.]*/**/*.py")}
    of_flight = {path: text for path, text in sources.items() if imported.search(text)}
    assert PROJECT / "sources" / "connectors" / "flight.py" in of_flight
    assert [str(path) for path, text in of_flight.items() if "." + "read_all(" in text] == []


def test_a_reader_that_stops_early_is_no_trouble() -> None:
    with connected(numbers(0, 1000)) as stream:
        chunks = stream.read("0", 0, 1000)
        assert next(chunks).tuples.num_rows == 4
        del chunks
        gc.collect()
        assert read(stream, 990, 1000).equals(rows(990, 1000))


def test_tuples_that_are_no_longer_kept_are_told() -> None:
    with (
        connected(numbers(50, 60, first=50)) as stream,
        pytest.raises(Gone, match="goes on at tuple 40 of partition '0', and the server no longer has those before 50"),
    ):
        read(stream, 40, 60)


def test_a_server_that_is_not_there_is_borne_quietly_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    port = unused_port()
    stream = connector(port, patience=0.5)
    until(lambda: stream.available(0) != {} or bool(caplog.messages))
    with pytest.raises(NotReady, match=r"must give tuples 0 to 5 .* gave none for 0.5 s: .*refused.* Start the server"):
        read(stream, 0, 5)
    assert stream.available(0) == {}
    with serving(numbers(0, 5), port):
        until(lambda: stream.available(0) == {"0": (0, 5)})
    until(lambda: stream.available(0) == {})
    about = [m for m in caplog.messages if m.startswith(f"Stream 'numbers' from grpc://127.0.0.1:{port} ")]
    assert [m.endswith("is served again") for m in about] == [False, True, False]
    assert {r.levelno for r in caplog.records} == {logging.WARNING}


def test_a_server_that_does_not_answer_holds_up_nobody() -> None:
    script = numbers(0, 5)
    script.silent = threading.Event()
    with connected(script) as stream:
        delays: list[float] = []

        def asked_twice() -> bool:
            began = time.monotonic()
            assert stream.available(0) == {}
            delays.append(time.monotonic() - began)
            return len(script.questions) >= 2

        until(asked_twice)
        script.silent.set()
        until(lambda: stream.available(0) == {"0": (0, 5)})
    assert max(delays) < ANSWER_SECONDS, f"the planner waits for {STALL_SECONDS} s at most"


def test_the_server_is_not_asked_all_the_time() -> None:
    script = numbers(0, 5)
    began = time.monotonic()
    with connected(script) as stream:
        while len(script.questions) < 20:
            assert stream.available(0) in ({}, {"0": (0, 5)})
            assert time.monotonic() - began < DEADLINE_SECONDS
        assert time.monotonic() - began >= 19 * ASK_EVERY_SECONDS


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no",
        b"[]",
        b"{}",
        b'{"partitions": []}',
        b'{"partitions": {"0": 5}}',
        b'{"partitions": {"0": {"start": 0}}}',
        b'{"partitions": {"0": {"start": 3, "end": 2}}}',
        b'{"partitions": {"0": {"start": 0, "end": 1.5}}}',
        b'{"partitions": {"0": {"start": 0, "end": 99999999999999999999}}}',
    ],
)
def test_an_answer_that_is_none_is_told(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    script = numbers(0, 5)
    script.offsets = answer
    with connected(script) as stream:
        until(lambda: stream.available(0) != {} or bool(caplog.messages))
        assert stream.available(0) == {}
    assert 'must answer "offsets" with {"partitions": {"0": {"start": 0, "end": 9}}}' in caplog.text


def test_a_read_outlasts_a_restart_of_the_server() -> None:
    with serving(numbers(0, 40)) as server:
        port = server.port
        stream = connector(port, patience=DEADLINE_SECONDS)
        assert read(stream, 0, 10).equals(rows(0, 10))
        until(lambda: stream.available(0) == {"0": (0, 40)})
    tables: list[pa.Table] = []
    reader = threading.Thread(target=lambda: tables.append(read(stream, 10, 60)))
    reader.start()
    with serving(numbers(0, 60), port):
        reader.join(DEADLINE_SECONDS)
        assert tables[0].equals(rows(10, 60))
        until(lambda: stream.available(0) == {"0": (0, 60)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"needs the address of its server. Add location = 'grpc://HOST:PORT' to WITH"),
        ({"topic": "x"}, "has no option 'topic'. It has 'location', 'path', 'consumer'"),
        *(
            ({"location": bad}, f"'location' must be where the Flight server listens.*got {re.escape(repr(bad))}")
            for bad in (
                "",
                "127.0.0.1:8815",
                "http://h:1",
                "grpc://h",
                "grpc://:1",
                "grpc://h:0",
                "grpc://h:x",
                "grpc://h:99999",
                "grpc://h:1/path",
                "grpc://me@h:1",
                "grpc+unix:///socket",
            )
        ),
        ({"location": "grpc://h:1", "path": ""}, "Option 'path' must not be empty"),
        ({"location": "grpc://h:1", "consumer": ""}, "Option 'consumer' must not be empty"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message) as refused:
        validate_definition("numbers", SCHEMA, "flight", "", options)
    assert refused.value.stream == "numbers"


def test_the_connector_is_registered(tmp_path: Path) -> None:
    for location in ("grpc://h:1", "grpc+tcp://127.0.0.1:8815", "grpc+tls://[::1]:65535"):
        validate_definition("numbers", SCHEMA, "flight", "", {"location": location})
    with pytest.raises(NotAllowed, match="Connector 'flight' takes no format; got format 'json'"):
        validate_definition("numbers", SCHEMA, "flight", "json", {"location": "grpc://h:1"})
    with serving(numbers(0, 5)) as server:
        options = {"location": f"grpc+tcp://127.0.0.1:{server.port}"}
        definition = StreamDefinition("s7", "numbers", SCHEMA, "flight", "", options)
        opened = open_connector(definition, Storage(str(tmp_path)))
        until(lambda: opened.available(0) == {"0": (0, 5)})


def test_the_example_of_the_documentation_is_such_a_server(tmp_path: Path) -> None:
    text = (PROJECT / "docs/flight-source.md").read_text()
    (tmp_path / "server.py").write_text(text.split("```python\n")[1].split("```")[0])
    command = [sys.executable, str(tmp_path / "server.py"), "grpc://127.0.0.1:0"]
    schema = StreamSchema((Field("user_id", BIGINT), Field("price", DOUBLE), Field("time", TIMESTAMP)), "time", 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            stream = connector(int(process.stdout.readline()), schema, DEADLINE_SECONDS)
            until(lambda: stream.available(0).get("0", (0, 0))[1] > 0)
            table = read(stream, 65_000, 66_000)
            assert table["user_id"].to_pylist() == [n % 1000 for n in range(65_000, 66_000)]
            assert table.equals(
                pa.concat_tables([read(stream, 65_000, 65_537), read(stream, 65_537, 66_000)]).combine_chunks()
            )
        finally:
            process.terminate()
