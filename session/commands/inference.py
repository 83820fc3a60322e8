"""Inference: the CREATE STREAM statement that reads what a sample shows.

The statement is one that the service accepts, and whose stream takes the rows of the sample. What was guessed is said
in comments: a person reads them, changes what is wrong, and sends the statement.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from braid.session.commands.statements import read_create_stream
from braid.session.sql.create_stream_text import (
    DeclaredColumn,
    create_stream_text,
    interval_text,
    quoted_name,
    quoted_text,
)
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.sources.connectors.registry import CONNECTORS
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.names import name_key
from braid.sources.core.schema import TIMESTAMP, VARCHAR
from braid.sources.core.storage import Storage
from braid.sources.core.watermark_options import HOUR, MAX_FUTURE, NONE, SECOND, TIMESTAMP_FORMAT
from braid.sources.inference.columns import Inferred, times_within, words_of
from braid.sources.inference.event_time import EventTime, choose_event_time
from braid.sources.inference.places import KAFKA, sample_place
from braid.sources.inference.sample import CSV, JSON, MAX_WIDTH, PARQUET, Sample, sample_parquet, sample_texts

PUSH = "push"
LONGEST_NAME = 100
MESSAGE_TIME = "timestamp"
_PUSHED_AS = {CSV: "csv", JSON: "json", PARQUET: "arrow"}
_RESERVED = ("window_start", "window_end")
_MAX_SHOWN = 20


@dataclass(frozen=True)
class InferredStream:
    """A statement, and what it says; ``to_json`` is the answer of POST /streams/infer."""

    name: str
    sql: str
    columns: tuple[DeclaredColumn, ...]
    left_out: tuple[tuple[str, str], ...]
    event_time: str
    candidates: tuple[str, ...]
    lateness_us: int
    source: Mapping[str, str]
    rows: int
    comments: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer."""
        options = {key: value for key, value in self.source.items() if key not in ("connector", "format")}
        return {
            "name": self.name,
            "sql": self.sql,
            "columns": [{"name": c.name, "type": str(c.type), "comment": c.comment or None} for c in self.columns],
            "left_out": [{"name": _shown(name), "why": why} for name, why in self.left_out],
            "event_time": self.event_time,
            "event_time_candidates": list(self.candidates),
            "lateness_seconds": self.lateness_us / 1e6,
            "source": {
                "connector": self.source["connector"],
                "format": self.source.get("format", ""),
                "options": options,
            },
            "rows": self.rows,
            "comments": list(self.comments),
        }


