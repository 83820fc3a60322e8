"""Drive a shared session by hand: a fake clock, batch records as the router writes them, no thread but the writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from braid.engine.data_layout import PlannedBatch, write_planned
from braid.operators.lookup.lookup_join import version_path
from braid.session.access.meters import Meters
from braid.session.access.principal import ANYONE, Quotas
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.execution import execute_statement
from braid.session.commands.query_requests import QueryRequest
from braid.session.log.archive import Archive
from braid.session.log.idempotency import Idempotency
from braid.session.log.recovery import replay_logs
from braid.session.log.snapshot import Snapshots
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.session.state.query_record import STATES
from braid.session.state.session_state import SessionState
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

STREAM = (
    "CREATE STREAM {} (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '2' SECOND)"
    " WITH (connector = 'push', format = 'json')"
)
SELECTION = "SELECT user_id, price FROM {} WHERE price > {}"
AGGREGATION = (
    "SELECT gem_pack, SUM(price) AS revenue FROM {} [RANGE 8 SECONDS SLIDE 4 SECONDS]"
    " WHERE price > {} GROUP BY gem_pack"
)
TABLE = "CREATE TABLE packs (gem_pack BIGINT, name VARCHAR) WITH (connector = 'file', path = '{}', format = 'csv')"
TESTED_JOIN = (
    "SELECT l.price FROM {0} [RANGE 3 SECONDS] AS l JOIN {0} [RANGE 3 SECONDS] AS r"
    " ON l.user_id = r.user_id WHERE l.price < r.price + {1}"
)
LOOKUP = "SELECT user_id, name FROM {} AS p JOIN packs AS k ON p.gem_pack = k.gem_pack"
SECOND = 1_000_000
BEGINNING = 1_700_000_000 * SECOND
LATENESS = 2 * SECOND


class FakeClock:
    """A clock that a test sets; microseconds inside, seconds when called."""

    def __init__(self) -> None:
        self.us = BEGINNING
        self._set_ahead_us = 0

    def __call__(self) -> float:
        return self.us / 1e6

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.us += round(seconds * SECOND)

    def jump(self, seconds: float) -> None:
        """Set the clock ahead, or back."""
        self.us += round(seconds * SECOND)
        self._set_ahead_us += round(seconds * SECOND)

    def monotonic(self) -> float:
        """Return the seconds that have passed, whatever the clock was set to."""
        return (self.us - self._set_ahead_us) / 1e6


class Driver:
    """A session on a folder, and the batches that its data plane would commit."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = Settings(data_dir=str(folder), **settings)
        self.clock = FakeClock()
        self.newest: dict[str, int] = {}
        self.table_rows: dict[str, int] = {}
        """How many rows of their table queries are to have, of those that a test keeps count of."""
        self._open()

    def _open(self) -> None:
        self.storage = Storage(str(self.folder))
        self.session = SharedSession(self.storage, self.settings, self.clock, self.clock.monotonic)
        self.session.recover()
        self.batches = RecordLog(self.storage, "batches")

    @property
    def state(self) -> SessionState:
        """The live state."""
        return self.session._state

    def crash(self) -> None:
        """Drop the session without a snapshot and open the folder again."""
        self.session._writer.close()
        self._open()

    def restart(self) -> None:
        """Close the session and open the folder again."""
        self.session.close()
        self._open()

    def end(self) -> None:
        """Stop the writer."""
        self.session._writer.close()

    def stream(self, name: str = "purchases") -> str:
        """Declare a stream and return its id."""
        return str(self.session.streams.create(STREAM.format(name))["id"])

    def write_table(self, rows: int) -> Path:
        """Write a file for ``TABLE`` with so many rows and return where it lies."""
        path = self.folder.with_name(f"{self.folder.name}-packs.csv")
        path.write_text("\n".join(["gem_pack,name", *(f"{row},pack {row}" for row in range(rows))]))
        return path

    def rows_in(self, version: str) -> int:
        """Return how many rows a file of a table's rows has."""
        with self.storage.open(version_path(version)) as source:
            return int(pa.ipc.open_file(source).read_all().num_rows)

    def create(self, *sql: str, **fields: Any) -> list[str]:
        """Accept queries in one request and return their ids."""
        answers = self.session.queries.create([QueryRequest(text, **fields) for text in sql])
        return [answer["id"] for answer in answers]

    def execute(self, sql: str) -> dict[str, Any]:
        """Carry out a statement as somebody who may do everything."""
        return execute_statement(TenantSession(self.session, ANYONE, Meters(Quotas())), sql)

    def flush(self) -> None:
        """Let the changelog timeout pass."""
        self.clock.advance(self.settings.changelog_timeout_seconds)
        self.session.step()

    def run(self, *sql: str, **fields: Any) -> list[str]:
        """Accept queries and commit the batch that makes them RUNNING."""
        ids = self.create(*sql, **fields)
        self.flush()
        self.batch()
        return ids

    def plan(self) -> PlannedBatch:
        """Plan the next batch, and step."""
        self.clock.advance(0.01)
        clocks = {s.definition.id: self.newest.get(s.definition.id) for s in self.state.catalog.states()}
        state = self.state
        planned = PlannedBatch(state.applied_seq + 1, state.active_epoch, state.epoch, clocks, self.clock.us)
        write_planned(self.storage, planned)
        self.session.step()
        return planned

    def batch(
        self,
        times: Mapping[str, int] | None = None,
        results: Iterable[tuple[int, int, int]] = (),
        failures: Mapping[str, str] | None = None,
        epoch: int | None = None,
        planned: PlannedBatch | None = None,
        idle: Iterable[str] = (),
        blocks: list[dict[str, Any]] | None = None,
        **rest: Any,
    ) -> dict[str, Any]:
        """Commit a batch with one tuple per stream id in ``times`` (seconds after the beginning) and step.

        ``results`` are ``(slot, rows, latest event time in µs)``, unless ``blocks`` says what the record is to say of
        them; without ``planned`` it is planned when it starts. The streams with the ids ``idle`` are. ``rest`` is what
        the record is to say otherwise, or besides.
        """
        self.clock.advance(0.01)
        at_start = {s.definition.id: self.newest.get(s.definition.id) for s in self.state.catalog.states()}
        for stream, seconds in (times or {}).items():
            self.newest[stream] = max(self.newest.get(stream, 0), BEGINNING + seconds * SECOND)
        clocks = {stream: self.newest.get(stream) for stream in at_start}
        ordered = sorted(results)
        block = {
            "path": "results/1.arrow",
            "kind": "selection",
            "operator": "selection",
            "stream": "s-1",
            "slots": [slot for slot, _, _ in ordered],
            "counts": [rows for _, rows, _ in ordered],
            "latest_event_us": [latest for _, _, latest in ordered],
        }
        watermarks = {s: None if t is None else t - LATENESS for s, t in clocks.items()}
        record: dict[str, Any] = {
            "seq": self.state.applied_seq + 1,
            "epoch": self.state.epoch if epoch is None else epoch,
            "previous_epoch": self.state.active_epoch,
            "clocks_at_start": at_start,
            "clocks": clocks,
            "watermarks": watermarks,
            "fired": watermarks,
            "idle": list(idle),
            "planned_us": self.clock.us if planned is None else planned.planned_us,
            "started_us": self.clock.us,
            "committed_us": self.clock.us,
            "streams": {
                stream: {"tuples": 1, "late": 0, "malformed": 0, "bytes": 70, "offsets": {"0": t}}
                for stream, t in (times or {}).items()
            },
            "results": [block] if blocks is None else blocks,
            "dead_letters": [],
            "failures": dict(failures or {}),
            "bytes": {"state": 0, "buckets": 0, "results": 0},
            "duration_us": 10_000,
        }
        record |= rest
        self.batches.append(record["seq"], record)
        self.session.step()
        return record

    def changelogs(self) -> list[dict[str, Any]]:
        """Return all changelog records."""
        return [record for _, record in RecordLog(self.storage, "changelogs").after(0)]

    def observed(self) -> dict[str, Any]:
        """Return the whole live state."""
        return observed(self.state, self.session._archive)

    def recovered(self) -> dict[str, Any]:
        """Return the whole state that a start on the folder as it is now would give."""
        storage = Storage(str(self.folder))
        archive = Archive(storage)
        state = SessionState()
        Snapshots(storage, archive).load(state)
        replay_logs(storage, state, Idempotency(storage))
        return observed(state, archive)


