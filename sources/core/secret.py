"""Secrets by reference: what is kept and shown names a secret, whose value stands in the environment of the service.

``secret:kafka_password`` is what ``BRAID_SECRET_KAFKA_PASSWORD`` holds there. A newline at its end, which files and
``echo`` add, is not part of it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping

from braid.sources.core.errors import NotAllowed, NotReady

PREFIX = "secret:"
VARIABLE = "BRAID_SECRET_"
_NAME = re.compile(r"[a-z0-9_]+", re.IGNORECASE)
_NO_TEXT = ("Cc", "Cs")  # control characters, and bytes that are no UTF-8


def check_secrets(options: Mapping[str, str], secrets: tuple[str, ...], prefix: str = "") -> None:
    """Check options some of which hold ``secrets``; NotAllowed for one that is not a reference, or not a good one.

    ``prefix`` is put before their names in what is said.
    """
    for name, value in options.items():
        if name in secrets and not is_reference(value):
            raise NotAllowed(
                f"Option '{prefix}{name}' must be a reference, so that the secret is not kept: '{PREFIX}NAME', with"
                f" the secret in the environment of the service as {VARIABLE}NAME."
            )
        if is_reference(value) and not _NAME.fullmatch(value.removeprefix(PREFIX)):
            raise NotAllowed(f"Option '{prefix}{name}' must be '{PREFIX}' and a name of letters, digits and _.")


def is_reference(value: str) -> bool:
    """Whether a text refers to a secret, rightly or not."""
    return value.startswith(PREFIX)


def reveal(value: str, *, lines: bool = False) -> str:
    """Return ``value``, or what it refers to.

    NotReady names a secret that is not there, or has control characters; newlines are none with ``lines``, as in PEM.
    """
    if not is_reference(value):
        return value
    name = value.removeprefix(PREFIX)
    variable = VARIABLE + name.upper()
    secret = os.environ.get(variable)
    if secret is None:
        raise NotReady(f"The secret {name!r} must be in the environment of the service as {variable}; it is not.")
    secret = secret.removesuffix("\n").removesuffix("\r")
    if any(unicodedata.category(character) in _NO_TEXT and not (lines and character in "\r\n") for character in secret):
        raise NotReady(
            f"The secret {name!r} must be a text without control characters; {variable} in the environment of the"
            " service has some."
        )
    return secret


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with ``***`` where it has a secret."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
