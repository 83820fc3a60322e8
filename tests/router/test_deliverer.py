"""A deliverer on files that the session and the router would write: each row once, in order, to whom it belongs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.operators.expressions import Column
from braid.operators.queries import Selection
from braid.operators.query_parts import Output
from braid.router.delivery import deliverer, delivery
from braid.router.delivery.deliverer import Deliverer
from braid.router.delivery.delivery_log import RECORDS_A_WHOLE, DeliveredQuery, DeliveryFollower, DeliveryWriter
from braid.router.delivery.progress import DELIVERING, DONE, PARTS, RETRYING, DeliveryProgress, part_of, read_progress
from braid.router.delivery.shards import DeliveryShard
from braid.router.deployment import Deployment
from braid.router.materialize import DeployedQuery
from braid.router.page import Page
from braid.router.result_reader import ResultReader
from braid.router.retention import Retention
from braid.router.sinks.connectors import SinkDefinition, read_sink
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT
from braid.sources.core.storage import Storage
from tests.kit.service import free_port
from tests.kit.waiting import DeadlineExceededError, wait_until
from tests.kit.webhook import receiving
from tests.router.batches import BatchWriter

SECONDS = 20.0
ALL = DeliveryShard()
QUERY = Selection("s-1", None, (Output("n", Column("n", BIGINT)),))


class World:
    """The data directory of a service, as far as a deliverer sees it, and a folder for sinks."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(str(folder / "data"))
        OPEN.write(self.storage)  # as the service does
        self.rows = folder / "rows"
        self.batches = BatchWriter(self.storage)
        self.log = DeliveryWriter(self.storage)
        self.epoch = 0
        self.number = 0

    def resume(self, query_id: str, slot: int) -> None:
        """Have the next epoch begin: a query that was paused gets a slot again."""
        self.epoch += 1
        query = self.log.deliveries.queries[query_id]
        deployment = Deployment(slot, self.epoch, self.batches.seq + 1, {})
        self.log.write([replace(query, deployments=(*query.deployments, deployment))], {}, self.epoch)

    def pause(self, query_id: str) -> None:
        """Have the next epoch begin: a query loses its slot, and may get one again."""
        self.epoch += 1
        self.log.write([], {query_id: self.epoch}, self.epoch)

    def change(self, new: dict[str, tuple[int, dict[str, Any]]] | None = None, freed: tuple[str, ...] = ()) -> None:
        """Have the next epoch begin: new queries with their slots and sinks, and queries that are freed."""
        self.epoch += 1
        queries = [
            DeliveredQuery(
                id=query_id,
                name=None,
                created_us=1,
                query=QUERY,
                sink=sink_of(sink),
                deployments=(Deployment(slot, self.epoch, max(1, self.batches.seq), {}),),
            )
            for query_id, (slot, sink) in (new or {}).items()
        ]
        self.log.write(queries, dict.fromkeys(freed, self.epoch), self.epoch, freed)

    def batch(self, *members: set[int]) -> list[int]:
        """Commit a batch with a row for each set of slots; return their numbers."""
        numbers = list(range(self.number, self.number + len(members)))
        self.number += len(members)
        table = pa.table({"n": pa.array(numbers, pa.int64())})
        blocks = [self.batches.selection("s-1", table, members)] if members else []
        self.batches.commit(self.epoch, results=blocks)
        return numbers

    def file(self, query_id: str, **options: Any) -> dict[str, Any]:
        """Return a sink: a folder for each query."""
        return {"connector": "file", "path": str(self.rows / query_id), "flush_seconds": 0, **options}

    def delivered(self, query_id: str) -> list[int]:
        """Return the numbers in the files of a query."""
        files = sorted((self.rows / query_id).glob("*.ndjson"))
        return [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]

    def progress(self, query_id: str) -> DeliveryProgress:
        """Return what is known of a delivery."""
        return read_progress(self.storage).get(query_id, DeliveryProgress())

    def wait_delivered(self, query_id: str, numbers: list[int]) -> None:
        """Wait until the files of a query hold exactly these rows, in order."""
        delivered = partial(self.delivered, query_id)
        wait_until(lambda: delivered() == numbers, SECONDS, lambda: f"{delivered()} == {numbers}")

    def wait_state(self, query_id: str, state: str) -> DeliveryProgress:
        """Wait until a delivery is in a state."""
        wait_until(lambda: self.progress(query_id).state == state, SECONDS, lambda: str(self.progress(query_id)))
        return self.progress(query_id)