def observed(state: SessionState, archive: Archive) -> dict[str, Any]:
    """Return everything in a state as JSON, what is derived included."""
    numbers = ("requests", "epoch", "active_epoch", "applied_seq", "next_query", "next_stream", "next_table")
    numbers += ("queries_created", "queries_deleted")
    archived = [read() for _, read in archive.after(0)]
    everything: dict[str, Any] = {
        **{name: getattr(state, name) for name in numbers},
        "queries": [record.to_json() for record in state.queries.values()],
        "archived": [record.to_json() for record in archived if record is not None],
        "states": {name: state.queries.states[name] for name in STATES},
        "streams": [stream.to_json() for stream in state.catalog.states()],
        "stream_bodies": [stream.describe() for stream in state.catalog.states()],
        "tables": [table.describe() for table in state.catalog.tables()],
        "slots": state.slots.to_json() | {"holders": [state.slots.holder(s) for s in range(state.slots.capacity)]},
        "pending": state.pending.to_json(),
        "since_us": state.pending.since_us,
        "version": state.plan.version,
        "graph": state.plan.to_json(),
        "groups": state.plan.groups,
        "splits": {name: split.to_json() for name, split in state.plan.splits.items()},
        "active": state.active.state_json(),
        "table_states": [table.to_json() for table in state.catalog.tables()],
        "names": dict(state.names),
        "finished": sorted(state.queries.finished),
        "draining": sorted(state.draining.ids),
        "silent": sorted(state.draining.silent(2**62, lambda _: 0)),
        "holders": [(slot, holder and holder.id) for slot, holder in state.active.slots],
        "inactive": {epoch: [i.to_json(), sorted(i.touched)] for epoch, i in state.inactive.items()},
    }
    for kind in ("create", "delete", "free"):
        everything["pending"][kind].sort()
    while everything["holders"] and everything["holders"][-1] is None:
        everything["holders"].pop()
    return orjson.loads(orjson.dumps(everything, option=orjson.OPT_NON_STR_KEYS))  # type: ignore[no-any-return]
