"""Figures as aligned text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

# a load above this share of the cores, before anything is measured, spoils the figures
BUSY = 0.25


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Return rows as aligned text; the first is the header, the columns not in `left` are right-aligned."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def two_decimals(seconds: float | None) -> str:
    """Return seconds with unit, a dash for None."""
    return "-" if seconds is None else f"{seconds:.2f} s"


def count(value: float | None) -> str:
    """Return a whole number with separators, a dash for None."""
    return "-" if value is None else f"{value:,.0f}"


def figures(report: Mapping[str, Any]) -> str:
    """Return figures as lines of name and value, those of a part under its name; numbers have four digits."""
    lines = list(_figures(report, ""))
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines)


def _figures(report: Mapping[str, Any], outer: str) -> Iterator[tuple[str, str]]:
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{outer}{name} ")
        else:
            yield outer + name.replace("_", " "), ", ".join(map(_figure, value if isinstance(value, list) else [value]))


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
