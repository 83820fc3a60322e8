"""What schemathesis must be told to send bodies that are not JSON; ``SCHEMATHESIS_HOOKS`` names this module."""

from __future__ import annotations

from typing import Any

import schemathesis
from schemathesis import Case, SerializationContext


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def as_bytes(_: SerializationContext, value: Any) -> bytes:
    """Return a text or bytes as they are."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@schemathesis.hook
def before_call(_: Any, case: Case, __: Any) -> None:
    """Name what is there now and then, else most requests would end at a name that nobody has."""
    names = {"name": ("purchases", "packs", "nobody"), "id": ("q-1", "mine", "q-2", "q-999")}
    for parameter, value in list((case.path_parameters or {}).items()):
        choices = names.get(parameter, ())
        number = sum(str(value).encode(errors="replace"))
        if choices and number % 4:
            case.path_parameters[parameter] = choices[number % len(choices)]
