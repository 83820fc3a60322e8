"""Names of streams, tables and queries: two spellings in Unicode of the same text are one name."""

from __future__ import annotations

import unicodedata


def composed(name: str) -> str:
    """Return the one spelling of a name that is kept (NFC)."""
    return unicodedata.normalize("NFC", name)


def name_key(name: str) -> str:
    """Return what is equal for equal names of streams and tables, whose case does not count."""
    return composed(composed(name).lower())
