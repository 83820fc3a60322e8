"""Acts of clocks: that of the service's processes goes ahead and back, while that of the machine stays as it is.

All processes of the service jump at once: its Spark driver, the JVM, the planner, the workers, the deliverers. The acts
ask the service and its planner what time it is, so a clock that does not move is an error.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from tests.chaos.arena import RECOVERY_SECONDS, Act, Arena
from tests.kit.client import idempotency_key
from tests.kit.waiting import wait_until

BASE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HOUR_SECONDS = 3600
MINUTE = dt.timedelta(minutes=1)


def the_clock_jumps_while_a_query_drains(arena: Arena) -> None:
    """The clock goes an hour ahead and back while a deleted query waits for what may still come: it sees that."""
    stream = arena.stream()
    query = arena.running(f"SELECT v FROM {stream}")
    if query is None:
        return
    _push_read(arena, stream, range(5))
    arena.until_done("DELETE", f"/queries/{query}?drain=true")
    wait_until(
        lambda: None not in arena.answered(f"/queries/{query}").json()["active_to"].values(),
        RECOVERY_SECONDS,
        f"{query} drains",
    )
    seen = [0, 1, 2, 3, 4]
    for seconds in (HOUR_SECONDS, _back(arena)):
        _jump(arena, stream, seconds)
        _push_read(arena, stream, [4])
        seen.append(4)
        _wait_rows(arena, query, [{"v": v} for v in seen])


def the_clock_jumps_while_changes_are_due(arena: Arena) -> None:
    """The clock goes ahead and back under a query that emits a second after a change: no change waits for an hour."""
    stream = arena.stream()
    query = arena.running(f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 HOUR] EMIT AFTER DELAY 1 SECONDS")
    if query is None:
        return
    for count in range(1, 5):
        _push_read(arena, stream, [count])
        wait_until(
            lambda count=count: _rows(arena, query)[-1:] == [{"n": count}],  # type: ignore[misc]
            RECOVERY_SECONDS,
            lambda: f"{query} emits its changes, it has {_rows(arena, query)}",
        )
        _jump(arena, stream, HOUR_SECONDS if count % 2 else _back(arena))


def the_clock_jumps_while_a_joined_stream_is_silent(arena: Arena) -> None:
    """The clock goes an hour ahead, and back, which is no silence of an hour: what a stream then brings is not late."""
    left, right = (arena.stream(options=", idle_timeout = '20 min'") for _ in range(2))
    windows = f"{left} [RANGE 10 SECONDS] AS l, {right} [RANGE 10 SECONDS] AS r"
    query = arena.running(f"SELECT l.v AS a, r.v AS b FROM {windows} WHERE l.v = r.v")
    if query is None:
        return
    for stream in (left, right):
        _push_read(arena, stream, range(3))
    _jump(arena, left, HOUR_SECONDS)
    _push_read(arena, left, [3, 20])
    _jump(arena, left, _back(arena))
    _push_read(arena, right, [3, 20])
    _wait_rows(arena, query, [{"a": v, "b": v} for v in range(4)])


def _back(arena: Arena) -> int:
    """Return how far the clock goes back: less than an hour, so that the next jump is ahead of all times before."""
    return -60 * arena.rng.randint(1, 50)


def _jump(arena: Arena, stream: str, seconds: int) -> None:
    """Let the clock jump, and register a query by the time that it then is: the service and the planner know it."""
    clock = arena.service.clock
    assert clock is not None, "where no clock can be moved, there are no acts of clocks"
    clock.jump(seconds)
    began = clock.now()
    query = arena.running(f"SELECT v FROM {stream} WHERE v < 0")
    if query is None:
        return
    described = arena.answered(f"/queries/{query}").json()
    created, deployed = (dt.datetime.fromisoformat(described[name]) for name in ("created_at", "deployed_at"))
    ended = clock.now()
    assert began - MINUTE < created < ended + MINUTE, f"{query} must be created from {began} to {ended}, got {created}"
    # processing time does not go back with the clock
    assert began - MINUTE < deployed, f"{query} must be deployed after {began}, got {deployed}"


def _push_read(arena: Arena, stream: str, seconds: Sequence[int]) -> None:
    """Push a tuple for each of these seconds, which is its value, and wait until the job has read them."""
    times = {v: (BASE + dt.timedelta(seconds=v)).isoformat() for v in seconds}
    lines = "\n".join(json.dumps({"v": v, "time": time}) for v, time in times.items())
    newest, headers = max(times.values()), {"Content-Type": "application/x-ndjson", **idempotency_key()}

    def is_pushed() -> bool:
        answer = arena.ask("POST", f"/streams/{stream}/events", content=lines.encode(), headers=headers)
        if answer is None or answer.status_code in (429, 503):
            return False
        assert answer.status_code == 200, answer.text
        return True

    wait_until(is_pushed, RECOVERY_SECONDS, f"a push into {stream} is taken")

    def is_read() -> bool:
        clock = arena.answered(f"/streams/{stream}").json()["clock"]
        return clock is not None and dt.datetime.fromisoformat(clock) >= dt.datetime.fromisoformat(newest)

    wait_until(is_read, RECOVERY_SECONDS, f"{stream} is read up to {newest}")


def _rows(arena: Arena, query: str) -> list[dict[str, object]]:
    """Return the rows of a query without the times of their windows and what they do to a changelog."""
    rows = arena.answered(f"/queries/{query}/results?limit=1000").json()["rows"]
    return [{name: value for name, value in row.items() if name in ("v", "n", "a", "b")} for row in rows]


def _wait_rows(arena: Arena, query: str, expected: list[dict[str, object]]) -> None:
    wait_until(
        lambda: sorted(_rows(arena, query), key=str) == expected,
        RECOVERY_SECONDS,
        lambda: f"{query} answers {expected}, it has {_rows(arena, query)}",
    )


CLOCKS: tuple[Act, ...] = (
    the_clock_jumps_while_a_query_drains,
    the_clock_jumps_while_changes_are_due,
    the_clock_jumps_while_a_joined_stream_is_silent,
)
