"""Secrets by reference: what is kept and shown names a secret, whose value stands in the environment of the service.

``secret:kafka_password`` is what ``BRAID_SECRET_KAFKA_PASSWORD`` holds there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from sources.errors import NotAllowed, NotReady

PREFIX = "secret:"
VARIABLE = "BRAID_SECRET_"
_NAME = re.compile(r"[a-z0-9_]+", re.IGNORECASE)


def check_secrets(options: Mapping[str, str], secrets: tuple[str, ...], shown: str = "") -> None:
    """Check options some of which hold ``secrets``; NotAllowed for one that is not a reference, or not a good one.

    ``shown`` is put before their names in what is said.
    """
    for name, value in options.items():
        if name in secrets and not value.startswith(PREFIX):
            raise NotAllowed(
                f"Option '{shown}{name}' must be a reference, so that the secret is not kept: '{PREFIX}NAME', with"
                f" the secret in the environment of the service as {VARIABLE}NAME."
            )
        if value.startswith(PREFIX) and not _NAME.fullmatch(value.removeprefix(PREFIX)):
            raise NotAllowed(f"Option '{shown}{name}' must be '{PREFIX}' and a name of letters, digits and _.")


def reveal(value: str) -> str:
    """Return ``value``, or what it refers to; NotReady names a secret that is not there."""
    if not value.startswith(PREFIX):
        return value
    name = value.removeprefix(PREFIX)
    variable = VARIABLE + name.upper()
    found = os.environ.get(variable)
    if found is None:
        raise NotReady(f"The secret {name!r} must be in the environment of the service as {variable}; it is not.")
    return found
