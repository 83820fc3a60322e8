"""Why a query that has no row yet has none, and when the next window of one with rows ends, by its record and by how
far its streams are.

It is worked out when somebody asks. Only totals of streams are kept, so some answers name two possible causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from braid.operators.derived import queries_behind
from braid.operators.event_times import ENDED
from braid.operators.windows import SessionWindow, Window, sliding
from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState
from braid.session.state.query_record import CATCHING_UP, RUNNING, QueryRecord
from braid.session.state.times import rfc3339
from braid.sources.core.derived import is_derived
from braid.sources.core.replays import origin_of

REASONS = (
    "pending",
    "catching_up",
    "unreadable",
    "no_tuple",
    "malformed",
    "watermark",
    "filtered",
    "paused",
    "draining",
    "ended",
    "failed",
)

_EARLIEST = "braid query --start earliest, CREATE QUERY … WITH (start = 'earliest'), or Start on the page"


def waiting_for(
    record: QueryRecord,
    catalog: Catalog,
    progress: Mapping[str, Mapping[str, Any]] | None = None,
    read: Sequence[QueryRecord] = (),
) -> dict[str, Any] | None:
    """Return ``{"reason", "detail", "stream", "watermark", "window_end"}``, None once the query has rows.

    ``progress`` is how far a query has read the past of its streams, as the description of the query has it, and
    ``read`` are the queries whose rows it reads.
    ``stream`` is the one that it is about, ``watermark`` and ``window_end`` the times that are compared, None where
    there are none.
    """
    if record.rows_out:
        return None
    streams = [(stream, state) for stream in record.stream_names if (state := catalog.by_id(stream)) is not None]
    by_state = _by_state(record, streams, read)
    if by_state is not None:
        return by_state
    unreadable = next(_unreadable(record, catalog), None)
    if unreadable is not None or not streams:
        return unreadable
    if record.state == CATCHING_UP:
        so_far = "".join(_so_far(name, each) for name, each in (progress or {}).items())
        nothing_yet = f"It reads the past, and has found no row there yet.{so_far}"
        return next(_malformed(streams), _reason("catching_up", nothing_yet))
    unheard = next(_unheard(record, streams), None)
    if unheard is not None:
        return unheard
    window = _window_on_close(record)
    return _filtered(record) if window is None else _of_windows(record, window, [state for _, state in streams])


def open_window(record: QueryRecord, catalog: Catalog) -> dict[str, Any] | None:
    """Return ``{"detail", "stream", "watermark", "window_end"}`` of the first window that is still open.

    It is of a query that runs and has rows; None where its rows wait for no watermark, or its streams have ended.
    """
    window = _window_on_close(record)
    if not record.rows_out or record.state != RUNNING or window is None:
        return None
    streams = [state for stream in record.stream_names if (state := catalog.by_id(stream)) is not None]
    slowest = min(_waited_for(streams), key=_reached, default=None)
    if slowest is None or slowest.watermark is None or slowest.watermark == ENDED:
        return None
    end = _open_end(window, slowest, slowest.watermark)
    if end <= slowest.watermark:
        return None  # no session is open
    which = "the last session" if sliding(window) is None else "the next window"
    waiting = _not_over(slowest, slowest.watermark, end, which=which)
    return {name: value for name, value in waiting.items() if name != "reason"}


def _window_on_close(record: QueryRecord) -> Window | SessionWindow | None:
    """Return the window of a query whose rows come when the watermark has passed it."""
    window, emit = record.query.window, record.query.emit
    return None if window is None or emit.delay_us is not None or not emit.after_watermark else window


def _so_far(name: str, progress: Mapping[str, Any]) -> str:
    """Return a sentence on how far the past of a stream is read, nothing where nobody knows."""
    if progress["fraction"] is None:
        return ""
    left, seconds = "", progress["seconds_left"]
    if seconds:
        takes = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        left = f"; the rest takes {takes}, going by what was read"
    return f" Of stream {name}, {progress['fraction']:.0%} is read{left}."


def _by_state(
    record: QueryRecord, streams: Sequence[tuple[str, StreamState]], read: Sequence[QueryRecord]
) -> dict[str, Any] | None:
    """Return why a query that does not run has no row, None for one that does."""
    match record.state:
        case "PENDING":
            return _reason("pending", "It waits for the first batch that runs it.")
        case "PAUSED":
            return _reason(
                "paused", f"It is paused: POST /queries/{record.id}/resume (braid resume {record.id}) has it go on."
            )
        case "DRAINING":
            return _reason("draining", "It is on its way out: only windows that are complete already still give rows.")
        case "RETIRED" | "FINISHED":
            return next(_malformed(streams), None) or next(
                _came_after_the_end(record, streams), _is_over(record, streams, read)
            )
        case "FAILED":
            return _reason("failed", f"It failed: {record.error}")
    return None


def _is_over(
    record: QueryRecord, streams: Sequence[tuple[str, StreamState]], read: Sequence[QueryRecord]
) -> dict[str, Any]:
    why = ""
    if read and not any(each.rows_out for each in read):
        why = f" Query {read[0].called}, which it reads, gave no row: braid results {read[0].id} says why."
    elif record.state == "FINISHED" and (streams or read) and all(state.tuples for _, state in streams):
        why = " Rows came; WHERE, HAVING or a join let none of them through."
    set_aside = "".join(_set_aside(state) for _, state in streams)
    return _reason("ended", f"It is over, and no row will come.{why}{set_aside}")


def _came_after_the_end(record: QueryRecord, streams: Iterable[tuple[str, StreamState]]) -> Iterator[dict[str, Any]]:
    """Yield the streams that had ended without a row for the query, but with rows before it."""
    for stream, state in streams:
        since = (record.active_from or {}).get(stream)
        if state.watermark == ENDED and since is not None and state.clock is not None and state.clock <= since:
            name = state.definition.name
            came = "its one row" if state.tuples == 1 else f"its {state.tuples} rows"
            detail = f"Stream {name} has ended; {came} came before this query. Start it at the earliest: {_EARLIEST}."
            yield _reason("ended", detail + _set_aside(state), name)


def _unreadable(record: QueryRecord, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield the streams that cannot be read; of one whose past is read, that may be told of itself only."""
    for stream in record.stream_names:
        for state in filter(None, map(catalog.by_id, dict.fromkeys((stream, origin_of(stream))))):
            problem = state.unavailable or state.error
            if problem:
                name = state.definition.name
                is_named = problem.startswith(f"Stream {name!r}")
                detail = problem if is_named else f"Stream {name} cannot be read: {problem}"
                yield _reason("unreadable", detail, stream=name)


