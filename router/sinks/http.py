"""POST, and what an answer means for a sink."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from router.sinks.sink import SinkDown, SinkRefused

_LATER = (408, 425, 429)
_SHOWN = 300


def post(
    client: httpx.Client,
    url: str,
    content: bytes,
    headers: Mapping[str, str],
    params: Mapping[str, str] | None = None,
) -> None:
    """Send ``content``; SinkDown when nobody answers or it is asked for later, SinkRefused when it is not taken."""
    try:
        answer = client.post(url, content=content, headers=dict(headers), params=params)
    except (httpx.TransportError, httpx.InvalidURL) as problem:
        raise SinkDown(f"{url} must answer, but: {problem or type(problem).__name__}.") from problem
    if answer.is_success:
        return
    said = f"{url} answered {answer.status_code}: {answer.text[:_SHOWN]!r}."
    if answer.status_code in _LATER or answer.is_server_error:
        raise SinkDown(said, _retry_after(answer))
    raise SinkRefused(said)


def _retry_after(answer: httpx.Response) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
