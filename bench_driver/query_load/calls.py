"""REST calls for many threads of one process: they cost little, because the machine is shared with what is measured."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import urlencode, urlsplit

WAIT_SECONDS = 30
NETWORK_TIMEOUT_SECONDS = WAIT_SECONDS + 30.0
PAGE = 1000
BUSY = (0, 429, 503)  # nobody answers, or the service asks to come again


@dataclass(frozen=True)
class CallAnswer:
    """What the service answered; the status is 0 when nobody did."""

    status: int
    body: bytes = b""
    headers: Message = field(default_factory=Message)

    @property
    def retry_after(self) -> float | None:
        """The seconds that the service asks to wait; None when it does not say."""
        text = self.headers.get("Retry-After", "")
        return float(text) if text.isdecimal() else None

    @property
    def reason(self) -> str:
        """The service's own words of a refusal."""
        try:
            problem = json.loads(self.body)
            return f"{self.status} {problem['title']}: {problem['detail']}"
        except (ValueError, KeyError, TypeError):
            return f"{self.status} {self.body.decode(errors='replace')[:200]}"


class ServiceCalls:
    """Calls of the service at a URL."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        # the one used last is taken first, so few grow cold and none is closed under a request
        self._connections: list[http.client.HTTPConnection] = []

    def ask(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> CallAnswer:
        """Send a request and return the answer."""
        try:
            connection = self._connections.pop()
        except IndexError:
            assert self._address.hostname is not None
            connection = http.client.HTTPConnection(
                self._address.hostname, self._address.port, timeout=NETWORK_TIMEOUT_SECONDS
            )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            answer = CallAnswer(response.status, response.read(), response.headers)
        except (OSError, http.client.HTTPException):
            connection.close()
            return CallAnswer(0)
        self._connections.append(connection)
        return answer

    def queries(self, state: str, label: str | None = None) -> list[dict[str, Any]] | None:
        """Return the queries in a state, with a label where one is given; None when the service is busy."""
        parameters = {"state": state, "limit": PAGE} | ({} if label is None else {"label": label})
        queries: list[dict[str, Any]] = []
        while True:
            answer = self.ask("GET", f"/queries?{urlencode(parameters)}")
            if answer.status != 200:
                return None
            page = json.loads(answer.body)
            queries += page["queries"]
            if page["cursor"] is None:
                return queries
            parameters["cursor"] = page["cursor"]
