"""What a derived stream is made of: the queries behind it, its columns, and rows of theirs in these columns.

Rows of windows have the event time ``window_time``, the last microsecond of their window, so that a window of the same
size takes each row where it came from. Rows of a selection keep their tuple's. Rows of EMIT STREAM are changes, which
their column ``_op`` tells apart: a reader sees all changes of a row or none, as they have one event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.expressions import Column
from braid.operators.queries import Query, query_from_json
from braid.operators.query_parts import CHANGES, OP, WINDOW_END, WINDOW_START, Output
from braid.operators.windows import RowWindow
from braid.sources.core.derived import CONNECTOR
from braid.sources.core.schema import TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import WatermarkOptions

WINDOW_TIME = "window_time"
_QUERIES, _TIME = "queries", "_time"
_BOUND = "#"
"""What the names of columns end with that are bounds of an inner window; those of an outer one are called alike."""

_FOR_EVER = WatermarkOptions(max_future_us=None)


class QueryBehind(NamedTuple):
    """A query whose rows a derived stream has, in the partition ``number``; ``successor`` has taken its place."""

    id: str
    query: Query
    number: int = 0
    successor: str | None = None


def derived_stream(stream_id: str, name: str, behind: Sequence[QueryBehind]) -> StreamDefinition:
    """Return the definition of the stream that has the rows of some queries, with the columns of the first one."""
    query = behind[0].query
    fields = [Field(column_name(output.name), output.expression.type) for output in query.outputs]
    timed = (f.name for f, output in zip(fields, query.outputs, strict=True) if _is_time(query, output))
    event_time = next(timed, None)
    if query.emit.stream:
        fields += [Field(name, kind) for name, kind in CHANGES.items()]
    hidden: tuple[str, ...] = ()
    if event_time is None:
        event_time = _free_name(time_name(query), [field.name for field in fields])
        fields.append(Field(event_time, TIMESTAMP))
        hidden = (event_time,)
    schema = StreamSchema(tuple(fields), event_time, 0, hidden=hidden)
    return StreamDefinition(stream_id, name, schema, CONNECTOR, "", _options(behind), watermark=_FOR_EVER)


def with_successor(
    definition: StreamDefinition, replaced: str, successor: QueryBehind, is_needed: Callable[[QueryBehind], bool]
) -> StreamDefinition:
    """Return a derived stream that has the rows of a query's successor, too.

    Of those that were replaced before, it keeps those whose rows are needed.
    """
    former = [each for each in queries_behind(definition) if each.successor is None or is_needed(each)]
    number = max(each.number for each in queries_behind(definition))
    queries = []
    for each in former:
        if each.id == replaced:
            number += 1
            queries.append(successor._replace(number=number))
            each = each._replace(successor=successor.id)
        queries.append(each)
    return replace(definition, options=_options(queries))


def _options(behind: Iterable[QueryBehind]) -> dict[str, str]:
    queries = [[each.id, each.query.to_json(), each.number, each.successor] for each in behind]
    return {_QUERIES: orjson.dumps(queries).decode()}


def gives_changes(query: Query) -> bool:
    """Whether the rows of a query are changes: those of EMIT STREAM, and what is selected of such rows."""
    return query.emit.stream or any(output.name == OP for output in query.outputs)


def queries_behind(definition: StreamDefinition) -> tuple[QueryBehind, ...]:
    """Return the queries behind a derived stream, and behind replays of it."""
    return _read(definition.options[_QUERIES])


@lru_cache(maxsize=1000)
def _read(text: str) -> tuple[QueryBehind, ...]:
    return tuple(QueryBehind(query_id, query_from_json(query), *rest) for query_id, query, *rest in orjson.loads(text))


def column_name(output: str) -> str:
    """Return what a derived stream calls a column of its query."""
    return output + _BOUND if output.lower() in (WINDOW_START, WINDOW_END) else output


def shown_name(column: str) -> str:
    """Return what people call a column of a stream."""
    return column.removesuffix(_BOUND)


def time_name(query: Query) -> str:
    """Return what the event time of a query's rows is called."""
    return query.event_time or WINDOW_TIME


def _is_time(query: Query, output: Output) -> bool:
    return bool(query.event_time) and output.expression == Column(query.event_time, TIMESTAMP)


def _free_name(name: str, taken: Sequence[str]) -> str:
    lowered, number, free = [each.lower() for each in taken], 1, name
    while free.lower() in lowered:
        number += 1
        free = f"{name}_{number}"
    return free


def window_behind(definition: StreamDefinition) -> RowWindow | None:
    """Return the windows whose rows a derived stream has, with its columns that are their bounds.

    None where it has rows of other things, of sessions, or of different windows.
    """
    if definition.connector != CONNECTOR:
        return None
    queries = [each.query for each in queries_behind(definition)]
    found = [query.row_window for query in queries]
    first = found[0]
    if first is None or any(each is None or each.window != first.window for each in found):
        return None
    starts, ends = (
        frozenset.intersection(*(_places(query, bound) for query in queries)) for bound in ("starts", "ends")
    )
    names = [column_name(output.name) for output in queries[0].outputs]
    return RowWindow(first.window, frozenset(names[at] for at in starts), frozenset(names[at] for at in ends))


def _places(query: Query, bound: str) -> frozenset[int]:
    """Return at which places the outputs of a query are ``starts`` or ``ends`` of the windows of its rows."""
    columns = getattr(query.row_window, bound)
    expressions = [output.expression for output in query.outputs]
    return frozenset(at for at, e in enumerate(expressions) if isinstance(e, Column) and e.name in columns)


def with_time(query: Query) -> Query:
    """Return a query whose rows tell their event time, in a last column."""
    if not query.event_time:
        return query
    return replace(query, outputs=(*query.outputs, Output(_TIME, Column(query.event_time, TIMESTAMP))))


def as_tuples(rows: pa.Table, definition: StreamDefinition, query: Query) -> pa.RecordBatch:
    """Return rows of a query :func:`with_time` as tuples of a derived stream."""
    schema = definition.schema
    values = [_flat(rows.column(at)) for at in range(len(query.outputs) - bool(query.event_time))]
    if query.emit.stream:
        values += [_flat(rows.column(name)) for name in CHANGES]
    if schema.hidden:
        values.append(_flat(rows.column(_TIME)) if query.event_time else _window_time(rows))
    arrays = [value.cast(field.type) for value, field in zip(values, schema.arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _window_time(rows: pa.Table) -> pa.Array:
    ends = _flat(rows.column(WINDOW_END)).cast(pa.int64())
    return pc.subtract(ends, pa.scalar(1, pa.int64())).cast(pa.timestamp("us"))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    values = values if isinstance(values, pa.Array) else pa.concat_arrays(column.chunks)
    return values.storage if isinstance(values, pa.ExtensionArray) else values
