"""What the values of messages can be: the options of each format, and what decodes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from braid.sources.core.errors import NotAllowed
from braid.sources.core.outgoing import EVERYWHERE, Outgoing
from braid.sources.core.schema import Schema
from braid.sources.core.secret import check_secrets
from braid.sources.formats import avro_messages, protobuf_messages
from braid.sources.formats.arrow_messages import decode_arrow_messages, unpacked_bytes
from braid.sources.formats.avro_messages import decode_avro_messages, decode_framed_messages
from braid.sources.formats.avro_schema import read_schema
from braid.sources.formats.binary import show_bytes
from braid.sources.formats.csv_document import check_delimiter
from braid.sources.formats.csv_messages import decode_csv_messages
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.messages import decode_framed_json_messages, decode_json_messages
from braid.sources.formats.protobuf_messages import (
    decode_protobuf_messages,
    decoded_size,
    framed_messages,
    plain_messages,
)
from braid.sources.formats.protobuf_schema import read_proto
from braid.sources.formats.record_messages import HEADER_BYTES, schema_id
from braid.sources.formats.schema_registry import AVRO, JSON, PROTOBUF, SchemaKind, SchemaRegistry, check_url

FORMATS = ("json", "csv", "avro", "protobuf", "arrow")
DELIMITER = "csv.delimiter"
AVRO_SCHEMA = "avro.schema"
DECODED_AVRO = 32  # times its bytes that a record may take: items of arrays are objects
PROTOBUF_SCHEMA = "protobuf.schema"
PROTOBUF_MESSAGE = "protobuf.message"
T = TypeVar("T")


def registry_option(format: str) -> str:
    """Return what the option with the address of a registry is called."""
    return f"{format}.schema-registry.url"


def _user_info(format: str) -> str:
    return f"{format}.schema-registry.basic-auth.user-info"


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "json": (registry_option("json"), _user_info("json")),
    "csv": (DELIMITER,),
    "avro": (AVRO_SCHEMA, registry_option("avro"), _user_info("avro")),
    "protobuf": (PROTOBUF_SCHEMA, PROTOBUF_MESSAGE, registry_option("protobuf"), _user_info("protobuf")),
}


@dataclass(frozen=True)
class MessageFormat:
    """``decode`` gives the tuples of values, ``show`` a value as text for dead letters.

    ``size`` is about how many bytes a value takes once it is decoded.
    """

    decode: Callable[[Sequence[bytes | None]], Decoded]
    show: Callable[[bytes | None], str]
    size: Callable[[bytes | None], int] = lambda value: len(value or b"")


def format_of(name: str, options: Mapping[str, str], schema: Schema, outgoing: Outgoing = EVERYWHERE) -> MessageFormat:
    """Return what decodes messages into tuples of ``schema``; NotAllowed says which options there are."""
    if name == "csv":
        delimiter = options.get(DELIMITER, ",")
        check_delimiter(delimiter)
        return MessageFormat(partial(decode_csv_messages, schema=schema, delimiter=delimiter), _show_text)
    if name == "avro":
        return _avro(options, schema, outgoing)
    if name == "protobuf":
        return _protobuf(options, schema, outgoing)
    if name == "arrow":
        size = partial(unpacked_bytes, schema=schema)
        return MessageFormat(partial(decode_arrow_messages, schema=schema), show_bytes, size)
    return _json(options, schema, outgoing)


def _json(options: Mapping[str, str], schema: Schema, outgoing: Outgoing) -> MessageFormat:
    registry = _registry("json", JSON, options, outgoing)
    if registry is None:
        return MessageFormat(partial(decode_json_messages, schema=schema), _show_text)
    decode = partial(decode_framed_json_messages, schema=schema, schema_of=registry.schema)
    return MessageFormat(decode, lambda value: _show_text(without_header(value or b"")))


def _avro(options: Mapping[str, str], schema: Schema, outgoing: Outgoing) -> MessageFormat:
    def size(value: bytes | None) -> int:
        return DECODED_AVRO * len(value or b"")

    _check_one("avro", AVRO_SCHEMA, options)
    registry = _registry("avro", AVRO, options, outgoing)
    if registry is not None:
        decode = partial(decode_framed_messages, schema=schema, schema_of=registry.schema)
        return MessageFormat(decode, show_bytes, size)
    writer = read_schema(options[AVRO_SCHEMA])
    avro_messages.check_columns(schema, writer)
    return MessageFormat(partial(decode_avro_messages, schema=schema, writer=writer), show_bytes, size)


def _protobuf(options: Mapping[str, str], schema: Schema, outgoing: Outgoing) -> MessageFormat:
    _check_one("protobuf", PROTOBUF_SCHEMA, options)
    registry = _registry("protobuf", PROTOBUF, options, outgoing)
    if registry is not None:
        if PROTOBUF_MESSAGE in options:
            raise NotAllowed(f"Option {PROTOBUF_MESSAGE!r} goes with {PROTOBUF_SCHEMA!r} only.")
        reader_of = framed_messages(schema, registry.schema)
    else:
        message = read_proto(options[PROTOBUF_SCHEMA]).named(options.get(PROTOBUF_MESSAGE, ""))
        protobuf_messages.check_columns(schema, message)
        reader_of = plain_messages(schema, message)
    decode = partial(decode_protobuf_messages, schema=schema, reader_of=reader_of)
    return MessageFormat(decode, show_bytes, partial(decoded_size, reader_of=reader_of))


def _check_one(format: str, schema_option: str, options: Mapping[str, str]) -> None:
    registry = registry_option(format)
    if (schema_option in options) == (registry in options):
        raise NotAllowed(f"Format {format!r} must have one of the options {schema_option!r} and {registry!r}.")


def _registry(
    format: str, kind: SchemaKind[T], options: Mapping[str, str], outgoing: Outgoing
) -> SchemaRegistry[T] | None:
    """Return the registry that options name, if they do."""
    option, user_info = registry_option(format), _user_info(format)
    check_secrets({name: options[name] for name in (user_info,) if name in options}, (user_info,))
    if option not in options:
        if user_info in options:
            raise NotAllowed(f"Option {user_info!r} goes with {option!r} only.")
        return None
    check_url(options[option], option)
    outgoing.check_url(options[option], f"Option {option!r}")
    return SchemaRegistry(kind, options[option], options.get(user_info, ""), outgoing)


def without_header(value: bytes) -> bytes:
    """Return a message without the header of a registry, if it has one."""
    return value if schema_id(value) is None else value[HEADER_BYTES:]


def _show_text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
