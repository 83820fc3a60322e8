"""What the values of messages can be: the options of each format, and what decodes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from braid.sources.core.errors import NotAllowed
from braid.sources.core.outgoing import EVERYWHERE, Outgoing
from braid.sources.core.schema import Schema
from braid.sources.core.secret import check_secrets
from braid.sources.formats.arrow_messages import decode_arrow_messages, unpacked_bytes
from braid.sources.formats.avro_messages import check_columns, decode_avro_messages, decode_framed_messages
from braid.sources.formats.avro_schema import read_schema
from braid.sources.formats.binary import show_bytes
from braid.sources.formats.csv_document import check_delimiter
from braid.sources.formats.csv_messages import decode_csv_messages
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.messages import decode_json_messages
from braid.sources.formats.schema_registry import SchemaRegistry, check_url

FORMATS = ("json", "csv", "avro", "arrow")
DELIMITER = "csv.delimiter"
AVRO_SCHEMA = "avro.schema"
DECODED_AVRO = 32  # times its bytes that a record may take: items of arrays are objects
REGISTRY = "avro.schema-registry.url"
USER_INFO = "avro.schema-registry.basic-auth.user-info"
OPTIONS: Mapping[str, tuple[str, ...]] = {"csv": (DELIMITER,), "avro": (AVRO_SCHEMA, REGISTRY, USER_INFO)}


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
        return MessageFormat(
            _avro(options, schema, outgoing), show_bytes, lambda value: DECODED_AVRO * len(value or b"")
        )
    if name == "arrow":
        size = partial(unpacked_bytes, schema=schema)
        return MessageFormat(partial(decode_arrow_messages, schema=schema), show_bytes, size)
    return MessageFormat(partial(decode_json_messages, schema=schema), _show_text)


def _avro(
    options: Mapping[str, str], schema: Schema, outgoing: Outgoing
) -> Callable[[Sequence[bytes | None]], Decoded]:
    check_secrets({name: options[name] for name in (USER_INFO,) if name in options}, (USER_INFO,))
    if (AVRO_SCHEMA in options) == (REGISTRY in options):
        raise NotAllowed(f"Format 'avro' must have one of the options {AVRO_SCHEMA!r} and {REGISTRY!r}.")
    if AVRO_SCHEMA in options:
        if USER_INFO in options:
            raise NotAllowed(f"Option {USER_INFO!r} goes with {REGISTRY!r} only.")
        writer = read_schema(options[AVRO_SCHEMA])
        check_columns(schema, writer)
        return partial(decode_avro_messages, schema=schema, writer=writer)
    check_url(options[REGISTRY], REGISTRY)
    outgoing.check_url(options[REGISTRY], f"Option {REGISTRY!r}")
    registry = SchemaRegistry(options[REGISTRY], options.get(USER_INFO, ""), outgoing)
    return partial(decode_framed_messages, schema=schema, schema_of=registry.schema)


def _show_text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
