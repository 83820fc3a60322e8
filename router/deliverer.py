"""A deliverer: follows the batch log and the delivery log, and has couriers deliver what is new.

Several can share the work: each owns the parts of :mod:`router.progress` that its share says, and holds a lock on each,
so that no query is delivered twice at a time; one that finds a part held waits for it.
"""

from __future__ import annotations

import fcntl
import logging
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from router.delivery import Courier, Delivery, News
from router.delivery_log import DeliveredQuery, DeliveryFollower
from router.progress import PARTS, Progress, part_of, read_progress, write_progress
from router.result_reader import BATCH_LOG, BatchIndex, ResultReader
from router.sinks.sink import Deliverer as Identity
from sources.errors import NotAllowed
from sources.record_log import RecordLog
from sources.storage import Storage

POLL_SECONDS = 0.02
SAVE_SECONDS = 0.25
LOCK_SECONDS = 0.5
STOP_SECONDS = 3.0
LOCKS = "deliveries/locks"

log = logging.getLogger("braid.deliverer")


@dataclass(frozen=True)
class Share:
    """Share ``number`` (from 1) of ``of`` equal ones."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= PARTS:
            raise NotAllowed(f"A share must be I/N with 1 <= I <= N <= {PARTS}; got {self}.")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Share:
        """Read ``I/N``."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal()):
            raise NotAllowed(f"A share must be I/N, such as 1/4; got {text!r}.")
        return cls(int(number), int(of))

    @property
    def parts(self) -> range:
        """The parts that it owns."""
        return range(self.number - 1, PARTS, self.of)


class DeliveryService:
    """Delivers the queries of a share until it is told to stop; used by one thread."""

    def __init__(self, storage: Storage, share: Share, sink_folder: str = "") -> None:
        self._storage = storage
        self._share = share
        place = storage.uri if storage.local_root is None else str(storage.local_root)
        name = f"{zlib.crc32(place.encode()):08x}-{share.number}-{share.of}"
        self._identity = Identity(name, sink_folder)
        self._follower = DeliveryFollower(storage)
        self._batches = RecordLog(storage, BATCH_LOG)
        self._reader = ResultReader(storage, BatchIndex(self._batches))
        self._known: dict[str, Progress] = {}
        self._deliveries: dict[str, tuple[Delivery, Courier]] = {}
        self._couriers: dict[str, Courier] = {}
        self._saved: dict[int, bytes] = {}
        self._save_due = 0.0
        self._has_begun = False

    def run(self, stopping: threading.Event) -> None:
        """Deliver until ``stopping`` is set; then end what runs and save."""
        with self._locked(stopping):
            if stopping.is_set():
                return
            self._known = read_progress(self._storage, self._share.parts)
            while not stopping.wait(POLL_SECONDS):
                self.step()
            for courier in self._couriers.values():
                courier.stop()
            until = time.monotonic() + STOP_SECONDS
            for courier in self._couriers.values():
                courier.join(until - time.monotonic())
            self._save()

    def step(self) -> None:
        """Hear of queries and batches, and save how far deliveries are, when it is time."""
        if self._follower.follow():
            if not self._has_begun:  # a delivery begins with all that is visible; of what comes later it is told
                self._reader.index.advance(self._newest_known())
                self._has_begun = True
            self._take_queries()
        if self._has_begun:
            self._take_batches()
        if time.monotonic() >= self._save_due:
            self._save()
            self._save_due = time.monotonic() + SAVE_SECONDS

    def _take_queries(self) -> None:
        queries = self._follower.deliveries.queries
        for query in queries.values():
            if part_of(query.id) not in self._share.parts:
                continue
            if query.id not in self._deliveries:
                self._begin(query)
            elif query.freed_epoch is not None:
                self._deliveries[query.id][0].query = query
        for query_id in self._deliveries.keys() - queries.keys():
            _, courier = self._deliveries.pop(query_id)
            self._known.pop(query_id, None)
            if courier.remove(query_id):
                courier.stop()
                self._couriers = {where: each for where, each in self._couriers.items() if each is not courier}

    def _begin(self, query: DeliveredQuery) -> None:
        delivery = Delivery(query, self._known.setdefault(query.id, Progress()))
        where = query.sink.destination
        if where not in self._couriers:
            self._couriers[where] = Courier(query.sink.connector, self._identity, self._reader)
        courier = self._couriers[where]
        self._deliveries[query.id] = delivery, courier
        if not delivery.progress.is_over:
            courier.add(delivery)

    def _take_batches(self) -> None:
        index, epoch = self._reader.index, self._follower.deliveries.epoch
        self._hear_of_ends()
        for seq in self._batches.numbers_after(index.latest):
            record = self._batches.read(seq)
            if record["epoch"] > epoch:  # whose its slots are will be known in a moment
                return
            index.absorb(record)
            self._tell(seq, record["committed_us"])
            self._hear_of_ends()

    def _newest_known(self) -> int:
        """Return the newest batch whose epoch is known."""
        for seq in reversed(self._batches.numbers()):
            if self._batches.read(seq)["epoch"] <= self._follower.deliveries.epoch:
                return seq
        return 0

    def _tell(self, seq: int, committed_us: int) -> None:
        """Tell couriers which queries have rows in a batch."""
        entry = self._reader.index.entry(seq)
        rows: dict[int, int] = defaultdict(int)
        for block in entry.blocks:
            for slot, count in zip(block.slots.tolist(), block.counts.tolist(), strict=True):
                rows[slot] += count
        told: dict[Courier, dict[str, News]] = defaultdict(dict)
        for query_id, (delivery, courier) in self._deliveries.items():
            query = delivery.query
            if rows.get(query.slot) and query.holds_slot_at(entry.epoch) and not delivery.progress.is_over:
                told[courier][query_id] = News(seq, rows[query.slot], committed_us)
        for each, news in told.items():
            each.hear(news)

    def _hear_of_ends(self) -> None:
        index = self._reader.index
        if not index.latest:
            return
        visible = index.entry(index.latest).epoch
        for query_id, (delivery, courier) in self._deliveries.items():
            freed = delivery.query.freed_epoch
            if freed is not None and freed <= visible and not delivery.is_ending and not delivery.progress.is_over:
                courier.end(query_id)

    def _save(self) -> None:
        """Write the parts that have changed."""
        for part in self._share.parts:
            held = {query_id: each for query_id, each in self._known.items() if part_of(query_id) == part}
            state = repr(held).encode()
            if self._saved.get(part) != state:
                write_progress(self._storage, part, held)
                self._saved[part] = state

    @contextmanager
    def _locked(self, stopping: threading.Event) -> Iterator[None]:
        """Hold the parts of the share, or wait until they can be held; where files cannot be locked, nothing is."""
        with ExitStack() as stack:
            if self._storage.local_root is not None:
                folder = self._storage.local_path(LOCKS)
                folder.mkdir(parents=True, exist_ok=True)
                for part in self._share.parts:
                    stack.enter_context(_lock(folder / f"{part:02d}", stopping))
            yield


@contextmanager
def _lock(path: Path, stopping: threading.Event) -> Iterator[None]:
    with path.open("a") as file:
        said = False
        while not stopping.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if not said:
                    log.warning(
                        "waiting for another deliverer of the same share", extra={"fields": {"lock": path.name}}
                    )
                    said = True
                stopping.wait(LOCK_SECONDS)
        yield
