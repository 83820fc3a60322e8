"""Result rows as JSON, in the forms of :mod:`braid.sources.formats.json_values`.

Conversion goes column by column, because a page may have 100,000 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from braid.sources.formats.json_values import json_values

PIECE_BYTES = 1 << 20
"""About how many bytes of rows are written out in one go: while that lasts no other thread runs."""


def pieces(table: pa.Table, max_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Yield the rows in pieces that take ``max_bytes`` or less, at most :data:`PIECE_BYTES`, or have one row."""
    max_bytes = min(max_bytes, PIECE_BYTES)
    names = sum(len(name) + 4 for name in table.column_names)
    pending = [table] if table.num_rows else []
    while pending:
        part = pending.pop()
        rows, size = part.num_rows, part.nbytes + part.num_rows * names
        if rows > 1 and size > max_bytes:
            # rows may be of very different sizes: each half is looked at again
            middle = rows // 2
            pending += [part.slice(middle), part.slice(0, middle)]
        else:
            yield part


def objects(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts whose values orjson writes in the forms above."""
    columns = [json_values(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_lines(table: pa.Table) -> list[bytes]:
    """Return each row as one JSON line, newline included."""
    return ndjson(table).splitlines(keepends=True)


def ndjson(table: pa.Table) -> bytes:
    """Return the rows as newline-delimited JSON."""
    rows = objects(table)
    if not rows or not rows[0]:
        return b"{}\n" * len(rows)
    # One call for all rows is ten times faster than one for each. JSON escapes newlines in strings, so each newline
    # here is one that the indentation put: "[\n  {\n    first: 1,\n    second: 2\n  },\n  {\n    …\n  }\n]".
    text = orjson.dumps(rows, option=orjson.OPT_INDENT_2)
    inner = text.removeprefix(b"[\n  {\n    ").removesuffix(b"\n  }\n]")
    return b"{" + inner.replace(b"\n  },\n  {\n    ", b"}\n{").replace(b"\n    ", b" ") + b"}\n"
