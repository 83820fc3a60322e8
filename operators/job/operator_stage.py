"""The stateful stage: Spark's ``transformWithState`` around a lane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from operators.bucket_store import RESULTS, put_join_block, put_window_rows
from operators.job.batch_progress import digest_of, progress_of
from operators.job.offsets import Offset
from operators.job.plan_log import PlanLog
from operators.job.wire import BLOCK, BUCKET, CONTROL, PROGRESS, STATE
from operators.job.worker_memory import set_aside
from operators.lane_state import Payload
from operators.report import is_due
from sources.errors import CorruptData
from sources.storage import Storage

if TYPE_CHECKING:
    import pandas as pd

    from operators.joins.late_rows import JoinedRows
    from operators.lane import Lane
    from operators.windowing.fired_rows import Fired

_SHARED: dict[str, tuple[PlanLog, dict[int, Lane]]] = {}


class OperatorStage(StatefulProcessor):
    """Runs one lane per call; what a worker keeps between calls is a cache."""

    def __init__(self, uri: str, first_lane: int, join_row_limit: int) -> None:
        self._uri = uri
        self._join_row_limit = join_row_limit
        self._first_lane = first_lane

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: a head and one entry per batch, opaque bytes both."""
        set_aside()
        self._head = handle.getValueState("head", "data binary")
        self._entries = handle.getMapState("entries", "seq long", "data binary")

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - Spark's name; in pandas mode rows are frames
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803, ARG002
    ) -> Iterator[pd.DataFrame]:
        """Run a batch of one lane."""
        # Spark starts a process that only asks for the state's schema; compiled kernels take a second to import
        import pandas as pd

        from operators.lane import Lane

        began = time.perf_counter()
        storage = Storage(self._uri)
        plan, lanes = _SHARED.setdefault(self._uri, (PlanLog(storage), {}))
        lane_number = int(key[0])
        lane = lanes.setdefault(lane_number, Lane(storage, self._join_row_limit))
        controls, payloads, blocks = _sort_rows(rows)
        start, end = Offset.from_json(controls[0]["start"]), Offset.from_json(controls[0]["end"])
        live = plan.at(start, end)
        progress = progress_of(controls, start, end)
        fired = lane.advance(
            end.seq, payloads, live, dict(end.waterlines), progress["waterlines"], _SparkState(self), end.planned_us
        )
        output = [(BLOCK, body) for body in blocks]
        for operator, (queries, windows) in fired.items():
            path = put_window_rows(storage, RESULTS, end.seq, windows.rows)
            entry = _block_entry("aggregation", operator, queries[0].query.streams, windows, path)
            output.append((BLOCK, orjson.dumps(entry).decode()))
        links: dict[str, str] = {}
        for operator, joined in lane.joined.items():
            path, referred = put_join_block(storage, RESULTS, end.seq, joined.block, links)
            streams = live.by_slot[joined.slots[0]].query.streams
            entry = _block_entry("join", operator, streams, joined, path) | {"tuples": referred}
            output.append((BLOCK, orjson.dumps(entry).decode()))
        if lane_number == self._first_lane:
            output.append((PROGRESS, orjson.dumps(progress).decode()))
        busy = int((time.perf_counter() - began) * 1e6)
        state = {
            "lane": lane_number,
            "progress": digest_of(progress),
            "bytes": lane.bytes,
            "busy_us": busy,
            "failures": lane.failures,
            "due_us": lane.due_us,
            "oldest": lane.oldest,
            "report": lane.work.tell() if is_due(start, end) else None,
        }
        output.append((STATE, orjson.dumps(state).decode()))
        yield pd.DataFrame(output, columns=["kind", "body"])

    def close(self) -> None:
        """Nothing to close: the caches outlive the call on purpose."""


class _SparkState:
    """The lane's state in Spark's state store."""

    def __init__(self, stage: OperatorStage) -> None:
        self._head = stage._head
        self._entries = stage._entries

    def head(self) -> bytes | None:
        value = self._head.get()
        return None if value is None else bytes(value[0])

    def set_head(self, head: bytes) -> None:
        self._head.update((head,))

    def entry(self, seq: int) -> bytes:
        value = self._entries.getValue((seq,))
        if value is None:
            raise CorruptData(f"The state must hold the buckets of batch {seq}, which its head names; it does not.")
        return bytes(value[0])

    def put_entry(self, seq: int, entry: bytes) -> None:
        self._entries.updateValue((seq,), (entry,))

    def drop_entry(self, seq: int) -> None:
        self._entries.removeKey((seq,))


def _sort_rows(rows: Iterator[pd.DataFrame]) -> tuple[list[dict[str, Any]], list[Payload], list[str]]:
    """Split a lane's rows by kind; those of streams that some task could not read go.

    Their files stay until they are swept: another attempt at this batch may be told that they can be read.
    """
    controls: list[dict[str, Any]] = []
    buckets: list[tuple[dict[str, Any], Payload]] = []
    blocks: list[tuple[dict[str, Any], str]] = []
    for frame in rows:
        for kind, body, payload in zip(frame["kind"], frame["body"], frame["payload"], strict=True):
            said = orjson.loads(body)
            if kind == CONTROL:
                controls.append(said)
            elif kind == BUCKET:
                buckets.append((said, Payload(said["path"], bytes(payload))))
            else:
                blocks.append((said, body))
    controls.sort(key=lambda control: control["task"])
    # doubles are added in one order, so that a batch that runs again tells the same to the last digit
    buckets.sort(key=lambda bucket: (bucket[0]["stream"], bucket[0]["task"], bucket[0]["number"]))
    unread = {stream for control in controls for stream in control["unread"]}
    return (
        controls,
        [payload for said, payload in buckets if said["stream"] not in unread],
        [body for said, body in blocks if said["stream"] not in unread],
    )


def _block_entry(
    kind: str, operator: str, streams: tuple[str, ...], fired: Fired | JoinedRows, path: str
) -> dict[str, Any]:
    """Describe a block of fired windows for the batch record."""
    return {
        "path": path,
        "kind": kind,
        "operator": operator,
        "stream": streams[0],
        "slots": fired.slots,
        "counts": fired.counts,
        "windows": fired.windows,
        "latest_event_us": fired.latest_us,
    }
