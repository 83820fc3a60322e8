"""Names of streams, tables and queries: two spellings in Unicode of the same text are one name."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


def composed(name: str) -> str:
    """Return the one spelling of a name that is kept (NFC)."""
    return unicodedata.normalize("NFC", name)


def name_key(name: str) -> str:
    """Return what is equal for equal names of streams and tables, whose case does not count."""
    return composed(composed(name).lower())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that a mistyped one is like, nothing where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" Did you mean {close[0]!r}?" if close else ""
