"""Fold a changelog, as a reader of EMIT STREAM would, into the rows that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.wire import WireError, parse_time

Json = dict[str, Any]
COLUMNS = ("_op", "_ptime", "_ver")


def fold(changes: Sequence[Json]) -> list[Json]:
    """Return the rows that are left, in no order, without the columns of a change.

    Raises:
        WireError: for a retraction of a row that is not there, and for processing times that go back.
    """
    rows_left: dict[tuple[Any, ...], list[Json]] = {}
    newest = None
    for change in changes:
        missing = [name for name in COLUMNS if name not in change]
        if missing:
            raise WireError(f"a change must have the columns {COLUMNS}, {missing} are missing in {change!r}")
        time = parse_time(change["_ptime"])
        if newest is not None and time < newest:
            raise WireError(f"processing time must not go back, {change!r} came after {newest.isoformat()}")
        newest = time
        row = {name: value for name, value in change.items() if name not in COLUMNS}
        rows = rows_left.setdefault(tuple(row.values()), [])
        if change["_op"] == "insert":
            rows.append(row)
        elif change["_op"] == "retract" and rows:
            rows.pop()
        else:
            raise WireError(f"a change must insert a row or retract one that is there, got {change!r}")
    return [row for rows in rows_left.values() for row in rows]
