"""A worker of sinks: what it does while and after a delivery fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.engine.data_layout import BATCHES
from braid.operators.expressions import Column
from braid.operators.queries import Selection
from braid.operators.query_parts import Output
from braid.router.batch_index import BatchIndex
from braid.router.delivery import delivery, sink_worker
from braid.router.delivery.delivery import Delivery
from braid.router.delivery.delivery_log import DeliveredQuery
from braid.router.delivery.progress import DELIVERING, DeliveryProgress
from braid.router.delivery.refused_rows import RefusedRows
from braid.router.delivery.sink_worker import SinkWorker
from braid.router.deployment import Deployment
from braid.router.page import Page
from braid.router.result_reader import ResultReader
from braid.router.sinks.connectors import read_sink
from braid.router.sinks.sink import DelivererIdentity
from braid.sources.core.errors import Gone
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import BIGINT
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until
from tests.router.batches import BatchWriter

SECONDS = 20.0


class GoneOnce(ResultReader):
    """Finds the first page removed, once."""

    failures = 1

    def read(self, *arguments: Any) -> Page:
        if self.failures:
            self.failures -= 1
            raise Gone("Results of batch 1 have passed their retention.")
        return super().read(*arguments)


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_worker, "BROKEN_REST_SECONDS", 0.05)
    monkeypatch.setattr(delivery, "FIRST_REST_SECONDS", 0.05)


@contextmanager
def delivering(folder: Path, oldest_seq: Callable[[], int]) -> Iterator[tuple[SinkWorker, Delivery]]:
    """Run a worker with the delivery of a query that has two rows, in batch 1, into the folder ``rows``."""
    storage = Storage(str(folder / "data"))
    batches = BatchWriter(storage)
    block = batches.selection("s-1", pa.table({"n": pa.array([1, 2], pa.int64())}), [{0}, {0}])
    batches.commit(1, results=[block])
    sink = read_sink({"connector": "file", "path": str(folder / "rows"), "flush_seconds": 0})
    assert sink is not None
    selected = Selection("s-1", None, (Output("n", Column("n", BIGINT)),))
    query = DeliveredQuery("q-1", None, 1, selected, sink, (Deployment(0, 1, 1, {}),))
    reader = GoneOnce(storage, BatchIndex(RecordLog(storage, BATCHES), 1))
    worker = SinkWorker("file", DelivererIdentity("d"), reader, oldest_seq)
    delivery = Delivery(query, DeliveryProgress(), 1, RefusedRows(storage))
    try:
        worker.add(delivery)
        yield worker, delivery
    finally:
        worker.stop()
        worker.join(SECONDS)


def rows_in(folder: Path) -> list[int]:
    """Return the numbers in the files of a folder."""
    lines = [line for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().splitlines()]
    return [json.loads(line)["n"] for line in lines]


def test_a_delivery_is_tried_again_although_its_log_could_not_be_listed(tmp_path: Path) -> None:
    attempts: list[int] = []

    def fail() -> int:
        attempts.append(1)
        raise OSError("stale file handle")

    with delivering(tmp_path, fail) as (_, delivery):
        wait_until(lambda: rows_in(tmp_path / "rows") == [1, 2], SECONDS, lambda: str(delivery.progress))
        wait_until(lambda: delivery.progress.rows == 2, SECONDS, lambda: str(delivery.progress))
        assert delivery.progress.state == DELIVERING
        assert delivery.progress.errors == len(attempts) == 1


def test_nobody_waits_while_the_log_is_listed(tmp_path: Path) -> None:
    is_listing, let = threading.Event(), threading.Event()

    def slow() -> int:
        is_listing.set()
        let.wait(SECONDS)
        return 1

    with delivering(tmp_path, slow) as (worker, delivery):
        assert is_listing.wait(SECONDS)
        thread = threading.Thread(target=worker.checkpoint_idle, daemon=True)
        thread.start()
        thread.join(SECONDS / 4)
        hung = thread.is_alive()
        let.set()
        assert not hung
        wait_until(lambda: delivery.progress.rows == 2, SECONDS, lambda: str(delivery.progress))


def test_a_delivery_goes_on_after_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Delivery.note
    defects = iter([True])

    def note(self: Delivery, *arguments: Any) -> None:
        if next(defects, False):
            raise RuntimeError("a defect")
        noted(self, *arguments)

    monkeypatch.setattr(Delivery, "note", note)
    monkeypatch.setattr(GoneOnce, "failures", 0)
    with delivering(tmp_path, lambda: 1) as (_, delivered):
        wait_until(lambda: delivered.progress.next_seq == 2, SECONDS, lambda: str(delivered.progress))
        assert rows_in(tmp_path / "rows") == [1, 2], "each row once"
        assert (delivered.progress.state, delivered.progress.errors) == (DELIVERING, 1)
