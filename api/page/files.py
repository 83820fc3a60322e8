"""``/`` and ``/page/…``: the page, as files that a browser keeps and asks about again.

Nothing here knows of queries: the page speaks to the other calls, with the key of who looks at it. Its files are the
same for everybody, hold no secret, and may be had without a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# in place of those of other answers (api/http/headers.py)
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class File:
    """A file of the page; ``etag`` changes with what it says."""

    content: bytes
    media_type: str
    etag: str


def _read_all() -> dict[str, File]:
    files_by_name = {}
    for path in resources.files("braid.api.page").joinpath("static").iterdir():
        suffix = f".{path.name.rpartition('.')[2]}"
        if suffix in MEDIA_TYPES:
            content = path.read_bytes()
            files_by_name[path.name] = File(
                content, MEDIA_TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            )
    return files_by_name


FILES = _read_all()
INDEX = "index.html"


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """Show the page to a browser; to anybody else there is nothing here."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)
    response = _answer(FILES[INDEX], request)
    response.headers["Vary"] = "Accept"
    return response


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def file(name: str, request: Request) -> Response:
    """Return a file of the page; 304 when the browser has it."""
    page_file = FILES.get(name)
    if page_file is None:
        raise HTTPException(404)
    return _answer(page_file, request)


def _answer(page_file: File, request: Request) -> Response:
    headers = {**HEADERS, "ETag": page_file.etag}
    known_etags = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if page_file.etag in known_etags or "*" in known_etags:
        return Response(status_code=304, headers=headers)
    return Response(page_file.content, headers=headers, media_type=page_file.media_type)