def sink_of(value: dict[str, Any]) -> SinkDefinition:
    """Return the definition of a sink."""
    sink = read_sink(value)
    assert sink is not None
    return sink


@contextmanager
def running(world: World, shard: DeliveryShard = ALL) -> Iterator[None]:
    """Run a deliverer on a thread."""
    stopping = threading.Event()
    service = Deliverer(world.storage, shard)
    thread = threading.Thread(target=service.run, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "SAVE_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "FIRST_REST_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "LONGEST_REST_SECONDS", 0.2)


def test_a_batch_is_delivered_after_the_latency_of_its_last_row(world: World) -> None:
    """Batches are committed in 1970, so all their latencies are beyond the last bound."""
    world.change({"q-1": (0, world.file("q-1", flush_rows=2))})
    with running(world):
        numbers = world.batch({0}, {0}, {0}, {1}) + world.batch({1}) + world.batch({0})
        rows_of_query = [*numbers[:3], numbers[-1]]
        world.wait_delivered("q-1", rows_of_query)
        counts = lambda: world.progress("q-1").latency_counts  # noqa: E731
        wait_until(lambda: sum(counts()) == 2, SECONDS, lambda: str(counts()))
    progress = world.progress("q-1")
    assert progress.latency_counts == [0] * (len(progress.latency_counts) - 1) + [2]
    assert progress.latency_us > 2 * 50 * 365 * 86400 * 1_000_000


