"""CREATE STREAM as text: names in quotes where they need them, and comments where a person reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braid.session.sql.parsing.durations import MICROSECONDS
from braid.session.sql.parsing.tokenizer import RESERVED
from braid.sources.core.schema import ColumnType

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OF_DDL = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "WATERMARK"})
"""Words that begin something else than a column between the brackets."""
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


@dataclass(frozen=True)
class DeclaredColumn:
    """A column to declare; ``lateness_us`` of the event time, ``metadata`` of one that is none of the values'.

    ``source`` is the path of one that is in another, ``computed`` the expression of one that is of others.
    """

    name: str
    type: ColumnType
    comment: str = ""
    lateness_us: int | None = None
    metadata: str = ""
    source: str = ""
    computed: str = ""


def create_stream_text(
    name: str, columns: Sequence[DeclaredColumn], options: Mapping[str, str], comments: Sequence[str]
) -> str:
    """Return the statement, a column a line; ``options`` are those of WITH, ``comments`` stand before it."""
    lines = []
    for number, column in enumerate(columns, 1):
        comma = "," if number < len(columns) else ""
        comment = f"  -- {_one_line(column.comment)}" if column.comment else ""
        lines.append(f"    {_declaration(column)}{comma}{comment}")
    head = "".join(f"-- {_one_line(comment)}\n" for comment in comments)
    with_ = ", ".join(f"{_option(key)} = {quoted_text(value)}" for key, value in options.items())
    return f"{head}CREATE STREAM {quoted_name(name)} (\n" + "\n".join(lines) + f"\n) WITH ({with_});"


def quoted_name(name: str) -> str:
    """Return a name as SQL has it."""
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED | _OF_DDL:
        return name
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def interval_text(us: int) -> str:
    """Return microseconds as an INTERVAL in the largest unit that leaves no fraction."""
    unit = next(unit for unit in _UNITS if us % MICROSECONDS[unit] == 0 and (us or unit == "SECOND"))
    return f"INTERVAL '{us // MICROSECONDS[unit]}' {unit}"


def _declaration(column: DeclaredColumn) -> str:
    metadata = f" METADATA FROM {quoted_text(column.metadata)}" if column.metadata else ""
    source = f" FROM {quoted_text(column.source)}" if column.source else ""
    lateness = "" if column.lateness_us is None else f" LATENESS {interval_text(column.lateness_us)}"
    type_ = f"AS {column.computed}" if column.computed else column.type
    return f"{quoted_name(column.name)} {type_}{metadata}{source}{lateness}"


def _option(key: str) -> str:
    return key if _PLAIN.fullmatch(key) and key.upper() not in RESERVED else quoted_text(key)


def _one_line(comment: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in comment).split())
