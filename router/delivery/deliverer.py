"""A deliverer: follows the batch log and the delivery log, and has workers deliver what is new.

Several can share the work (:mod:`braid.router.delivery.shards`).
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections import defaultdict
from dataclasses import replace
from functools import cached_property

from braid.engine.data_layout import BATCHES
from braid.router.batch_index import BatchIndex
from braid.router.delivery.delivery import Delivery, NewRows
from braid.router.delivery.delivery_log import DeliveredQuery, DeliveryFollower
from braid.router.delivery.progress import DeliveryProgress, part_of, read_progress, write_alive, write_progress
from braid.router.delivery.refused_rows import RefusedRows
from braid.router.delivery.shards import DeliveryShard, holding
from braid.router.delivery.sink_worker import SinkWorker
from braid.router.result_reader import ResultReader
from braid.router.sinks.sink import DelivererIdentity
from braid.sources.core.confinement import Confinement
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

POLL_SECONDS = 0.02
SAVE_SECONDS = 0.5
QUIET_SECONDS = 10.0
TRIM_SECONDS = 30.0
STOP_SECONDS = 3.0

log = logging.getLogger("braid.deliverer")


class Deliverer:
    """Delivers the queries of a shard until it is stopped; used by one thread."""

    def __init__(self, storage: Storage, shard: DeliveryShard, sink_folder: str = "") -> None:
        """Confine sinks as the service does; ``sink_folder`` is the folder for them where this machine has another."""
        self._storage = storage
        self._shard = shard
        self._sink_folder = sink_folder
        self._follower = DeliveryFollower(storage)
        self._batches = RecordLog(storage, BATCHES)
        self._reader = ResultReader(storage, BatchIndex(self._batches))
        self._refused = RefusedRows(storage)
        self._progress: dict[str, DeliveryProgress] = {}
        self._deliveries: dict[str, tuple[Delivery, SinkWorker]] = {}
        self._workers: dict[str, SinkWorker] = {}
        self._dropped: set[int] = set()
        self._has_begun = False
        self._quiet_due = 0.0
        self._trim_due = 0.0

    def run(self, stopping: threading.Event) -> None:
        """Deliver until ``stopping`` is set; then end what runs and save."""
        with holding(self._storage, self._shard, stopping):
            if stopping.is_set():
                return
            self._progress = read_progress(self._storage, self._shard.parts)
            saver = threading.Thread(target=self._save_all, args=(stopping,), name="saver", daemon=True)
            saver.start()
            try:
                while not stopping.wait(POLL_SECONDS):
                    self.step()
            finally:
                stopping.set()
                for worker in self._workers.values():
                    worker.stop()
                deadline = time.monotonic() + STOP_SECONDS
                for worker in self._workers.values():
                    worker.join(deadline - time.monotonic())
                saver.join()
                self._save()

    def step(self) -> None:
        """Take in new queries and batches."""
        if self._follower.follow():
            if not self._has_begun:  # a delivery looks for rows in what is visible now; later batches are passed to it
                self._reader.index.advance(self._newest_known())
                self._has_begun = True
            self._take_queries()
        if self._has_begun:
            self._take_batches()
        if time.monotonic() >= self._quiet_due:
            self._quiet_due = time.monotonic() + QUIET_SECONDS
            for worker in self._workers.values():
                worker.checkpoint_idle()
        if time.monotonic() >= self._trim_due:
            self._trim_due = time.monotonic() + TRIM_SECONDS
            self._refused.trim(self._shard.parts, self._oldest_seq)

    def _take_queries(self) -> None:
        queries = self._follower.deliveries.queries
        for query in queries.values():
            if part_of(query.id) not in self._shard.parts:
                continue
            if query.id not in self._deliveries:
                if not self._progress.setdefault(query.id, DeliveryProgress()).is_over:
                    self._begin(query)
            elif self._deliveries[query.id][0].query is not query:
                self._deliveries[query.id][1].update(query)
        for query_id in self._deliveries.keys() - queries.keys():
            _, worker = self._deliveries.pop(query_id)
            if worker.remove(query_id):
                worker.stop()
                self._workers = {
                    destination: other for destination, other in self._workers.items() if other is not worker
                }
        for query_id in self._progress.keys() - queries.keys():  # also what was dropped while nobody followed
            del self._progress[query_id]
            self._dropped.add(part_of(query_id))

    @cached_property
    def _identity(self) -> DelivererIdentity:
        """Who it is; asked for only once the service has written a query, and before it what it confines."""
        confinement = Confinement.of(self._storage)
        if self._sink_folder:
            confinement = replace(confinement, sink_folder=self._sink_folder)
        name = f"{zlib.crc32(self._storage.location.encode()):08x}-{self._shard.number}-{self._shard.of}"
        return DelivererIdentity(name, confinement)

    def _begin(self, query: DeliveredQuery) -> None:
        delivery = Delivery(query, self._progress[query.id], self._reader.index.latest, self._refused)
        destination = query.sink.destination
        if destination not in self._workers:
            self._workers[destination] = SinkWorker(
                query.sink.connector, self._identity, self._reader, self._oldest_seq
            )
        worker = self._workers[destination]
        self._deliveries[query.id] = delivery, worker
        worker.add(delivery)

    def _take_batches(self) -> None:
        index, epoch = self._reader.index, self._follower.deliveries.epoch
        self._report_ends()
        for seq in self._batches.numbers_after(index.latest):
            try:
                record = self._batches.read(seq)
            except FileNotFoundError:  # removed by retention; deliveries that still lacked it note a gap
                continue
            if record["epoch"] > epoch:  # whose its slots are will be known in a moment
                return
            index.absorb(record)
            self._report_rows(seq)
            self._report_ends()

    def _newest_known(self) -> int:
        """Return the newest batch whose epoch is known."""
        for seq in reversed(self._batches.numbers()):
            if self._batches.read(seq)["epoch"] <= self._follower.deliveries.epoch:
                return seq
        return 0

    def _oldest_seq(self) -> int:
        """Return the oldest batch that is kept."""
        return min(self._batches.numbers(), default=1)

    def _report_rows(self, seq: int) -> None:
        """Tell workers that a batch is visible, and which queries have rows in it."""
        entry = self._reader.index.entry(seq)
        rows: dict[int, int] = defaultdict(int)
        for block in entry.blocks:
            for slot, count in zip(block.slots.tolist(), block.counts.tolist(), strict=True):
                rows[slot] += count
        new_rows_by_worker: dict[SinkWorker, dict[str, NewRows]] = {worker: {} for worker in self._workers.values()}
        for query_id, (delivery, worker) in self._deliveries.items():
            slot = delivery.query.slot_at(entry.epoch)
            if slot is not None and rows.get(slot):
                new_rows_by_worker[worker][query_id] = NewRows(seq, rows[slot], entry.committed_us)
        for worker, new_rows in new_rows_by_worker.items():
            worker.see(seq, new_rows)

    def _report_ends(self) -> None:
        """Tell workers of queries all of whose rows are visible."""
        index = self._reader.index
        if not index.latest:
            return
        visible_epoch = index.entry(index.latest).epoch
        for query_id, (delivery, worker) in self._deliveries.items():
            freed_epoch = delivery.query.deployments[-1].freed_epoch
            is_visible = freed_epoch is not None and freed_epoch <= visible_epoch
            if delivery.query.is_over and is_visible and not delivery.is_ending:
                worker.end(query_id)

    def _save_all(self, stopping: threading.Event) -> None:
        while not stopping.wait(SAVE_SECONDS):
            try:
                self._save()
            except Exception:  # a full disk, say: the next time may be better
                log.exception("saving the progress of deliveries failed")

    def _save(self) -> None:
        """Write the parts in which something has changed, and that it is alive."""
        write_alive(self._storage, f"{self._shard.number}-{self._shard.of}", self._shard.parts, time.time_ns() // 1000)
        parts = self._dropped.copy()
        self._dropped -= parts
        deliveries = self._deliveries.copy()
        parts.update(part_of(query_id) for query_id, (delivery, _) in deliveries.items() if delivery.is_dirty)
        by_part: dict[int, dict[str, DeliveryProgress]] = {part: {} for part in parts}
        for query_id, progress in list(self._progress.items()):
            part = part_of(query_id)
            if part in by_part:
                if query_id in deliveries:
                    delivery, worker = deliveries[query_id]
                    by_part[part][query_id] = worker.progress_to_keep(delivery)
                else:
                    by_part[part][query_id] = progress
        try:
            for part, progress_of_part in by_part.items():
                write_progress(self._storage, part, progress_of_part)
        except Exception:
            self._dropped |= parts
            raise
