"""The forms that result rows may be asked for in: JSON, NDJSON or an Arrow stream."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa

from braid.api.http.problems import NotAcceptable
from braid.router.page import Gap, Page
from braid.router.row_text import ndjson, objects, pieces

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
FORMS = (JSON, NDJSON, ARROW)


def negotiate(accept: str | None) -> str:
    """Return the form that an Accept header prefers; NotAcceptable when it wants none of ours."""
    best: tuple[float, int] | None = None
    chosen = JSON
    for part in (accept or "*/*").split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        is_exact = media_type in FORMS
        if quality <= 0 or not (is_exact or media_type in ("*/*", "application/*", "")):
            continue
        rank = (quality, 1 if is_exact else 0)
        if best is None or rank > best:
            best, chosen = rank, media_type if is_exact else JSON
    if best is None:
        raise NotAcceptable(f"Results come as {', '.join(FORMS)}; the Accept header asks for {accept!r}.")
    return chosen


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def written(form: str, page: Page, max_bytes: int) -> tuple[Page, list[bytes]]:
    """Return rows of a page as a form has them, and the page of these rows; see :func:`in_pieces`."""
    if form == ARROW:
        return page, [arrow_stream(page.table)]
    return in_pieces(page, max_bytes, ndjson if form == NDJSON else _json)


def _json(table: pa.Table) -> bytes:
    return orjson.dumps(objects(table))[1:-1]


def in_pieces(page: Page, max_bytes: int, write: Callable[[pa.Table], bytes]) -> tuple[Page, list[bytes]]:
    """Return the text of a page's rows as ``write`` has it, in pieces, and the page of these rows.

    That is a shorter page where the text gets longer than ``max_bytes``; one row at least is written.
    """
    parts: list[bytes] = []
    rows = size = 0
    for piece in pieces(page.table, max_bytes):
        if size >= max_bytes:
            return page.first(rows), parts
        parts.append(write(piece))
        rows, size = rows + piece.num_rows, size + len(parts[-1])
    return page, parts


def json_page(parts: list[bytes], cursor: str, end: bool | None = None, gap: Gap | None = None) -> bytes:
    """Return a page in JSON, given its rows as :func:`written` gives them."""
    rest: dict[str, Any] = {"cursor": cursor}
    if end is not None:
        rest["end"] = end
    if gap is not None:
        rest["gap"] = gap.to_json()
    return b'{"rows":[%b],%b' % (b",".join(parts), orjson.dumps(rest)[1:])


def arrow_stream(table: pa.Table) -> bytes:
    """Return the rows as an Arrow IPC stream; no rows still carry the schema."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
