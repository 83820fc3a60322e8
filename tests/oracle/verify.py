"""Hold all that a driver observed against the contract; complaints name query, rows and times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tests.oracle.changes import fold
from tests.oracle.compare import check_late, check_window_order, match_rows
from tests.oracle.driver import Driver, Json, Registered
from tests.oracle.model import SEQUENCE, Aggregation, micros
from tests.oracle.recompute import Life, Recompute
from tests.oracle.wire import WireError, decode_row, parse_time

SHOWN_COMPLAINTS = 5


def verify(driver: Driver) -> None:
    """Check a finished driver's stream and every query of it.

    Raises:
        AssertionError: with the first complaints, each with its query and the first rows that differ.
    """
    complaints = check_stream(driver)
    with Recompute(driver.schema, driver.tuples, driver.late) as recompute:
        for registered in driver.queries:
            complaints += check_query(driver, registered, recompute)
    if complaints:
        text = "\n\n".join(complaints[:SHOWN_COMPLAINTS])
        raise AssertionError(
            f"{len(complaints)} complaints about stream {driver.stream}, {len(driver.tuples)} tuples, "
            f"{len(driver.late)} late, {len(driver.queries)} queries\n{driver.schema.sql(driver.stream)}\n\n{text}"
        )


def check_stream(driver: Driver) -> list[str]:
    """Check which tuples were late, and the stream's clock, watermark and counters."""
    complaints = []
    complaint = check_late(driver.schema, driver.pushes, driver.late)
    if complaint is not None:
        complaints.append(complaint)
    unknown = driver.late - {row[SEQUENCE] for row in driver.tuples}
    if unknown:
        complaints.append(f"dead letters must be tuples that were pushed, got {SEQUENCE} {sorted(unknown)[:5]}")
    info = driver.info
    if info["late"] != len(driver.late):
        complaints.append(f"late must count the {len(driver.late)} dead letters, got {info['late']!r}")
    clock, watermark = micros(parse_time(info["clock"])), micros(parse_time(info["watermark"]))
    if clock != driver.newest:
        complaints.append(f"clock must be the greatest event time {driver.newest}, got {info['clock']!r}")
    if watermark != clock - driver.schema.lateness:
        complaints.append(f"watermark must be clock - {driver.schema.lateness} us, got {info!r}")
    return complaints


def check_query(driver: Driver, registered: Registered, recompute: Recompute) -> list[str]:
    """Check one query: when it was active, the form and order of its rows, and their values."""
    query, schema = registered.query, driver.schema
    heading = f"query {registered.id} slot {registered.info['slot']}: {query.sql(driver.stream, schema)}\n  "
    try:
        lives = registered.lives(driver.stream)
    except ValueError as error:
        return [f"{heading}active_from and active_to are not as the contract says: {error}"]
    complaints = [check_lives(driver, registered, lives)]
    if registered.followed and registered.followed != registered.rows[: len(registered.followed)]:
        complaints.append("the pages read while it ran must be the first rows of all it answered, they are not")
    output = query.output(schema)
    changelog = registered.emits_changes
    try:
        rows_left = folded(registered, lives) if changelog else registered.rows
        rows = [decode_row(output, row) for row in rows_left]
    except WireError as error:
        complaints.append(f"a row is not as the contract says: {error}")
    else:
        watermark = parse_time(driver.info["watermark"])
        expected = [row for life in lives for row in recompute.rows(query, life, watermark)]
        complaints.append(match_rows(output, expected, rows))
        if isinstance(query, Aggregation) and not changelog:
            complaints.append(check_window_order(rows))
    lives_text = "; ".join(map(str, lives))
    return [f"{heading}{lives_text}\n  {complaint}" for complaint in complaints if complaint is not None]


def folded(registered: Registered, lives: Sequence[Life]) -> list[Json]:
    """Return the rows that a changelog leaves, which begins anew each time the query is deployed.

    What was told of windows that will not be final stays as it is, and is left out here.
    """
    ends = [*registered.marks, len(registered.rows)]
    rows = []
    for life, (begin, end) in zip(lives, pairwise([0, *ends]), strict=True):
        rows_left = fold(registered.rows[begin:end])
        rows += [row for row in rows_left if life.active_to is None or parse_time(row["window_end"]) <= life.active_to]
    return rows


def check_lives(driver: Driver, registered: Registered, lives: Sequence[Life]) -> str | None:
    """Check that what a query saw follows each other, and what it replaced."""
    for earlier, later in pairwise(lives):
        if earlier.active_to is not None and (later.active_from is None or later.active_from < earlier.active_to):
            return f"active_from must be at least the active_to before, got {earlier} and {later}"
    if registered.ran_on is not None and lives:
        replaced_until = registered.ran_on.lives(driver.stream)[-1].active_to
        if replaced_until != lives[0].active_from:
            return f"active_from must be the active_to of {registered.ran_on.id}, which it replaced: {replaced_until}"
    return check_life(driver, registered, lives[0]) if lives else None


def check_life(driver: Driver, registered: Registered, life: Life) -> str | None:
    """Check `active_from` and `active_to` against what was known around creation and deletion."""
    times = {row[driver.schema.event_time] for row in driver.tuples}
    for name, time in (("active_from", life.active_from), ("active_to", life.active_to)):
        if time is not None and time not in times:
            return f"{name} must be the event time of some tuple, got {time.isoformat()}"
    active_from = None if life.active_from is None else micros(life.active_from)
    before, after = registered.clock_before, registered.newest_after
    if before is not None and (active_from is None or active_from < before):
        return f"active_from must be at least the clock {before} reported before creation, got {active_from}"
    if active_from is not None and (after is None or active_from > after):
        return f"active_from must be at most {after}, the newest pushed when it ran, got {active_from}"
    return None
