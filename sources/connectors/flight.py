"""The ``flight`` connector: pulls tuples from an Arrow Flight server; docs/flight-source.md is the protocol.

The planner asks which offsets there are, in a thread, so that a server that does not answer holds up no other stream.
Source tasks pull ranges of offsets; batches that have the stream's types already are taken over without a copy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
import pyarrow.flight as fl

from braid.sources.connectors.connector import Chunk, Extent, Malformed
from braid.sources.connectors.offset_watch import OffsetWatch, WatchedConnector
from braid.sources.core.errors import CorruptData, Gone, MalformedRequest, NotAllowed, NotReady, TooLarge
from braid.sources.core.names import did_you_mean
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import COMMON_OPTIONS
from braid.sources.formats.record_batches import MatchedColumns, match_columns

OPTIONS = ("location", "path", "consumer")
SCHEMES = ("grpc", "grpc+tcp", "grpc+tls")
PATIENCE_SECONDS = 5.0  # how long a read waits for the next tuples before it gives up
ANSWER_SECONDS = 1.0  # how long the server may take to say which offsets it has
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # between the attempts of a read, seconds
MAX_ROWS = 1 << 20  # in one chunk
MAX_OFFSET = 2**63 - 1
CALL_ERRORS = (pa.ArrowException, OSError)  # FlightError is an ArrowException
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # else a new client inherits the back-off of the one it replaces
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True)
class FlightOptions:
    """Where a stream comes from; ``consumer`` is the name under which tuples are pulled."""

    location: str
    path: str
    consumer: str

    def __post_init__(self) -> None:
        if not _is_location(self.location):
            schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise NotAllowed(
                f"Option 'location' must be where the Flight server listens, such as grpc://127.0.0.1:8815"
                f" ({schemes} with host and port, nothing after them); got {self.location!r}."
            )
        for name, value in (("path", self.path), ("consumer", self.consumer)):
            if not value:
                raise NotAllowed(f"Option {name!r} must not be empty; leave it out or give it a value.")


def validate_options(name: str, schema: StreamSchema, options: Mapping[str, str]) -> FlightOptions:  # noqa: ARG001
    """Return the options of a stream called ``name``, with its name where an option is left out.

    NotAllowed says what is supported instead. Whether the server is there is not asked: it may be started later.
    """
    for option in options:
        if option not in OPTIONS:
            has = f"It has {', '.join(map(repr, OPTIONS))}.{did_you_mean(option, (*OPTIONS, *COMMON_OPTIONS))}"
            raise NotAllowed(f"Connector 'flight' has no option {option!r}. {has}")
    if "location" not in options:
        raise NotAllowed(
            "Connector 'flight' needs the address of its server. Add location = 'grpc://HOST:PORT' to WITH."
        )
    return FlightOptions(options["location"], options.get("path", name), options.get("consumer", name))


class FlightConnector(WatchedConnector):
    """The reading end of one path of a Flight server; it connects when it is first used."""

    def __init__(self, definition: StreamDefinition, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._stream = definition.name
        self._schema = definition.schema
        with_defaults = {"consumer": origin_of(definition.id), **definition.options}
        options = validate_options(definition.name, definition.schema, with_defaults)
        self._server = _Server(options)
        self._patience = patience_seconds
        subject = f"Stream {definition.name!r} from {options.location}"
        self._watch = OffsetWatch(self._ask, subject, CALL_ERRORS, _brief)
        self._columns: MatchedColumns | None = None
        self._checked = False

    def bounds(self) -> None:
        """Return None: there are none."""

    def oldest(self) -> dict[str, int]:
        """Return the oldest tuple that the server keeps of each partition."""
        return {partition: extent.start for partition, extent in self._watch.extents().items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the tuples ``[start, end)``; calls that fail are made again from where they got to.

        Raises NotReady when no tuple came for the connector's patience, Gone when the server no longer keeps ``start``,
        NotAllowed when its columns do not fit the stream's, and CorruptData when it breaks the protocol.
        """
        waiting_since, pause = time.monotonic(), FIRST_PAUSE
        while start < end:
            try:
                for batch in self._server.pull(partition, start, end, self._patience):
                    if batch.num_rows > end - start:
                        raise self._miscounted(partition, start, end, f"at least {batch.num_rows}")
                    yield self._chunk(batch, partition, start)
                    start += batch.num_rows
                    waiting_since, pause = time.monotonic(), FIRST_PAUSE
            except CALL_ERRORS as problem:
                self._server.forget()
                if start == end:
                    return
                if not isinstance(problem, fl.FlightUnavailableError):
                    self._must_keep(partition, start)
                seconds_left = waiting_since + self._patience - time.monotonic()
                if seconds_left <= 0:
                    raise NotReady(
                        f"{self._server} must give tuples {start} to {end} of partition {partition!r} to stream"
                        f" {self._stream!r}, and gave none for {self._patience:g} s: {_brief(problem)}. Start the"
                        " server again, and the stream goes on where it was; or drop the stream.",
                        stream=self._stream,
                    ) from problem
                time.sleep(min(pause, seconds_left))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if start < end:
                    self._must_keep(partition, start)
                    raise self._miscounted(partition, start, end, "none")

    def _miscounted(self, partition: str, start: int, end: int, got: str) -> CorruptData:
        return CorruptData(
            f"{self._server} must give exactly the tuples asked for, and of partition {partition!r} was asked for the"
            f" {end - start} from {start} to {end}, got {got}; correct the server.",
            stream=self._stream,
        )

    def _must_keep(self, partition: str, start: int) -> None:
        """Raise Gone when the server says that it does not have tuple ``start`` any more."""
        extents: dict[str, Extent] = {}
        with suppress(CorruptData, *CALL_ERRORS):
            extents = self._server.extents()
        oldest, _ = extents.get(partition, Extent(0, 0))
        if start < oldest:
            raise Gone(
                f"{self._server} must keep tuples until they were read: stream {self._stream!r} goes on at tuple"
                f" {start} of partition {partition!r}, and the server no longer has those before {oldest}. Serve them"
                " again, or drop the stream.",
                stream=self._stream,
            )

    def _ask(self) -> dict[str, Extent]:
        """Return the extent of each partition; at first also see that the server's columns fit.

        A server whose columns do not fit has nothing available: its stream stands still and the job goes on.
        """
        try:
            extents = self._server.extents()
            if not self._checked and extents:
                partition, extent = next(iter(extents.items()))
                self._check_columns(partition, extent.start)
                self._checked = True
        except Exception:
            self._checked = False
            self._server.forget()
            raise
        return extents

    def _check_columns(self, partition: str, first: int) -> None:
        with suppress(*CALL_ERRORS):  # then the first read will see
            self._columns_of(self._server.schema(partition, first))

    def _columns_of(self, served: pa.Schema) -> MatchedColumns:
        if self._columns is None or not self._columns.source.equals(served):
            try:
                self._columns = match_columns(served, self._schema)
            except MalformedRequest as problem:
                raise NotAllowed(
                    f"{self._server} must have the columns of stream {self._stream!r}. {problem.detail} Create"
                    " the stream with the columns that the server has.",
                    stream=self._stream,
                ) from None
        return self._columns

    def _chunk(self, batch: pa.RecordBatch, partition: str, first: int) -> Chunk:
        columns = self._columns_of(batch.schema)
        received_us = time.time_ns() // 1000
        try:
            decoded = columns.decode(batch)
        except (MalformedRequest, TooLarge) as problem:
            raise CorruptData(
                f"{self._server} must send sound record batches, and the one with tuple {first} of partition"
                f" {partition!r} is not: {_brief(problem)}.",
                stream=self._stream,
            ) from problem
        malformed = tuple(
            Malformed(f"partition {partition}, offset {first + line - 1}{detail.removeprefix(f'row {line}')}", raw)
            for line, detail, raw in decoded.malformed
        )
        return Chunk(decoded.tuples, malformed, received_us, batch.nbytes)


