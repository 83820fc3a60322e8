"""Columns that hold what a message has beside its value: ``METADATA FROM 'key'`` and so on.

A key and headers are texts, converted as fields of CSV are; an empty or missing one is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field, StreamSchema
from braid.sources.formats.arrow_stream import converter_of
from braid.sources.formats.csv_document import convert_texts
from braid.sources.formats.decoded import Decoded, DecodedColumn, MalformedLine, null_faults, with_computed

HEADER = "headers."
_KINDS: dict[str, tuple[str, ...]] = {
    "topic": ("VARCHAR",),
    "partition": ("INT", "BIGINT"),
    "offset": ("BIGINT",),
    "timestamp": ("TIMESTAMP",),
    "headers": ("VARCHAR",),
}
KEYS = ("key", *_KINDS, f"{HEADER}NAME")


def check_metadata(schema: StreamSchema) -> None:
    """Raise NotAllowed when a column is to hold what messages do not have, or is of another type."""
    for name, key in schema.metadata:
        kind = schema.field(name).type.kind
        if key not in KEYS[:-1] and not (key.startswith(HEADER) and key != HEADER):
            raise NotAllowed(
                f"Column {name!r} can be METADATA FROM {', '.join(map(repr, KEYS))} of a message; got {key!r}."
            )
        if kind not in _KINDS.get(key, (kind,)):
            raise NotAllowed(
                f"Column {name!r}, METADATA FROM {key!r}, must be {' or '.join(_KINDS[key])}; it is {kind}."
            )
    if len(schema.metadata) == len(schema.read):
        raise NotAllowed("Some column must come from the values of messages; all are METADATA.")


class MetadataColumns:
    """Puts the columns of metadata beside those of the values; ``show`` gives a value as text for dead letters."""

    def __init__(self, schema: StreamSchema, topic: str, show: Callable[[bytes | None], str]) -> None:
        self._schema = schema
        self._topic = topic
        self._show = show
        self._keys = {name.lower(): key for name, key in schema.metadata}

    def attach(self, decoded: Decoded, messages: Sequence[Message]) -> Decoded:
        """Return the tuples of messages with all columns; those whose metadata does not fit are malformed."""
        if not self._keys:
            return decoded
        origins = decoded.origins_of(len(messages))
        message_numbers = pa.array(origins)
        arrays: list[DecodedColumn] = []
        faults: dict[int, str] = {}
        for field in self._schema.read:
            key = self._keys.get(field.name.lower())
            if key is None:
                arrays.append(DecodedColumn(decoded.tuples.column(field.name), {}))
                continue
            column = self._column(field, key, messages)
            for i, reason in column.errors.items():
                faults.setdefault(i, reason)
            if field.name in self._schema.required and column.values.null_count:
                is_event_time = field.name.lower() == self._schema.event_time.lower()
                noun = "is the event time" if is_event_time else "is NOT NULL"
                for i in np.flatnonzero(pc.is_null(column.values).to_numpy(zero_copy_only=False)).tolist():
                    faults.setdefault(i, f"column {field.name!r} {noun}, and the message has none")
            arrays.append(DecodedColumn(column.values.take(message_numbers), {}))
        columns = with_computed(self._schema, arrays)
        tuples = pa.RecordBatch.from_arrays([column.values for column in columns], schema=self._schema.arrow)
        unfit = self._unfit(columns)
        if not faults and not unfit:
            return Decoded(tuples, decoded.malformed)
        fits = ~np.isin(origins, list(faults))
        wrong = [(i, faults[i]) for i in np.unique(origins[~fits]).tolist()]  # others are malformed for their values
        wrong += [(int(origins[row]), reason) for row, reason in unfit.items() if fits[row]]
        fits[list(unfit)] = False
        malformed = [MalformedLine(i + 1, f"line {i + 1}: {why}", self._show(messages[i].value())) for i, why in wrong]
        faults_in_order = sorted((*decoded.malformed, *malformed), key=lambda fault: fault.line)
        return Decoded(tuples.filter(pa.array(fits)), tuple(faults_in_order))

    def _unfit(self, columns: Sequence[DecodedColumn]) -> dict[int, str]:
        """Return the tuples of which a column cannot be computed, or is NULL where it must not be, and why."""
        reasons: dict[int, str] = {}
        for field, column in zip(self._schema.fields, columns, strict=True):
            if field.computed is not None:
                reasons = {**column.errors, **reasons}
        for i, reason in null_faults(self._schema, columns):
            reasons.setdefault(i, reason)
        return reasons

    def _column(self, field: Field, key: str, messages: Sequence[Message]) -> DecodedColumn:
        if key == "offset":
            return _numbers(field, [message.offset() for message in messages], pa.int64())
        if key == "partition":
            return _numbers(field, [message.partition() for message in messages], pa.int64())
        if key == "timestamp":
            return _numbers(field, [_timestamp(message) for message in messages], pa.timestamp("ms"))
        if key == "topic":
            return convert_texts(field, [self._topic] * len(messages))
        if key == "headers":
            return convert_texts(field, [_all_headers(message) for message in messages])
        if key == "key":
            return _texts(field, [message.key() for message in messages])
        name = key.removeprefix(HEADER)
        return _texts(field, [_header(message, name) for message in messages])


def _numbers(field: Field, values: Sequence[Any], kind: pa.DataType) -> DecodedColumn:
    convert = converter_of(kind, field)
    assert convert is not None
    return convert(pa.array(values, kind), field)


def _texts(field: Field, values: Sequence[Any]) -> DecodedColumn:
    texts: list[str | None] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            texts.append((value.decode() if isinstance(value, bytes) else value) or None)
        except UnicodeDecodeError:
            texts.append(None)
            errors[i] = f"column {field.name!r} must be UTF-8"
    column = convert_texts(field, texts)
    return DecodedColumn(column.values, {**column.errors, **errors})


def _timestamp(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds


def _header(message: Message, name: str) -> Any:
    """Return the last header of a name, as Kafka's clients do."""
    return next((value for key, value in reversed(_headers(message)) if key == name), None)


def _all_headers(message: Message) -> str:
    """Return all headers as a JSON object; of those of one name the last."""
    headers = {
        key: value.decode(errors="replace") if isinstance(value, bytes) else value for key, value in _headers(message)
    }
    return orjson.dumps(headers).decode()


def _headers(message: Message) -> list[tuple[str, Any]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else headers
