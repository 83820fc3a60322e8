"""MD5 and SHA256 of texts in UTF-8, as hexadecimal digits; each distinct text is digested once a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pyarrow as pa

from braid.operators.expressions import Call
from braid.operators.functions.signature import Datum, Function, by_distinct, typed
from braid.sources.core.schema import VARCHAR

_DIGESTS: dict[str, Callable[[bytes], str]] = {
    "md5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
    "sha256": lambda data: hashlib.sha256(data).hexdigest(),
}


def _digest(call: Call, arguments: Sequence[Datum]) -> Datum:
    digest = _DIGESTS[call.function]
    return by_distinct(lambda text: digest(text.encode()), pa.string(), arguments[0])


DIGESTS = tuple(Function(name, f"{name.upper()}(text)", typed(VARCHAR, VARCHAR), _digest) for name in _DIGESTS)