class _Server:
    """The calls to one path of a Flight server; the client is made when it is needed, and anew after an error."""

    def __init__(self, options: FlightOptions) -> None:
        self._options = options
        self._client: Any = None

    def __str__(self) -> str:
        return f"The Flight server {self._options.location} (path {self._options.path!r})"

    def extents(self) -> dict[str, Extent]:
        """Return which offsets ``[start, end)`` each partition has; CorruptData when the answer is none."""
        action = fl.Action("offsets", self._request())
        answers = list(self._connected().do_action(action, fl.FlightCallOptions(timeout=ANSWER_SECONDS)))
        body = answers[0].body.to_pybytes() if answers else b""
        extents = _parse_offsets(body)
        if extents is None:
            raise CorruptData(
                f'{self} must answer "offsets" with {{"partitions": {{"0": {{"start": 0, "end": 9}}}}}}, whole numbers'
                f" with start <= end; got {body[:200]!r}."
            )
        return extents

    def schema(self, partition: str, first: int) -> pa.Schema:
        """Return the columns of a partition: those of the empty range at ``first``."""
        reader = self._open(partition, first, first, ANSWER_SECONDS)
        try:
            return reader.schema
        finally:
            reader.cancel()

    def pull(self, partition: str, start: int, end: int, timeout: float) -> Iterator[pa.RecordBatch]:
        """Yield the batches of ``[start, end)``, of 1 to MAX_ROWS rows each."""
        reader = self._open(partition, start, end, timeout)
        try:
            for chunk in reader:
                batch = chunk.data
                for low in range(0, batch.num_rows if batch is not None else 0, MAX_ROWS):
                    yield batch.slice(low, MAX_ROWS)
        finally:
            reader.cancel()

    def forget(self) -> None:
        """Let go of the client, whose connection may be broken."""
        self._client = None

    def _open(self, partition: str, start: int, end: int, timeout: float) -> Any:
        ticket = fl.Ticket(self._request(partition=partition, start=start, end=end))
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        return self._connected().do_get(ticket, fl.FlightCallOptions(timeout=timeout, read_options=aligned))

    def _request(self, **values: Any) -> bytes:
        return orjson.dumps({"path": self._options.path, "consumer": self._options.consumer, **values})

    def _connected(self) -> Any:
        client = self._client
        if client is None:
            client = self._client = fl.connect(self._options.location, generic_options=CHANNEL)
        return client


def _parse_offsets(body: bytes) -> dict[str, Extent] | None:
    """Return the extent of each partition, or None when the answer is not as it must be."""
    try:
        partitions = orjson.loads(body)["partitions"]
        extents = {name: Extent(bounds["start"], bounds["end"]) for name, bounds in partitions.items()}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return None
    is_sound = all(
        type(start) is type(end) is int and 0 <= start <= end <= MAX_OFFSET for start, end in extents.values()
    )
    return extents if is_sound else None


def _is_location(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    extras = parts.path or parts.query or parts.fragment or parts.username or parts.password
    return parts.scheme in SCHEMES and bool(parts.hostname) and bool(port) and not extras


def _brief(problem: BaseException) -> str:
    """Return what went wrong without the traces of both ends."""
    text = re.split(r"\.?\s+(?:Detail|gRPC client debug context|Client context):|\n", str(problem), maxsplit=1)[0]
    return (text or type(problem).__name__)[:500].rstrip(".")
