"""Windows of event time, and when the rows of a window come. Times are integers, microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from braid.sources.core.errors import NotAllowed


@dataclass(frozen=True)
class Window:
    """Windows ``[k·slide + offset, k·slide + offset + size)`` for all whole k; tumbling when slide = size.

    All microseconds. Aligned to 1970-01-01T00:00:00Z plus the offset.
    """

    size_us: int
    slide_us: int
    offset_us: int = 0

    is_session: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.size_us <= 0 or self.slide_us <= 0:
            raise NotAllowed(
                "A window's size and slide must be above zero;"
                f" got size {self.size_us} and slide {self.slide_us} microseconds."
            )

    @property
    def order(self) -> tuple[int, ...]:
        """What sorts windows: shortest first, sessions last."""
        return (0, self.size_us, self.slide_us, self.offset_us)

    @property
    def ends_per_second(self) -> float:
        """How many of them end in a second of event time."""
        return 1e6 / self.slide_us

    @property
    def reach_us(self) -> int:
        """How long after a tuple the last window ends that it is in (µs), as long as no other tuple comes."""
        return self.size_us

    @property
    def longest_us(self) -> int:
        """How long they are at most (µs); 0 for sessions, which may be of any length."""
        return self.size_us

    def last_end(self, us: int) -> int:
        """Return the end of the last window that a tuple is in (µs)."""
        return us - (us - self.offset_us) % self.slide_us + self.size_us

    def described(self) -> dict[str, Any]:
        """Return the window in seconds, as people read it."""
        return {
            "kind": "tumbling" if self.slide_us == self.size_us else "hopping",
            "size_seconds": self.size_us / 1e6,
            "slide_seconds": self.slide_us / 1e6,
            "offset_seconds": self.offset_us / 1e6,
        }

    def to_json(self) -> list[int]:
        """Return ``[size, slide, offset]``."""
        return [self.size_us, self.slide_us, self.offset_us]


@dataclass(frozen=True)
class SessionWindow:
    """Windows ``[first tuple, last tuple + gap)`` of the tuples of one group, while less than ``gap`` apart.

    Microseconds. Each GROUP BY key has sessions of its own. The end is exclusive, as with other windows: a tuple at
    exactly ``last tuple + gap`` begins the next session.
    """

    gap_us: int

    is_session: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.gap_us <= 0:
            raise NotAllowed(f"A session's gap must be above zero; got {self.gap_us} microseconds.")

    @property
    def order(self) -> tuple[int, ...]:
        """What sorts windows: after all that are not sessions, the shortest gap first."""
        return (1, self.gap_us)

    @property
    def ends_per_second(self) -> float:
        """How many end in a second of event time is not known: none is counted."""
        return 0.0

    @property
    def reach_us(self) -> int:
        """How long after a tuple its session ends (µs), as long as no other tuple comes."""
        return self.gap_us

    @property
    def longest_us(self) -> int:
        """A session may be of any length: nothing is known of it."""
        return 0

    def last_end(self, us: int) -> int:
        """Return where the session of a tuple ends (µs), as long as no other tuple comes."""
        return us + self.gap_us

    def described(self) -> dict[str, Any]:
        """Return the window in seconds, as people read it."""
        return {"kind": "session", "gap_seconds": self.gap_us / 1e6}

    def to_json(self) -> dict[str, int]:
        """Return ``{"gap": gap}``; the JSON of a :class:`Window` is a list."""
        return {"gap": self.gap_us}


@dataclass(frozen=True)
class RowWindow:
    """The windows that rows are of, and the names of the columns that are their starts and their ends."""

    window: Window
    starts: frozenset[str]
    ends: frozenset[str]

    def to_json(self) -> list[Any]:
        """Return ``[window, starts, ends]``."""
        return [self.window.to_json(), sorted(self.starts), sorted(self.ends)]

    @classmethod
    def from_json(cls, value: list[Any]) -> RowWindow:
        """Read what :meth:`to_json` wrote."""
        window, starts, ends = value
        return cls(Window(*window), frozenset(starts), frozenset(ends))


def sliding(window: Window | SessionWindow | None) -> Window | None:
    """Return a window whose bounds are at fixed times, also a tumbling one; None for sessions, and for none."""
    return window if isinstance(window, Window) else None


def window_from_json(value: list[int] | dict[str, int]) -> Window | SessionWindow:
    """Read what ``to_json`` of a window wrote."""
    return SessionWindow(value["gap"]) if isinstance(value, dict) else Window(*value)


@dataclass(frozen=True)
class Emit:
    """How and when the rows of a window come (One SQL to Rule Them All, section 6.5).

    ``stream``: as a changelog of their changes, else as plain rows. ``after_watermark``: once they are final.
    ``delay_us``: with this period in microseconds from their first change on. With both, early rows come with the
    period and one comes when the window is final; with neither, every change comes, which takes ``stream``.
    """

    stream: bool = False
    after_watermark: bool = True
    delay_us: int | None = None

    def __post_init__(self) -> None:
        if not (self.stream or self.after_watermark or self.delay_us is not None):
            raise NotAllowed("EMIT must say one of STREAM, AFTER WATERMARK and AFTER DELAY; got none.")
        if self.delay_us is not None and self.delay_us <= 0:
            raise NotAllowed(
                f"The delay of EMIT must be above zero; got {self.delay_us} microseconds."
                " Write EMIT STREAM without AFTER DELAY to get every change."
            )

    @property
    def form(self) -> str:
        """The SQL that asks for it, without the interval: ``EMIT STREAM AFTER DELAY AND AFTER WATERMARK``."""
        moments = ["AFTER DELAY"] * (self.delay_us is not None) + ["AFTER WATERMARK"] * self.after_watermark
        return " ".join(["EMIT", *["STREAM"] * self.stream, *([" AND ".join(moments)] if moments else [])])

    @property
    def unreadable(self) -> str | None:
        """Why no other query can read such rows, and what to write; None where one can."""
        if self.delay_us is not None and not self.stream:
            return (
                f"Rows of {self.form} replace earlier ones without saying which, so no query can read them;"
                " write EMIT STREAM AFTER DELAY … AND AFTER WATERMARK, which retracts the earlier ones."
            )
        if self.delay_us is not None and not self.after_watermark:
            return (
                f"Rows of {self.form} may come after their window is final, too late for a query that reads them;"
                " write AND AFTER WATERMARK after the delay."
            )
        return None

    def to_json(self) -> list[Any]:
        """Return ``[stream, after watermark, delay or null]``."""
        return [self.stream, self.after_watermark, self.delay_us]


EMIT_AFTER_WATERMARK = Emit()