class Inference:
    """Reads samples within a confinement; ``taken`` tells the names that streams and tables have."""

    def __init__(
        self,
        confinement: Confinement = OPEN,
        storage: Storage | None = None,
        limits: StatementLimits = DEFAULT_LIMITS,
        taken: Callable[[], Sequence[str]] = tuple,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._confinement = confinement
        self._storage = storage
        self._limits = limits
        self._taken = taken
        self._now_us = now_us

    def of_rows(self, form: str, body: bytes, name: str | None = None, file: str = "") -> InferredStream:
        """Return the statement of a stream that rows like these, CSV, JSON or Parquet, are pushed to.

        Without a ``name`` the stream is called after the ``file`` that they are from, if that is known.
        MalformedRequest for a body that has no rows of the format, NotAllowed for rows that no stream can have.
        """
        sample = sample_parquet([pa.BufferReader(body)]) if form == PARQUET else sample_texts(form, [body])
        if not sample.has_names:
            raise NotAllowed(
                "CSV that is pushed must begin with the names of its columns; this begins with values. Put a row of"
                " names before it, or have the stream read it from a folder: connector 'file' with header = 'false'."
            )
        # until pushes take a format, the content type of each says what it holds
        format_ = _PUSHED_AS[form] if _PUSHED_AS[form] in CONNECTORS[PUSH].formats else CONNECTORS[PUSH].formats[0]
        name, taken = self._name(name, file)
        if format_ != _PUSHED_AS[form]:
            comment = "Rows are pushed to it as JSON or Arrow; CSV is read from a folder, by connector 'file'."
        else:
            comment = f"Rows are pushed to it: POST /streams/{name}/events, or braid push {name} FILE."
        return self._stream(sample, {"connector": PUSH, "format": format_}, name, (comment, *taken))

    def of_place(self, connector: str, options: Mapping[str, str], name: str | None = None) -> InferredStream:
        """Return the statement of a stream that reads a folder or a topic; NotAllowed or NotReady as its sample."""
        place = sample_place(connector, options, self._confinement)
        source = {"connector": place.connector, **place.options}
        name, taken = self._name(name, place.name)
        return self._stream(place.sample, source, name, (*place.comments, *taken))

    def _name(self, given: str | None, place: str) -> tuple[str, tuple[str, ...]]:
        """Return the name of the stream, as given, or one that is free, after what it reads; and what to say of it."""
        if given:
            return given, ()
        base = _name_after(place)
        taken = set(map(name_key, self._taken()))
        free = (n for n in (base, *(f"{base}_{i}" for i in range(2, len(taken) + 3))) if name_key(n) not in taken)
        name = next(free)
        return name, () if name == base else (f"The name {base} is taken.",)

    def _stream(self, sample: Sample, source: Mapping[str, str], name: str, of_place: Sequence[str]) -> InferredStream:
        columns, left_out = _declarable(sample)
        time_ = choose_event_time(columns, self._now_us() + HOUR)
        if time_ is None:
            time_ = choose_event_time(list(times_within(columns)), self._now_us() + HOUR)
        is_besides = time_ is not None and all(column is not time_.column for column in columns)
        if time_ is not None and is_besides:
            time_ = replace(time_, column=replace(time_.column, name=_free(time_.column.name, columns)))
            columns.append(time_.column)
        if time_ is None and source["connector"] != KAFKA:
            raise _no_event_time(sample, columns, left_out, name)
        declared = [_declared(column, time_, sample.form) for column in columns]
        options = dict(source)
        comments = [f"{_rows_of(sample)} looked at.", *of_place]
        if time_ is None:
            at = _free("message_time", columns)
            declared.append(DeclaredColumn(at, TIMESTAMP, lateness_us=SECOND, metadata=MESSAGE_TIME))
            comments.append(f"Event time: {at}, the time of the message, as no column has a time in each row.")
        else:
            at = time_.column.name
            comments += _of_event_time(time_)
            if time_.column.time_format:
                options[TIMESTAMP_FORMAT] = time_.column.time_format
            if time_.are_beyond:
                options[MAX_FUTURE] = NONE
                comments.append("Its times go beyond now, so max_future is off: see the options of watermarks.")
        if sample.unreadable:
            comments.append(_unreadable_text(sample))
        if left_out:
            comments.append(_left_out_text(left_out))
        sql = create_stream_text(name, declared, options, comments)
        try:
            statement = read_create_stream(sql, self._confinement, self._storage, self._limits)
        except ServiceError as problem:
            raise NotAllowed(f"No stream can be declared for this sample: {problem.detail}") from None
        return InferredStream(
            name=statement.name,
            sql=sql,
            columns=tuple(declared),
            left_out=tuple(left_out),
            event_time=at,
            candidates=() if time_ is None else (time_.column.name, *time_.others),
            lateness_us=statement.schema.lateness_us,
            source=options,
            rows=sample.rows,
            comments=tuple(comments),
        )


def _unreadable_text(sample: Sample) -> str:
    count, first = len(sample.unreadable), sample.unreadable[0]
    of_columns = f"cannot be read as {sample.form.upper()} of these columns"
    if count == 1:
        return f"Row {first} {of_columns}: it becomes a dead letter."
    return f"{count} more rows, the first is row {first}, {of_columns}: they become dead letters."


def _name_after(place: str) -> str:
    """Return the name of a stream that reads a file, a folder or a topic."""
    base = re.sub(r"\W+", "_", PurePosixPath(place).stem, flags=re.ASCII).strip("_").lower()[: LONGEST_NAME - 10]
    return base if base and not base[0].isdigit() else f"s_{base}" if base else "events"


def _declarable(sample: Sample) -> tuple[list[Inferred], list[tuple[str, str]]]:
    """Return the columns that a stream can have, and the names of the others with the reasons."""
    columns: list[Inferred] = []
    left_out: list[tuple[str, str]] = []
    names: set[str] = set()
    counts = Counter(column.name for column in sample.columns)
    for column in sample.columns:
        why = _why_not(column, names, counts[column.name])
        if why:
            left_out.append((column.name, why))
        else:
            names.add(column.name.lower())
            columns.append(column)
    return columns, left_out


def _why_not(column: Inferred, names: set[str], times: int) -> str:
    name = column.name
    if not name.strip():
        return "no name"
    if name.startswith("_") or name.lower() in _RESERVED:
        return "a reserved name"
    if len(name) > LONGEST_NAME or "\0" in name or _shown(name) != name:
        return f"a name of more than {LONGEST_NAME} characters, or of none"
    if times > 1 or name.lower() in names:
        return "a name that several columns have"
    if len(names) >= MAX_WIDTH:
        return f"more than {MAX_WIDTH} columns"
    return column.why if column.type is None else ""


def _declared(column: Inferred, time_: EventTime | None, form: str) -> DeclaredColumn:
    assert column.type is not None
    if time_ is not None and column is time_.column:
        comment = "" if column.misfits else column.why  # what is said of the event time has the misfits
        computed = "" if time_.day_and_clock is None else _moment_of(*time_.day_and_clock)
        return DeclaredColumn(
            column.name, TIMESTAMP, comment, time_.lateness_us, source=column.source, computed=computed
        )
    if time_ is not None and time_.column.time_format and column.type.has_kind(TIMESTAMP.kind) and form != PARQUET:
        kind = column.type.with_replaced(TIMESTAMP, VARCHAR)
        return DeclaredColumn(column.name, kind, f"times as text: {TIMESTAMP_FORMAT} is for all TIMESTAMPs")
    return DeclaredColumn(column.name, column.type, column.why)


def _moment_of(day: Inferred, clock: Inferred) -> str:
    """Return the expression that puts a day and a time of day together."""
    assert clock.clock is not None
    text = quoted_name(day.name) if day.type == VARCHAR else f"CAST({quoted_name(day.name)} AS VARCHAR)"
    pattern = quoted_text(f"{day.time_format} {clock.clock[1]}")
    return f"TO_TIMESTAMP({text} || ' ' || {quoted_name(clock.name)}, {pattern})"


def _free(name: str, columns: Sequence[Inferred]) -> str:
    """Return a name that no column has: this one, or with a number after it."""
    taken = {column.name.lower() for column in columns}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n.lower() not in taken)


