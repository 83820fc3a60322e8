"""What one body, or one message, may bring at most; each refusal names the limit and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from sources.errors import MalformedRequest, TooLarge

SHOWN_FAULTS = 3


@dataclass(frozen=True)
class Limits:
    """Bounds of what is made of one body; the service has a setting for each, ``max_body_`` before its name.

    ``rows`` counts malformed ones too. ``unpacked_bytes`` bounds what a packed body unpacks to, and what its rows take
    as columns of the stream. With more than ``malformed`` malformed rows the body is refused as a whole.
    """

    rows: int = 2_000_000
    unpacked_bytes: int = 256 << 20
    malformed: int = 100_000

    def check_rows(self, rows: int) -> None:
        """Raise TooLarge when there are too many rows."""
        if rows > self.rows:
            raise TooLarge(
                f"A body must have at most {self.rows} rows (setting max_body_rows), got {rows} or more."
                " Send it in parts."
            )

    def check_bytes(self, size: int) -> None:
        """Raise TooLarge when something unpacks to too many bytes."""
        if size > self.unpacked_bytes:
            raise TooLarge(
                f"A body must unpack to at most {self.unpacked_bytes} bytes (setting max_body_unpacked_bytes), got"
                f" {size} or more. Send it in parts."
            )

    def check_malformed(self, faults: int, details: list[str]) -> None:
        """Raise MalformedRequest when too many rows are malformed; ``details`` are those of the first."""
        if faults > self.malformed:
            raise MalformedRequest(
                f"A body must have at most {self.malformed} malformed rows (setting max_body_malformed), got more;"
                f" nothing of it was kept. The first: {'; '.join(details[:SHOWN_FAULTS])}. Correct them, or send the"
                " body in parts."
            )


DEFAULT = Limits()
