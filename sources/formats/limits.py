"""What one body, or one message, may bring at most; each refusal names the limit and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braid.sources.core.errors import MalformedRequest, TooLarge

SHOWN_FAULTS = 3
_NONE = 1 << 62


@dataclass(frozen=True)
class DecodingLimits:
    """Bounds of what is made of one body.

    ``rows`` counts malformed ones too. ``unpacked_bytes`` bounds what a packed body unpacks to, and what its rows take
    as columns of the stream. With more than ``malformed`` malformed rows the body is refused as a whole. ``of`` is what
    they bound, and ``settings`` what the names of the settings begin with, where there are any.
    """

    rows: int = 2_000_000
    unpacked_bytes: int = 256 << 20
    malformed: int = 10_000
    of: str = "body"
    settings: str = ""

    def check_rows(self, rows: int) -> None:
        """Raise TooLarge when there are too many rows."""
        if rows > self.rows:
            raise TooLarge(
                f"A {self.of} must have at most {self.rows} rows{self._setting('rows')}, got {rows} or more. Send it in"
                " parts."
            )

    def check_bytes(self, size: int, part: str = "this one") -> None:
        """Raise TooLarge when something unpacks to too many bytes."""
        if size > self.unpacked_bytes:
            raise TooLarge(
                f"A {self.of} must unpack to at most {self.unpacked_bytes} bytes{self._setting('unpacked_bytes')},"
                f" {part} would take {size} or more. Send it in parts."
            )

    def check_malformed(self, faults: int, details: Sequence[str]) -> None:
        """Raise MalformedRequest when too many rows are malformed; ``details`` are those of the first."""
        if faults > self.malformed:
            raise MalformedRequest(
                f"A {self.of} must have at most {self.malformed} malformed rows{self._setting('malformed')}, got more;"
                f" nothing of it was kept. The first: {'; '.join(details[:SHOWN_FAULTS])}. Correct them, or send the"
                f" {self.of} in parts."
            )

    def _setting(self, name: str) -> str:
        return f" (setting {self.settings}{name})" if self.settings else ""


BODY = DecodingLimits(settings="max_body_")
MESSAGE = DecodingLimits(of="message")
PIECE = DecodingLimits(_NONE, 1 << 30, _NONE, of="piece")
"""Of what was cut to a bounded number of rows before, which may unpack to much nevertheless."""
TEXT_PIECE = DecodingLimits(_NONE, _NONE, _NONE, of="piece")
"""Of text that was cut to a bounded number of bytes before."""
