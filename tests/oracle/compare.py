"""Compare answered rows with recomputed ones, and the late tuples with what the contract decides."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tests.oracle.model import SEQUENCE, Kind, Row, StreamSchema, Value, micros

RELATIVE_TOLERANCE = 1e-9
SHOWN = 5


def match_rows(output: Mapping[str, Kind], expected: Sequence[Row], actual: Sequence[Row]) -> str | None:
    """Match rows as multisets; return None when equal, else the first rows that differ.

    DOUBLE values match within a relative 1e-9, everything else exactly.
    """
    doubles = [name for name, kind in output.items() if kind is Kind.DOUBLE]
    exact = [name for name in output if name not in doubles]
    missing: dict[tuple[Value, ...], list[Row]] = defaultdict(list)
    for row in expected:
        missing[tuple(row[name] for name in exact)].append(row)
    surplus: list[Row] = []
    for row in actual:
        candidates = missing.get(tuple(row[name] for name in exact), [])
        for index, candidate in enumerate(candidates):
            if all(_close(candidate[name], row[name]) for name in doubles):
                candidates[index] = candidates[-1]
                candidates.pop()
                break
        else:
            surplus.append(row)
    lacking = [row for rows in missing.values() for row in rows]
    if not lacking and not surplus:
        return None
    return (
        f"{len(expected)} rows must come, got {len(actual)}: {len(lacking)} missing, {len(surplus)} too many"
        f"\n  missing:  {_show(lacking)}\n  too many: {_show(surplus)}"
    )


def _close(expected: Value, actual: Value) -> bool:
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return math.isclose(expected, actual, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.0)
    return expected is actual  # both NULL


def _show(rows: Sequence[Row]) -> str:
    if not rows:
        return "none"
    ordered = sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row.values()])
    omission = f"\n            … and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return "\n            ".join(_text(row) for row in ordered[:SHOWN]) + omission


def _text(row: Row) -> str:
    parts = (value.isoformat() if isinstance(value, dt.datetime) else repr(value) for value in row.values())
    return ", ".join(f"{name}={text}" for name, text in zip(row, parts, strict=True))


def check_window_order(rows: Sequence[Row]) -> str | None:
    """Check that windowed rows come in window order; return the first place where they do not."""
    last: Row | None = None
    for position, row in enumerate(rows):
        if last is not None and (row["window_end"], row["window_start"]) < (
            last["window_end"],
            last["window_start"],
        ):
            return f"rows must come in window order, row {position} has {_text(row)} after {_text(last)}"
        last = row
    return None


@dataclass(frozen=True)
class Pushed:
    """One push as the test knows it: its tuples, and the watermark the service reported before (or None)."""

    tuples: tuple[Row, ...]
    watermark_before: dt.datetime | None = None


def check_late(schema: StreamSchema, pushes: Sequence[Pushed], late: Collection[int]) -> str | None:
    """Check the late tuples where the contract decides without knowing the batches; return a complaint.

    A tuple at or above the greatest event time pushed up to and including it, minus the lateness, is never
    late, whatever the batches were; one below a watermark that was reported before it was pushed always is.
    """
    greatest: int | None = None
    for number, push in enumerate(pushes):
        for row in push.tuples:
            value = row[schema.event_time]
            assert isinstance(value, dt.datetime)
            time = micros(value)
            greatest = time if greatest is None else max(greatest, time)
            is_late = row[SEQUENCE] in late
            if is_late and time >= greatest - schema.lateness:
                return f"push {number}: must not be late, it is at or above every possible watermark: {_text(row)}"
            if not is_late and push.watermark_before is not None and time < micros(push.watermark_before):
                return (
                    f"push {number}: must be late, the watermark was {push.watermark_before.isoformat()} "
                    f"before it was pushed: {_text(row)}"
                )
    return None