def _unheard(record: QueryRecord, streams: list[tuple[str, StreamState]]) -> Iterator[dict[str, Any]]:
    """Yield the streams of which the query has seen nothing."""
    for stream, state in streams:
        since = (record.active_from or {}).get(stream)
        is_heard = state.clock is not None and (since is None or state.clock > since)
        if is_heard or (state.is_idle and len(streams) > 1):  # joins do not wait for an idle stream
            continue
        yield _nothing_came(state, since)


def _nothing_came(state: StreamState, since: int | None) -> dict[str, Any]:
    name = state.definition.name
    if is_derived(state.definition.id):
        return _no_row_of_a_query(state, since)
    malformed = next(_malformed([(state.definition.id, state)]), None)
    if malformed is not None:
        return malformed
    if since is None:
        return _reason("no_tuple", f"No row of stream {name} has been read yet.", name)
    detail = (
        f"No row of stream {name} has been read that the query sees: {state.tuples} were read, none later than"
        f" {rfc3339(since)}, where the query begins. It sees what comes later; a query that starts at the earliest sees"
        f" those before, too: {_EARLIEST}."
    )
    return _reason("no_tuple", detail + _set_aside(state), name)


def _no_row_of_a_query(state: StreamState, since: int | None) -> dict[str, Any]:
    name = state.definition.name
    read = queries_behind(state.definition)[0].id
    whose = f"GET /queries/{read} (braid results {read}) says what that waits for."
    if since is None:
        return _reason("no_tuple", f"Query {name}, which it reads, has given no row since. {whose}", name)
    detail = f"Query {name}, which it reads, has given no row after {rfc3339(since)}, where the query begins. {whose}"
    return _reason("no_tuple", detail, name)


def _malformed(streams: Iterable[tuple[str, StreamState]]) -> Iterator[dict[str, Any]]:
    """Yield the streams all of whose inputs are malformed."""
    for _, state in streams:
        if state.malformed and not state.tuples:
            name = state.definition.name
            detail = f"All {state.malformed} rows of stream {name} are malformed; {_letters(name)}"
            yield _reason("malformed", detail, name)


def _set_aside(state: StreamState) -> str:
    """Return a sentence on the late and malformed rows of a stream, nothing where there are none."""
    counts = [f"{count} {what}" for count, what in ((state.late, "late"), (state.malformed, "malformed")) if count]
    if not counts:
        return ""
    name = state.definition.name
    rows = "row is" if state.late + state.malformed == 1 else "rows are"
    return f" Of stream {name}, {' and '.join(counts)} {rows} set aside; {_letters(name)}"


