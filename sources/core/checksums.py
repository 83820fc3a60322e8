"""Checksums of what is read back from disk: CRC-32, worked out by instructions of the processor (some 10 GB/s).

A file that is written once has its checksum at the end of its name, before the ending: ``…-8f1c02ab.arrow``. A JSON
document, whose name is given, begins with it: ``{"crc":"8f1c02ab",…}``. What versions before wrote has neither, and is
read as it is.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
from isal.isal_zlib import crc32

__all__ = ["crc32", "json_document", "named_checksum", "read_json_document", "with_checksum"]

_NAMED = re.compile(r"-([0-9a-f]{8})(?:\.\w+)?$")
_KEY = b'{"crc":"'
_HEAD_BYTES = len(_KEY) + 8 + 2


def with_checksum(stem: str, crc: int, ending: str = "") -> str:
    """Return the name of a file with this checksum."""
    return f"{stem}-{crc:08x}{ending}"


def named_checksum(path: str) -> int | None:
    """Return the checksum that the name of a file says, None for one of a version before."""
    found = _NAMED.search(path)
    return None if found is None else int(found[1], 16)


def json_document(value: Any) -> bytes:
    """Return a JSON object with its checksum; keys may be numbers."""
    rest = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)[1:]
    return b'%b%08x"%b%b' % (_KEY, crc32(rest), b"" if rest == b"}" else b",", rest)


def read_json_document(data: bytes) -> Any:
    """Read what :func:`json_document` wrote, or JSON without a checksum; ValueError says what is wrong."""
    if data[:2] == b'{"' and data[5:8] == b'":"' and data[16:17] == b'"':
        rest = data[_HEAD_BYTES - 1 :]
        rest = rest[1:] if rest[:1] == b"," else rest
        if data[:_HEAD_BYTES] != b'%b%08x"%b' % (_KEY, crc32(rest), data[17:18]):
            raise ValueError("its checksum is another")
        return orjson.loads(b"{" + rest)
    return orjson.loads(data)
