"""What text formats have in common."""

from __future__ import annotations

import numpy as np

NEWLINE = ord("\n")
MARK = b"\xef\xbb\xbf"  # some programs begin UTF-8 with it


def line_ends(text: bytes) -> np.ndarray:
    """Return the positions after the newlines of ``text``; ascending int64."""
    return np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE) + 1


def is_utf8(text: bytes) -> bool:
    """Whether a text is UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
