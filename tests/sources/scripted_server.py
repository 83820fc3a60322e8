"""A Flight server whose script says what it has and how it misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

DEADLINE_SECONDS = 20.0


@dataclass
class Script:
    """What a test server has and how it misbehaves; ``tables`` maps partitions to their first offset and tuples."""

    tables: dict[str, tuple[int, pa.Table]] = field(default_factory=dict)
    batch_rows: int = 4
    offsets: bytes | None = None  # an answer other than the right one
    extra: int = 0  # so many rows more than asked for
    failures: list[int] = field(default_factory=list)  # calls that fail after so many batches …
    failure: type[Exception] = fl.FlightServerError  # … with this error
    pulls: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    silent: threading.Event | None = None  # "offsets" is not answered before it is set
    stalled: threading.Event | None = None  # a pull gives no more than one batch before it is set


class ScriptedServer(fl.FlightServerBase):  # type: ignore[misc]
    """A Flight server that keeps to the protocol of docs/flight-source.md, unless its script says otherwise."""

    def __init__(self, script: Script, port: int = 0) -> None:
        super().__init__(f"grpc://127.0.0.1:{port}")
        self.script = script

    def do_action(self, context: Any, action: Any) -> list[bytes]:  # noqa: ARG002
        """Answer "offsets"."""
        script = self.script
        assert action.type == "offsets"
        script.questions.append(json.loads(action.body.to_pybytes()))
        if script.silent is not None:
            script.silent.wait(DEADLINE_SECONDS)
        if script.offsets is not None:
            return [script.offsets]
        offsets = {p: {"start": s, "end": s + t.num_rows} for p, (s, t) in script.tables.items()}
        return [json.dumps({"partitions": offsets}).encode()]

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
        """Give a range of tuples."""
        pull = json.loads(ticket.ticket)
        self.script.pulls.append(pull)
        first, table = self.script.tables[pull["partition"]]
        if pull["start"] < first:
            raise fl.FlightServerError("these tuples are gone")
        batches = self._batches(table, pull["start"] - first, pull["end"] - first)
        if self.script.failures or self.script.stalled:
            return fl.GeneratorStream(table.schema, batches)
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(table.schema, batches))  # has dictionaries

    def _batches(self, table: pa.Table, low: int, high: int) -> Iterator[pa.RecordBatch]:
        rows = table.slice(low, high - low + (self.script.extra if high > low else 0))
        fail_after = self.script.failures.pop(0) if self.script.failures and high > low else None
        for i, batch in enumerate(rows.to_batches(max_chunksize=self.script.batch_rows)):
            if i == fail_after:
                raise self.script.failure("tripped over a cable")
            if i and self.script.stalled is not None:
                self.script.stalled.wait(DEADLINE_SECONDS)
            yield batch


@contextmanager
def serving(script: Script, port: int = 0) -> Iterator[ScriptedServer]:
    """Run a server as long as the block."""
    with ScriptedServer(script, port) as server:
        yield server
