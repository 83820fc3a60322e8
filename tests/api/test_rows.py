"""Which form of rows an Accept header asks for."""

from __future__ import annotations

import pytest

from braid.api.http.problems import NotAcceptable
from braid.api.routes.rows import ARROW, JSON, NDJSON, negotiate


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("application/json", JSON),
        ("Application/X-NDJSON", NDJSON),
        ("text/html, application/x-ndjson;q=0.5", NDJSON),
        ("application/x-ndjson;q=0.5, application/vnd.apache.arrow.stream", ARROW),
        ("*/*, application/vnd.apache.arrow.stream", ARROW),
        ("application/json;q=0, */*;q=0.1", JSON),
        ("application/x-ndjson;q=x", NDJSON),
    ],
)
def test_accept_chooses_the_form(accept: str | None, form: str) -> None:
    assert negotiate(accept) == form


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*"])
def test_other_forms_are_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="Results come as"):
        negotiate(accept)
