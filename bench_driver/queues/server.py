"""A generator and its queue in a process of their own, pulled from and steered through Arrow Flight.

The path is the stream's name, its only partition is "0". `do_get` takes a ticket
`{"path", "partition", "start", "end", "consumer"}`; the actions take and return JSON objects:

==========  ======================================  ==========================================================
action      takes                                   returns
==========  ======================================  ==========================================================
offsets     `{"path", "consumer"}`                  `{"partitions": {"0": {"start", "end"}}}`
run         `{"at_us", "profile": [[s, rate], …]}`  `{"segments": [[first_offset, at_us, rate], …]}`
stop        `{}`                                    the same
samples     `{"after": number}`                     `{"samples": [[us, generated, {consumer: pulled}]], "next"}`
pulls       `{"after": number}`                     `{"pulls": [[us, consumer, start, end]], "next"}`

==========  ======================================  ==========================================================

`python -m braid.bench_driver.queues.server` reads a line `{"stream", "dataset", "options", "seed", "share"}` from
standard input, writes a line `{"location"}`, and ends when its standard input is closed: so also when the driver dies.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.schedule import Share, parse_profile
from braid.bench_driver.queues.tuple_queue import QueueClosedError, ReadCancelledError, TupleQueue

PARTITION = "0"
SAMPLE_SECONDS = 0.1
SHUTDOWN_SECONDS = 2.0

Document = Mapping[str, Any]


class QueueServer(fl.FlightServerBase):  # type: ignore[misc]
    """A Flight server on a free port of 127.0.0.1 that offers one queue as the path `stream`."""

    def __init__(self, stream: str, queue: TupleQueue) -> None:
        self._stream = stream
        self._queue = queue
        self._actions: dict[str, Callable[[Document], Document]] = {
            "offsets": self._offsets,
            "run": self._run,
            "stop": self._stop,
            "samples": self._samples,
            "pulls": self._pulls,
        }
        super().__init__("grpc://127.0.0.1:0")

    @property
    def location(self) -> str:
        """Where clients find it."""
        return f"grpc://127.0.0.1:{self.port}"

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        """Stream the tuples of a ticket's range, waiting for those that there are not yet."""
        with _Refusals():
            request = _parse(ticket.ticket)
            self._check_path(request)
            if request.get("partition", PARTITION) != PARTITION:
                raise ValueError(f"stream {self._stream!r} has only partition {PARTITION!r}, got {request!r}")
            start, end = _whole(request, "start"), _whole(request, "end")
            batches = self._queue.read(start, end, str(request.get("consumer", "")), context.is_cancelled)
        return fl.GeneratorStream(self._queue.schema, _until_closed(batches))

    def do_action(self, _: fl.ServerCallContext, action: fl.Action) -> list[bytes]:
        """Do what the module's table says."""
        with _Refusals():
            if action.type not in self._actions:
                raise ValueError(f"an action must be one of {', '.join(self._actions)}, got {action.type!r}")
            body = b"" if action.body is None else action.body.to_pybytes()
            return [json.dumps(self._actions[action.type](_parse(body or b"{}"))).encode()]

    def _offsets(self, body: Document) -> Document:
        self._check_path(body)
        return {"partitions": {PARTITION: {"start": 0, "end": self._queue.generated()}}}

    def _run(self, body: Document) -> Document:
        profile = parse_profile(body.get("profile"))
        return {"segments": self._queue.run(_whole(body, "at_us"), profile).to_json()}

    def _stop(self, _: Document) -> Document:
        return {"segments": self._queue.stop().to_json()}

    def _samples(self, body: Document) -> Document:
        samples, next_number = self._queue.samples(_whole(body, "after"))
        return {"samples": samples, "next": next_number, "segments": self._queue.schedule.to_json()}

    def _pulls(self, body: Document) -> Document:
        pulls, next_number = self._queue.pulls(_whole(body, "after"))
        return {"pulls": pulls, "next": next_number}

    def _check_path(self, document: Document) -> None:
        if document.get("path") != self._stream:
            raise ValueError(f"'path' must be {self._stream!r}, the only stream here, got {document.get('path')!r}")


class _Refusals:
    """Turns a ValueError into the error that a Flight client gets as an invalid argument, without a traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError) and not isinstance(error, pa.ArrowInvalid):
            raise pa.ArrowInvalid(str(error)) from None


def _until_closed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except QueueClosedError:
        raise fl.FlightUnavailableError("the queue ends") from None
    except ReadCancelledError:
        raise fl.FlightCancelledError("cancelled by the client") from None


def _parse(text: bytes) -> Document:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"JSON is expected, got {text[:200]!r}: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object is expected, got {text[:200]!r}")
    return document


def _whole(document: Document, key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{key!r} must be a whole number from 0, got {value!r}")
    return value


def _text(document: Document, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key!r} must be a text, got {value!r}")
    return value


def _make_ring(stream: str, order: Document) -> Ring:
    options = order.get("options", {})
    if not isinstance(options, dict):
        raise ValueError(f"'options' must be an object, got {options!r}")
    return Ring(find_dataset(_text(order, "dataset")), options, _whole(order, "seed"), stream)


def _sample_until(closed: threading.Event, queue: TupleQueue) -> None:
    while not closed.wait(SAMPLE_SECONDS):
        queue.sample()


def main() -> int:
    """Serve the queue that standard input describes until it is closed; return the exit status."""
    try:
        order = _parse(sys.stdin.readline().encode())
        stream = _text(order, "stream")
        ring, share = _make_ring(stream, order), Share(*order.get("share", ()))
    except ValueError as error:
        print(f"the queue cannot be made: {error}", file=sys.stderr)
        return 2
    queue = TupleQueue(ring, share=share)
    server = QueueServer(stream, queue)
    closed = threading.Event()
    threading.Thread(target=_sample_until, args=(closed, queue), name="samples", daemon=True).start()
    print(json.dumps({"location": server.location}), flush=True)
    sys.stdin.read()
    closed.set()
    queue.close()
    ending = threading.Thread(target=server.shutdown, name="shutdown", daemon=True)
    ending.start()
    ending.join(SHUTDOWN_SECONDS)
    os._exit(0)  # a client that neither reads nor goes would keep the server up for ever


if __name__ == "__main__":
    sys.exit(main())