def _letters(name: str) -> str:
    return f"GET /streams/{name}/dead-letters (braid streams {name} --dead-letters) says why."


def _filtered(record: QueryRecord) -> dict[str, Any]:
    if record.query.window is None:
        detail = "Rows came; WHERE, or a join with a table, lets none of them through."
    elif record.query.emit.delay_us is None:
        detail = "Rows came; WHERE or HAVING lets none of them through."
    else:
        delay = record.query.emit.delay_us / 1e6
        detail = f"Rows came; changes are emitted {delay:g} s after the first, or WHERE and HAVING let none through."
    return _reason("filtered", detail)


def _of_windows(record: QueryRecord, window: Window | SessionWindow, streams: list[StreamState]) -> dict[str, Any]:
    """Return why no window has given a row: it is not over, or nothing in it is let through."""
    waited_for = _waited_for(streams)
    slowest = min(waited_for, key=_reached)
    reached = slowest.watermark
    if reached is None:
        return _nothing_came(slowest, None)
    begun = [since for since in (record.active_from or {}).values() if since is not None]
    fixed, next_end = sliding(window), _open_end(window, slowest, reached)
    if fixed is None:
        if reached < next_end:
            return _not_over(slowest, reached, next_end, "A session ends when nothing of it came for its gap.")
        detail = "All sessions have ended, and none gave a row: WHERE, HAVING or a join lets none through."
        return _reason("filtered", detail, slowest.definition.name, reached)
    first_end = _end_after(fixed, max(begin + 1 for begin in begun)) if begun else None
    fired = min((state.fired for state in waited_for if state.fired is not None), default=None)
    if first_end is None:
        hint = "Windows before that had no row, or WHERE and HAVING let none through."
        return _not_over(slowest, reached, next_end, hint)
    if reached < first_end:
        return _not_over(slowest, reached, first_end, which="the query's first window")
    if fired is not None and fired < first_end:
        detail = f"The watermark of stream {slowest.definition.name} has passed the first window; its rows are formed."
        return _reason("watermark", detail, slowest.definition.name, reached, first_end)
    detail = (
        f"Windows have ended, the first at {rfc3339(first_end)}, and none gave a row: WHERE, HAVING or a join lets no"
        f" row of them through, or none lies in them. The next ends at {rfc3339(next_end)}, the watermark is"
        f" {rfc3339(reached)}."
    )
    return _reason("filtered", detail, slowest.definition.name, reached, next_end)


def _waited_for(streams: list[StreamState]) -> list[StreamState]:
    """Return the streams whose watermarks have to pass a window."""
    return [state for state in streams if not state.is_idle] or streams


def _reached(state: StreamState) -> int:
    return -(2**63) if state.watermark is None else state.watermark


def _not_over(
    state: StreamState, watermark: int, end: int, hint: str = "", which: str = "the window"
) -> dict[str, Any]:
    name = state.definition.name
    read = f"query {name}, which it reads," if is_derived(state.definition.id) else f"stream {name}"
    detail = f"The watermark of {read} is {rfc3339(watermark)}, before {rfc3339(end)}, where {which} ends. "
    if is_derived(state.definition.id):
        inner = queries_behind(state.definition)[0].id
        detail += (
            f"It moves as that query goes on: GET /queries/{inner} (braid results {inner}) says what that waits for."
        )
    else:
        moves = rfc3339(end + state.definition.schema.lateness_us)
        is_generated = state.definition.connector == "generator"
        how = f'POST /streams/{name}/watermark {{"end": true}}'
        if state.definition.connector == "push":
            how = f"braid push {name} --end ({how})"
        also = ", and will come by itself" if is_generated else f"; {how} says that no more rows come"
        detail += f"A row with a time from {moves} on moves it there{also}."
    return _reason("watermark", f"{detail} {hint}".rstrip(), name, watermark, end)


def _open_end(window: Window | SessionWindow, state: StreamState, watermark: int) -> int:
    """Return the end of the window that the watermark is in; of sessions, of the one with the newest tuple."""
    fixed = sliding(window)
    return window.last_end(state.clock or watermark) if fixed is None else _end_after(fixed, watermark)


def _end_after(window: Window, us: int) -> int:
    """Return the least end of a window after a time."""
    first = window.offset_us + window.size_us
    return first + ((us - first) // window.slide_us + 1) * window.slide_us


def _reason(
    reason: str, detail: str, stream: str | None = None, watermark: int | None = None, end: int | None = None
) -> dict[str, Any]:
    return {
        "reason": reason,
        "detail": detail,
        "stream": stream,
        "watermark": rfc3339(watermark),
        "window_end": rfc3339(end),
    }
