"""``/docs``: every call, to read and to try out. All of the page comes from here, nothing from other hosts."""

from __future__ import annotations

from importlib.resources import as_file, files

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from braid.sources.core.errors import UnknownObject

router = APIRouter(include_in_schema=False)

_PACKAGE = "fastapi_offline"  # it holds the files of Swagger UI; its code is not used
_TYPES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Braid: calls</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""


@router.get("/docs")
async def docs() -> Response:
    """Show the page."""
    return Response(_PAGE, media_type="text/html")


@router.get("/docs/start.js")
async def start() -> Response:
    """Return what starts the page."""
    return Response(_START, media_type="text/javascript")


@router.get("/docs/{file}")
async def asset(file: str) -> Response:
    """Return a file of Swagger UI."""
    if file not in _TYPES:
        raise UnknownObject(f"There is no '/docs/{file}' here; /docs lists all calls.")
    with as_file(files(_PACKAGE) / "static" / file) as path:
        return FileResponse(path, media_type=_TYPES[file], headers={"Cache-Control": "max-age=3600"})