def test_counts_of_other_bounds_are_begun_anew() -> None:
    assert sum(DeliveryProgress(latency_counts=[3, 4], latency_us=7).latency_counts) == 0
    progress = DeliveryProgress()
    for latency_us in (100_000, 100_001, 300_000_000, 300_000_001):
        progress.count_latency(latency_us)
    assert progress.latency_counts == [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert DeliveryProgress(**asdict(progress)) == progress


def test_a_delivery_goes_on_when_its_query_is_resumed_and_ends_with_it(world: World) -> None:
    world.change({"q-1": (0, world.file("q-1"))})
    rows_of_query = world.batch({0}, {0})
    with running(world):
        world.wait_delivered("q-1", rows_of_query)
        world.pause("q-1")
        world.change({"q-2": (0, world.file("q-2"))})
        rows_of_other = world.batch({0}, {0})
        world.wait_delivered("q-2", rows_of_other)
        assert world.progress("q-1").state == DELIVERING
        world.resume("q-1", 3)
        rows_of_query += world.batch({3}, {0, 3})
        world.wait_delivered("q-1", rows_of_query)
    world.pause("q-1")
    world.batch({0, 3})
    world.resume("q-1", 1)
    rows_of_query += world.batch({1}, {1, 3})
    with running(world):  # one that was not there meanwhile
        world.wait_delivered("q-1", rows_of_query)
        world.change(freed=("q-1",))
        world.batch({1})
        world.wait_state("q-1", DONE)
    assert world.delivered("q-1") == rows_of_query


def test_rows_go_to_whom_their_slot_belongs_at_the_time(world: World) -> None:
    world.change({"q-1": (0, world.file("q-1")), "q-2": (1, world.file("q-2"))})
    a = world.batch({0}, {0, 1}, {1})
    with running(world):
        world.wait_delivered("q-1", a[:2])
        world.wait_delivered("q-2", a[1:])
        b = world.batch({1}, {0})
        world.change({"q-3": (0, world.file("q-3"))}, freed=("q-1",))
        c = world.batch({0}, {1})
        world.wait_delivered("q-2", [*a[1:], b[0], c[1]])
        world.wait_delivered("q-3", [c[0]])
        assert world.wait_state("q-1", DONE).rows == 3
        assert world.delivered("q-1") == [*a[:2], b[1]]


def test_a_restart_goes_on_where_it_was(world: World) -> None:
    world.change({"q-1": (0, world.file("q-1"))})
    numbers = []
    for _ in range(4):
        numbers += world.batch({0}, {0})
        with running(world):
            world.wait_delivered("q-1", numbers)
        numbers += world.batch({0})
    with running(world):
        world.wait_delivered("q-1", numbers)
        world.change(freed=("q-1",))
        world.batch()
        assert world.wait_state("q-1", DONE).error is None


def test_what_is_saved_while_a_page_is_noted_is_saved_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is saved between two of its changes, and then once more, at the end."""
    monkeypatch.setattr(deliverer, "SAVE_SECONDS", 1e6)
    service = Deliverer(world.storage, ALL)
    savers: list[threading.Thread] = []

    class Interrupted(DeliveryProgress):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "rows" and value and not savers:
                savers.append(threading.Thread(target=service._save))
                savers[0].start()
                savers[0].join(0.5)  # it may have to wait for the other changes
            super().__setattr__(name, value)

    monkeypatch.setattr(deliverer, "DeliveryProgress", Interrupted)
    world.change({"q-1": (0, world.file("q-1"))})
    numbers = world.batch({0}, {0})
    stopping = threading.Event()
    thread = threading.Thread(target=service.run, args=(stopping,))
    thread.start()
    world.wait_delivered("q-1", numbers)
    wait_until(lambda: savers and not savers[0].is_alive(), SECONDS, "somebody saves meanwhile")
    stopping.set()
    thread.join()
    progress = world.progress("q-1")
    assert progress.rows == 2
    assert progress.next_seq == 2
    assert progress.waiting_since_us is None


def test_a_batch_is_read_once_it_is_known_whose_its_slots_are(world: World) -> None:
    world.change({"q-1": (0, world.file("q-1"))})
    a = world.batch({0})
    with running(world):
        world.wait_delivered("q-1", a)
        world.epoch += 1  # the batch is there before the session has told of it
        b = world.batch({0})
        with pytest.raises(DeadlineExceededError):
            wait_until(lambda: world.delivered("q-1") != a, 0.5, "it waits")
        world.epoch -= 1
        world.change({"q-2": (0, world.file("q-2"))}, freed=("q-1",))
        world.wait_delivered("q-2", b)
        world.wait_state("q-1", DONE)
        assert world.delivered("q-1") == a


def test_a_sink_that_is_down_delays_nobody_else_and_catches_up(world: World) -> None:
    port = free_port()
    hook = {"connector": "webhook", "url": f"http://127.0.0.1:{port}"}
    world.change({"q-1": (0, hook), "q-2": (0, world.file("q-2")), "q-3": (1, hook)})
    numbers = world.batch({0, 1}, {0})
    with running(world):
        world.wait_delivered("q-2", numbers)
        assert "must answer" in (world.wait_state("q-1", RETRYING).error or "")
        assert world.progress("q-1").waiting_since_us is not None
        numbers += world.batch({0})
        world.wait_delivered("q-2", numbers)
        with receiving(port) as receiver:
            wait_until(lambda: len(receiver.rows) == 4, SECONDS, lambda: str(receiver.rows))
            of_one = partial(world.progress, "q-1")
            wait_until(lambda: of_one().waiting_since_us is None, SECONDS, lambda: str(of_one()))
        ids = sorted(row_id for row_id, _ in receiver.rows)
        assert ids == ["q-1-1-1-0", "q-1-1-1-1", "q-1-1-2-0", "q-3-1-1-0"], "query, its time, batch and row"
        assert world.progress("q-1").error is None
        assert world.progress("q-1").errors > 0


def trim(world: World) -> None:
    """Remove all results that may be removed."""
    reader = ResultReader(world.storage)
    reader.index.advance(world.batches.seq)
    retention = Retention(world.storage, world.batches.log, reader.index, seconds=0, size=0)
    assert retention.trim(2**60, world.batches.seq).batches > 1


def test_rows_that_were_removed_first_are_a_gap_that_is_told(world: World) -> None:
    port = free_port()
    hook = {"connector": "webhook", "url": f"http://127.0.0.1:{port}"}
    world.change({"q-1": (0, hook), "q-2": (1, hook)})
    world.batch({0, 1})
    with running(world):
        world.wait_state("q-1", RETRYING)
        world.wait_state("q-2", RETRYING)
    world.change(freed=("q-2",))
    for _ in range(30):
        world.batch({2})
    numbers = world.batch({0})
    trim(world)
    with running(world):
        world.wait_state("q-2", DONE)  # its place has not come back, and nothing of it is left
        assert "were removed" in (world.progress("q-2").gap or "")
        with receiving(port) as receiver:
            wait_until(lambda: [row["n"] for _, row in receiver.rows] == numbers, SECONDS, lambda: str(receiver.rows))
            wait_until(lambda: world.progress("q-1").gaps == 1, SECONDS, lambda: str(world.progress("q-1")))
            wait_until(lambda: world.progress("q-1").rows == 1, SECONDS, lambda: str(world.progress("q-1")))
    assert world.progress("q-1").state == DELIVERING
    assert world.progress("q-1").waiting_since_us is None


@pytest.mark.parametrize("restart", [False, True])
def test_a_query_that_was_quiet_for_longer_than_results_are_kept_goes_on(
    world: World, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "QUIET_SECONDS", 0.0)
    world.change({"q-1": (0, world.file("q-1")), "q-2": (1, world.file("q-2")), "q-3": (2, world.file("q-3"))})
    numbers = world.batch({0})

    def quiet() -> None:
        for _ in range(30):
            rows_of_other = world.batch({2})
        seq = world.batches.seq
        wait_until(lambda: world.progress("q-1").next_seq > seq, SECONDS, lambda: str(world.progress("q-1")))
        wait_until(lambda: world.progress("q-2").next_seq > seq, SECONDS, lambda: str(world.progress("q-2")))
        wait_until(lambda: rows_of_other[0] in world.delivered("q-3"), SECONDS, "the others are delivered")
        trim(world)

    with running(world):
        world.wait_delivered("q-1", numbers)
        quiet()
        if not restart:
            numbers += world.batch({0, 1})
            world.wait_delivered("q-1", numbers)
            world.wait_delivered("q-2", numbers[1:])
    if restart:
        numbers += world.batch({0, 1})
        with running(world):
            world.wait_delivered("q-1", numbers)
            world.wait_delivered("q-2", numbers[1:])
    for query_id in ("q-1", "q-2", "q-3"):
        assert (world.progress(query_id).gaps, world.progress(query_id).errors) == (0, 0)


def test_a_slot_that_changes_hands_while_its_rows_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the next holder of the slot become visible meanwhile, and are not its own."""
    opening, go_on = threading.Event(), threading.Event()
    whole = ResultReader.read

    def slow(reader: ResultReader, deployed: DeployedQuery, *arguments: Any) -> Page:
        if deployed.id == "q-1":
            opening.set()
            assert go_on.wait(SECONDS)
        return whole(reader, deployed, *arguments)

    monkeypatch.setattr(ResultReader, "read", slow)
    world.change({"q-1": (0, world.file("q-1")), "q-2": (1, world.file("q-2"))})
    a = world.batch({0})
    with running(world):
        assert opening.wait(SECONDS)
        world.change({"q-3": (0, world.file("q-3"))}, freed=("q-1",))
        b = world.batch({0}, {0}, {1})
        world.wait_delivered("q-2", b[2:])
        go_on.set()
        world.wait_delivered("q-3", b[:2])
        world.wait_state("q-1", DONE)
    assert world.delivered("q-1") == a


def test_an_absurd_wish_to_come_later_is_not_granted(world: World) -> None:
    with receiving() as receiver:
        receiver.answer = (503, {"retry-after": "9" * 400})
        world.change({"q-1": (0, {"connector": "webhook", "url": receiver.url})})
        world.batch({0})
        with running(world):
            assert "503" in (world.wait_state("q-1", RETRYING).error or "")
            assert any(thread.name == "sink webhook" for thread in threading.enumerate())


def test_the_age_of_what_waits_is_that_of_its_batch(world: World) -> None:
    world.change({"q-1": (0, {"connector": "webhook", "url": f"http://127.0.0.1:{free_port()}"})})
    with running(world):
        wait_until(lambda: world.progress("q-1").next_seq > 0, SECONDS, "the deliverer has looked")
        world.batch({0})
        world.batch({0})
        committed = world.batches.log.read(1)["committed_us"]
        of_one = partial(world.progress, "q-1")
        wait_until(lambda: of_one().waiting_since_us == committed, SECONDS, lambda: f"{of_one()} {committed}")


def test_rows_wait_for_more(world: World) -> None:
    world.change({"q-1": (0, world.file("q-1", flush_rows=3, flush_seconds=3600)), "q-2": (0, world.file("q-2"))})
    with running(world):
        world.wait_delivered("q-2", [])
        a = world.batch()  # what is there at the start is delivered at once
        wait_until(lambda: world.progress("q-1").next_seq > 0, SECONDS, "the deliverer has looked")
        b = world.batch({0}, {0})
        world.wait_delivered("q-2", b)
        assert world.delivered("q-1") == a == []
        c = world.batch({0}, {0})  # four are enough
        world.wait_delivered("q-1", [*b, *c])
        d = world.batch({0})
        world.wait_delivered("q-2", [*b, *c, *d])
        assert world.delivered("q-1") == [*b, *c]
        world.change(freed=("q-1",))  # there will not be more
        world.batch()
        world.wait_delivered("q-1", [*b, *c, *d])
        world.wait_state("q-1", DONE)


def test_shares_make_a_whole_and_one_is_held_by_one(world: World) -> None:
    queries = {f"q-{number}": (number, world.file(f"q-{number}")) for number in range(12)}
    assert {part_of(query_id) % 2 for query_id in queries} == {0, 1}
    world.change(queries)
    with running(world, DeliveryShard(1, 2)), running(world, DeliveryShard(2, 2)):
        a = world.batch(set(range(12)))
        for query_id in queries:
            world.wait_delivered(query_id, a)
        with running(world):  # waits until the others are gone
            b = world.batch(set(range(12)))
            for query_id in queries:
                world.wait_delivered(query_id, [*a, *b])


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/99", "a/b", "-1/2"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(NotAllowed, match="shard of a deliverer must be I/N"):
        DeliveryShard.parse(text)


def test_shares_cover_all_parts_once() -> None:
    for of in range(1, PARTS + 1):
        parts = [part for number in range(1, of + 1) for part in DeliveryShard(number, of).parts]
        assert sorted(parts) == list(range(PARTS))


def test_who_follows_from_far_behind_sees_what_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    behind, after = DeliveryFollower(world.storage), DeliveryFollower(world.storage)
    for number in range(3 * RECORDS_A_WHOLE):
        freed = (f"q-{number - 1}",) if number else ()
        world.change({f"q-{number}": (0, world.file("x"))}, freed)
        if world.log.whole_is_due:
            world.log.write_whole(
                without=[f"q-{number - 1}"] if f"q-{number - 1}" in world.log.deliveries.queries else []
            )
        if number == 3:
            assert behind.follow()
    monkeypatch.setattr("braid.router.delivery.delivery_log.LOOK_SECONDS", 0.0)
    assert behind.follow()
    assert after.follow()
    again = DeliveryWriter(world.storage)
    deployments = {query_id: query.deployments for query_id, query in world.log.deliveries.queries.items()}
    for follower in (behind, after):
        assert {query_id: query.deployments for query_id, query in follower.deliveries.queries.items()} == deployments
        assert follower.deliveries.epoch == world.epoch
    assert {query_id: query.deployments for query_id, query in again.deliveries.queries.items()} == deployments
    assert not behind.follow()
