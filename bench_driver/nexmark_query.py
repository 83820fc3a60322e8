"""NEXMark's queries by their numbers, with their SQL for Braid and for Flink, from `workloads/nexmark/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "workloads" / "nexmark"
BRAID, FLINK = "braid", "flink"
MILLISECONDS = {"SECOND": 1000, "MINUTE": 60_000, "DAY": 86_400_000}

_SECTION = re.compile(r"^-- q(\d+)\n(.*?);\n", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"/\*(.*?)\*/")
_TIME = re.compile(r"AS (latest|time_\d+)\b")
_STREAM = re.compile(r"\b(?:FROM|JOIN|TABLE) (person|auction|bid)\b|\b(person|auction|bid) \[")
_WINDOW = re.compile(r"(?:RANGE|INTERVAL) '?(\d+)'? (SECOND|MINUTE|DAY)")


@dataclass(frozen=True)
class NexmarkQuery:
    """The query of a number."""

    number: int

    def __post_init__(self) -> None:
        if self.number not in texts(BRAID):
            available = ", ".join(map(str, texts(BRAID)))
            raise ValueError(f"a query of NEXMark must be one of {available}, got {self.number!r}")

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, sorted."""
        names = _STREAM.findall(texts(BRAID)[self.number])
        return tuple(sorted({before or after for before, after in names}))

    @property
    def is_join(self) -> bool:
        """Whether it reads more than one stream."""
        return len(self.streams) > 1

    @property
    def slide_ms(self) -> int:
        """How far its windows are apart: 0 where rows come when they come."""
        window = _WINDOW.search(texts(BRAID)[self.number])
        return 0 if window is None else int(window[1]) * MILLISECONDS[window[2]]

    @property
    def event_times(self) -> tuple[str, ...]:
        """The columns that a probe has for definition 3; none where its rows are not read to see how late they come."""
        names = {name for comment in _COMMENT.findall(texts(BRAID)[self.number]) for name in _TIME.findall(comment)}
        return tuple(sorted(names - {"latest"})) or tuple(names)

    def sql(self, dialect: str, probe: bool) -> str:
        """Return the query; a probe also gives the event times of definition 3."""
        text = texts(dialect).get(self.number) or texts(BRAID)[self.number]
        if dialect == FLINK:  # to which it is a keyword
            text = re.sub(r"\bdateTime\b", "`dateTime`", text)
        return _COMMENT.sub(r"\1" if probe else "", text)


@cache
def texts(dialect: str) -> Mapping[int, str]:
    """Return the queries of a dialect by their numbers; what a probe selects, too, is in comments."""
    text = (FOLDER / f"{dialect}.sql").read_text(encoding="utf-8")
    return {int(number): query for number, query in _SECTION.findall(text)}
