"""What tests of Protobuf share: writing messages with protobuf's own types, and headers before them."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf import message_factory

from braid.sources.formats.protobuf_schema import read_proto

READINGS = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    message Reading { optional int32 k = 1; google.protobuf.Timestamp t = 2; }
    message Other { string k = 1; message Inner { google.protobuf.Timestamp t = 7; sint64 k = 8; } }
"""
"""Messages at (0,), (1,) and (1, 0), all with ``k``; the first and the last have a time ``t``."""


def writer(text: str, name: str = "") -> Any:
    """Return protobuf's own class for a message of a schema."""
    return message_factory.GetMessageClass(read_proto(text).named(name))


def framed(number: int, record: bytes, place: bytes = b"\0") -> bytes:
    """Return a message behind the header of a registry; ``place`` says which message of the schema it is."""
    return struct.pack(">bI", 0, number) + place + record


def reading(k: int | None, seconds: int = 1_767_225_600) -> bytes:
    """Return a ``shop.Reading``, of 2026-01-01 if not said otherwise."""
    record = writer(READINGS, "Reading")(k=k)
    record.t.seconds = seconds
    return record.SerializeToString()
