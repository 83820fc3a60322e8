"""The queue's Flight protocol: what a connector and the driver say, and what they get."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.server import QueueServer
from braid.bench_driver.queues.tuple_queue import TupleQueue
from tests.kit.waiting import wait_until

SECOND = 1_000_000
DEADLINE = 20.0


class Client:
    """A Flight client that speaks JSON."""

    def __init__(self, location: str) -> None:
        self.flight = fl.FlightClient(location)

    def do(self, action: str, **body: Any) -> Any:
        (result,) = self.flight.do_action((action, json.dumps(body).encode()))
        return json.loads(result.body.to_pybytes())

    def get(self, start: int, end: int) -> fl.FlightStreamReader:
        return self.pull({"path": "a", "partition": "0", "start": start, "end": end, "consumer": "c"})

    def pull(self, ticket: Any) -> fl.FlightStreamReader:
        return self.flight.do_get(fl.Ticket(json.dumps(ticket).encode()), fl.FlightCallOptions(timeout=DEADLINE))


def whole(reader: fl.FlightStreamReader) -> pa.Table:
    """Read all of a stream: its own method for it interrupts the main thread when the call is cancelled."""
    return pa.Table.from_batches([chunk.data for chunk in reader], reader.schema)


@pytest.fixture
def queue() -> TupleQueue:
    return TupleQueue(Ring(find_dataset("purchases"), {}, 1, "a", rows=10_000))


@pytest.fixture
def client(queue: TupleQueue) -> Iterator[Client]:
    server = QueueServer("a", queue)
    new_client = Client(server.location)
    yield new_client
    queue.close()
    server.shutdown()
    new_client.flight.close()


def now_us() -> int:
    return time.time_ns() // 1000


def test_offsets_tell_what_there_is(client: Client) -> None:
    assert client.do("offsets", path="a", consumer="c") == {"partitions": {"0": {"start": 0, "end": 0}}}
    client.do("run", at_us=now_us() - 10 * SECOND, profile=[[1, 500]])
    assert client.do("offsets", path="a", consumer="c") == {"partitions": {"0": {"start": 0, "end": 500}}}


def test_a_range_comes_with_its_rows_and_the_datasets_columns(client: Client) -> None:
    at = now_us() - 10 * SECOND
    answer = client.do("run", at_us=at, profile=[[1, 50_000]])
    assert answer == {"segments": [[0, at, 50_000], [50_000, at + SECOND, 0]]}
    table = whole(client.get(3, 45_003))
    assert table.schema.names == ["user_id", "gem_pack", "price", "time"]
    assert table.schema.types == [pa.int64(), pa.int32(), pa.float64(), pa.timestamp("us")]
    assert table["time"].cast(pa.int64()).to_pylist() == [at + 20 * offset for offset in range(3, 45_003)]
    assert whole(client.get(20_000, 30_000)) == table.slice(19_997, 10_000)
    assert whole(client.get(9, 9)).num_rows == 0


def test_a_range_beyond_the_end_waits_until_it_is_generated(client: Client) -> None:
    at = now_us() + 100_000
    client.do("run", at_us=at, profile=[[None, 10_000]])
    assert whole(client.get(0, 1_000)).num_rows == 1_000
    assert now_us() >= at + 99_900


def test_pulls_and_samples_are_told(client: Client, queue: TupleQueue) -> None:
    client.do("run", at_us=now_us() - 10 * SECOND, profile=[[1, 500]])
    began = now_us()
    whole(client.get(0, 100))
    whole(client.get(100, 250))
    queue.sample()
    pulls = client.do("pulls", after=0)
    assert [pull[1:] for pull in pulls["pulls"]] == [["c", 0, 100], ["c", 100, 250]]
    assert all(began <= pull[0] <= now_us() for pull in pulls["pulls"])
    assert client.do("pulls", after=pulls["next"]) == {"pulls": [], "next": 2}
    ((at, generated, pulled),) = client.do("samples", after=0)["samples"]
    assert began <= at <= now_us()
    assert (generated, pulled) == (500, {"c": 250})


def test_a_cancelled_call_ends_its_wait(client: Client, queue: TupleQueue) -> None:
    ended = threading.Event()
    read = queue.read

    def watched(*arguments: Any) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(*arguments)
        finally:
            ended.set()

    queue.read = watched  # type: ignore[method-assign]
    client.do("run", at_us=now_us() - SECOND, profile=[[0.1, 10]])
    waiting = client.get(0, 100)
    assert waiting.read_chunk().data.num_rows == 1
    assert not ended.is_set()
    waiting.cancel()
    assert ended.wait(DEADLINE)


def test_closing_the_queue_ends_a_waiting_call(client: Client, queue: TupleQueue) -> None:
    client.do("run", at_us=now_us() - SECOND, profile=[[0.1, 10]])
    reader = client.get(0, 100)
    reader.read_chunk()
    queue.close()
    with pytest.raises(fl.FlightUnavailableError, match="the queue ends"):
        whole(reader)


@pytest.mark.parametrize(
    ("ticket", "words"),
    [
        ({"path": "b", "start": 0, "end": 1}, "'path' must be 'a', the only stream here, got 'b'"),
        ({"path": "a", "partition": "1", "start": 0, "end": 1}, "has only partition '0'"),
        ({"path": "a", "start": 5, "end": 1}, r"0 <= start <= end, got \[5, 1\)"),
        ({"path": "a", "start": -1, "end": 1}, "'start' must be a whole number"),
        ({"path": "a", "start": 0}, "'end' must be a whole number from 0, got None"),
        ({"path": "a", "start": 0, "end": 1.5}, "'end' must be a whole number"),
        ([1], "a JSON object is expected"),
    ],
)
def test_bad_tickets_are_refused(client: Client, ticket: Any, words: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=words):
        whole(client.pull(ticket))


@pytest.mark.parametrize(
    ("action", "body", "words"),
    [
        ("pause", b"{}", "an action must be one of offsets, run, stop, samples, pulls, got 'pause'"),
        ("run", b"{", "JSON is expected"),
        ("run", b'{"profile": [[1, 5]]}', "'at_us' must be"),
        ("run", b'{"at_us": 5}', "a profile must be"),
        ("run", b'{"at_us": 5, "profile": [[1, -5]]}', "a rate must be"),
        ("run", b'{"at_us": 5, "profile": [[null, 5], [1, 5]]}', "only the last may last for ever"),
        ("offsets", b"{}", "'path' must be"),
        ("samples", b"{}", "'after' must be"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(client: Client, action: str, body: bytes, words: str) -> None:
    client.do("run", at_us=now_us() - 10 * SECOND, profile=[[1, 500]])
    with pytest.raises(pa.ArrowInvalid, match=words):
        list(client.flight.do_action((action, body)))
    assert client.do("offsets", path="a")["partitions"]["0"]["end"] == 500


def test_several_consumers_have_their_own_place(client: Client, queue: TupleQueue) -> None:
    client.do("run", at_us=now_us() - 10 * SECOND, profile=[[1, 500]])
    tables: dict[str, pa.Table] = {}

    def pull(consumer: str, end: int) -> None:
        ticket = {"path": "a", "partition": "0", "start": 0, "end": end, "consumer": consumer}
        tables[consumer] = whole(client.pull(ticket))

    threads = [threading.Thread(target=pull, args=(f"c{i}", 100 * i), daemon=True) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(tables) == 4, DEADLINE, "all consumers got their tuples")
    queue.sample()
    assert client.do("samples", after=0)["samples"][-1][2] == {f"c{i}": 100 * i for i in range(1, 5)}
    assert tables["c4"].slice(0, 100) == tables["c1"]