def _of_event_time(time_: EventTime) -> list[str]:
    column = time_.column
    others = f" Others: {', '.join(map(repr, time_.others[:_MAX_SHOWN]))}." if time_.others else ""
    comments = [f"Event time: {column.name!r}, since {time_.why}.{others}"]
    if column.nulls:
        such = f", such as {column.misfits}" if column.misfits else ""
        comments.append(f"{column.nulls} row(s) have no time there{such}: they are malformed, and dead letters.")
    if column.is_local or time_.day_and_clock is not None:
        comments.append(
            "Its times are read as UTC: convert local ones, or write their offset (…+02:00) and infer again."
        )
    if time_.beyond:
        comments.append(f"{time_.beyond} row(s) have times beyond now: they are malformed, and dead letters.")
    lateness, disorder = interval_text(time_.lateness_us), time_.disorder
    if disorder.rows:
        by = interval_text(disorder.us)
        comments.append(f"Lateness: {lateness}, since {disorder.rows} row(s) come after later ones, by up to {by}.")
    else:
        comments.append(f"Lateness: {lateness}, though the rows of the sample are in order.")
    if disorder.beyond:
        comments.append(f"{disorder.beyond} row(s) come much later than that: they are late, and dead letters.")
    return comments


def _rows_of(sample: Sample) -> str:
    return "1 row" if sample.rows == 1 else f"{sample.rows} rows"


def _left_out_text(left_out: Sequence[tuple[str, str]]) -> str:
    shown = ", ".join(f"{_shown(column)!r} ({why})" for column, why in left_out[:_MAX_SHOWN])
    return f"Left out: {shown}{' and others' if len(left_out) > _MAX_SHOWN else ''}."


def _no_event_time(
    sample: Sample, columns: Sequence[Inferred], left_out: Sequence[tuple[str, str]], name: str
) -> NotAllowed:
    likely = [column for column in columns if {"time", "date", "day", "at"} & set(words_of(column.name))]
    advice = f" {_left_out_text(left_out)}" if left_out else ""
    if likely:
        shown = [f"{c.name!r} has {c.misfits}" if c.misfits else repr(c.name) for c in likely[:_MAX_SHOWN]]
        advice += f" One of these would do in such a form: {', '.join(shown)}."
    if 0 < len(columns) <= _MAX_SHOWN:
        declared = ", ".join(f"{quoted_name(column.name)} {column.type}" for column in columns)
        advice += (
            f" Rows without times can be a static table: CREATE TABLE {quoted_name(name)} ({declared})"
            f" WITH (connector = 'file', path = 'PATH', format = '{sample.form}')."
        )
    return NotAllowed(
        "A stream must have an event time, a column with times such as 2024-01-31T12:00:00Z or numbers since 1970; no"
        " column of the sample has them. Times in another notation are declared as TIMESTAMP, with their pattern in"
        f" WITH, such as 'timestamp.format' = 'dd.MM.yyyy HH:mm'.{advice}"
    )


def _shown(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
