"""Bytes that are no text, as text for dead letters."""

from __future__ import annotations

import base64


def show_bytes(value: bytes | None) -> str:
    """Return bytes in base 64."""
    return base64.b64encode(value or b"").decode()
