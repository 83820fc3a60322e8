"""Recompute with DuckDB what each query must have answered, from CONTRACT.md section 3 alone.

Input is what any outsider has: the pushed tuples, which of them are in the dead letters, and the
`active_from` and `active_to` of each query. Nothing here knows how the service works.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from tests.kit.duck import connect
from tests.oracle.model import SEQUENCE, Aggregation, Query, Row, Selection, Sessions, StreamSchema, literal, micros
from tests.oracle.wire import ARROW_TYPES


@dataclass(frozen=True)
class Life:
    """When a query was active on its stream; None as the service reports it.

    `deleted` tells a running query, whose `active_to` is None because it has no end, from one deleted while
    the stream had had no tuple, which therefore sees none.
    """

    active_from: dt.datetime | None
    active_to: dt.datetime | None
    deleted: bool

    def __post_init__(self) -> None:
        """Validate that only a deleted query has an end, not before its beginning."""
        if self.active_to is not None and not self.deleted:
            raise ValueError(f"active_to must be null while a query is not deleted, got {self.active_to!r}")
        if self.active_to is not None and self.active_from is not None and self.active_to < self.active_from:
            raise ValueError(f"active_from <= active_to must hold, got {self!r}")


class Recompute:
    """The tuples of one stream in DuckDB, and the rows of any query over them."""

    def __init__(self, schema: StreamSchema, tuples: Sequence[Row], late: Collection[int]) -> None:
        """Load the tuples that are not late; `late` holds their sequence numbers."""
        self._schema = schema
        self._connection = connect()
        fields = []
        for column in schema.columns:
            kind = ARROW_TYPES[column.kind]
            fields.append(pa.field(column.name, pa.timestamp("us") if pa.types.is_timestamp(kind) else kind))
        on_time = [row for row in tuples if row[SEQUENCE] not in late]
        table = pa.Table.from_pylist([dict(row) for row in on_time], schema=pa.schema(fields))
        self._connection.register("pushed", table)
        self._connection.execute("CREATE TEMP TABLE stream AS SELECT * FROM pushed")
        self._connection.unregister("pushed")

    def __enter__(self) -> Recompute:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def rows(self, query: Query, life: Life, watermark: dt.datetime | None) -> list[Row]:
        """Return the rows a query must have answered when the stream's watermark is `watermark`.

        Windowed rows come in window order; the order within a window, and of selections, means nothing.
        """
        if life.deleted and life.active_to is None:
            return []
        if isinstance(query, Selection):
            return self._fetch(self._selection(query, life))
        if watermark is None:
            return []
        return self._fetch(self._aggregation(query, life, watermark))

    def _seen(self, life: Life) -> str:
        """Select the tuples that a query sees: active_from < t <= active_to."""
        time = self._schema.event_time
        bounds = []
        if life.active_from is not None:
            bounds.append(f"{time} > {literal(life.active_from)}")
        if life.active_to is not None:
            bounds.append(f"{time} <= {literal(life.active_to)}")
        return "SELECT * FROM stream" + (f" WHERE {' AND '.join(bounds)}" if bounds else "")

    def _selection(self, query: Selection, life: Life) -> str:
        chosen = ", ".join(item.render() for item in query.items) or "*"
        where = query.where or "TRUE"
        return f"WITH seen AS ({self._seen(life)}) SELECT {chosen} FROM seen WHERE {where} ORDER BY {SEQUENCE}"

    def _sessions(self, query: Aggregation, life: Life, watermark: dt.datetime) -> str:
        assert isinstance(query.window, Sessions)
        gap = query.window.gap
        due = micros(watermark if life.active_to is None else min(watermark, life.active_to))
        chosen = [f"{item.sql} AS {item.name}" for item in query.items]
        by = f"PARTITION BY {', '.join(query.group_by)}" if query.group_by else ""
        order = f"_time, {SEQUENCE}"  # both windows must see tuples of one time in the same order
        return f"""
            WITH timed AS (
                SELECT *, epoch_us({self._schema.event_time}) AS _time FROM ({self._seen(life)})
                WHERE {query.where or "TRUE"}
            ),
            parted AS (SELECT *, _time - lag(_time) OVER ({by} ORDER BY {order}) >= {gap} AS _new FROM timed),
            numbered AS (
                SELECT *, count(*) FILTER (_new) OVER ({by} ORDER BY {order} ROWS UNBOUNDED PRECEDING) AS _number
                FROM parted
            )
            SELECT make_timestamp(min(_time)) AS window_start, make_timestamp(max(_time) + {gap}) AS window_end,
                FALSE AS _partial, {", ".join(chosen)}
            FROM numbered GROUP BY {", ".join([*query.group_by, "_number"])} HAVING max(_time) + {gap} <= {due}
            ORDER BY window_end
        """

    def _aggregation(self, query: Aggregation, life: Life, watermark: dt.datetime) -> str:
        if isinstance(query.window, Sessions):
            return self._sessions(query, life, watermark)
        size, slide, offset = query.window.size, query.window.slide, query.window.offset
        due = micros(watermark if life.active_to is None else min(watermark, life.active_to))
        partial = "FALSE" if life.active_from is None else f"window_start <= {literal(life.active_from)}"
        chosen = [f"{item.sql} AS {item.name}" for item in query.items]
        groups = ", ".join(["window_start", "window_end", *query.group_by])
        # the newest window of a tuple starts at the greatest offset + n * slide that is <= t, also before 1970
        newest = f"_time - (((_time - {offset}) % {slide}) + {slide}) % {slide}"
        return f"""
            WITH timed AS (SELECT *, epoch_us({self._schema.event_time}) AS _time FROM ({self._seen(life)})),
            started AS (
                SELECT timed.*, {newest} - steps.range * {slide} AS _start
                FROM timed, range({-(-size // slide)}) AS steps
            ),
            windowed AS (
                SELECT *, make_timestamp(_start) AS window_start, make_timestamp(_start + {size}) AS window_end
                FROM started WHERE _start + {size} > _time AND _start + {size} <= {due}
            )
            SELECT window_start, window_end, {partial} AS _partial, {", ".join(chosen)}
            FROM windowed WHERE {query.where or "TRUE"} GROUP BY {groups} ORDER BY window_end
        """

    def _fetch(self, sql: str) -> list[Row]:
        cursor = self._connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
