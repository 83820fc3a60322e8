"""Paths into JSON objects and structs: ``$.user.id``, ``$['total price'][0]``; a text without ``$`` is one name."""

from __future__ import annotations

import re

from braid.sources.core.errors import NotAllowed

MAX_STEPS = 20
_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]\s"'*?@()$]+)
    |\."(?P<quoted>[^"]+)"
    |\["(?P<double>[^"]+)"\]
    |\['(?P<single>[^']+)'\]
    |\[(?P<index>\d{1,9})\]""",
    re.VERBOSE,
)

Path = tuple[str | int, ...]


def read_path(text: str) -> Path:
    """Return the steps of a path, names of members and places in arrays from 0; NotAllowed says what may be written."""
    if not text.startswith("$"):
        return (text,)
    steps = read_steps(text)
    if not steps or not isinstance(steps[0], str):
        raise _unreadable(text)
    return steps


def read_steps(path: object) -> Path:
    """Return the steps from a whole JSON text on, which may be an array: ``$``, ``$[0].id``, a key, or a number."""
    if isinstance(path, int):
        return (path,)
    text = str(path)
    if not text.startswith("$"):
        return (text,)
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            break
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        steps += [int(value) if name == "index" else value for name, value in found.items()]
        at = match.end()
    if at < len(text):
        raise _unreadable(text)
    if len(steps) > MAX_STEPS:
        raise NotAllowed(f"A path must have at most {MAX_STEPS} steps; got {len(steps)}.")
    return tuple(steps)


def _unreadable(text: str) -> NotAllowed:
    return NotAllowed(
        f"A path must name a member of an object, as '$.user.id', '$[\"user id\"]' or '$.items[0].price'; got {text!r}."
    )
