"""Hypothesis strategies for whole runs: a stream, queries, and their interleaving with pushes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tests.oracle.model import (
    SECOND,
    SEQUENCE,
    Aggregation,
    Column,
    Create,
    Delete,
    Domain,
    Item,
    Kind,
    Pause,
    Push,
    Query,
    Replace,
    Resume,
    Run,
    Selection,
    Sessions,
    Step,
    StreamSchema,
    Window,
)
from tests.oracle.predicates import arithmetic, where_clauses

# one name per type and domain, so that a query reads at once
NAMES: dict[tuple[Kind, Domain], str] = {
    (Kind.INT, "few"): "gem_pack",
    (Kind.INT, "many"): "score",
    (Kind.INT, "wide"): "delta",
    (Kind.BIGINT, "few"): "region_id",
    (Kind.BIGINT, "many"): "user_id",
    (Kind.BIGINT, "wide"): "balance",
    (Kind.DOUBLE, "few"): "rating",
    (Kind.DOUBLE, "many"): "price",
    (Kind.DOUBLE, "wide"): "magnitude",
    (Kind.VARCHAR, "few"): "country",
    (Kind.VARCHAR, "many"): "code",
    (Kind.VARCHAR, "wide"): "comment_text",
    (Kind.BOOLEAN, "few"): "is_trial",
    (Kind.DATE, "few"): "birthday",
    (Kind.DATE, "many"): "due_date",
    (Kind.DECIMAL, "few"): "fee",
    (Kind.DECIMAL, "many"): "amount",
    (Kind.DECIMAL, "wide"): "budget",
    (Kind.TIMESTAMP, "few"): "seen_at",
}
BASES = (
    dt.datetime(2026, 3, 1, 11, 59, 40),
    dt.datetime(2024, 2, 28, 23, 59, 30),
    dt.datetime(2026, 3, 1, 11, 59, 40),
    dt.datetime(1969, 12, 31, 23, 59, 45),  # windows before 1970 are aligned, too
)
# changelogs, which fold to the final rows
CHANGELOGS = (
    "EMIT STREAM",
    "EMIT STREAM AFTER WATERMARK",
    "EMIT STREAM AFTER DELAY INTERVAL '1' SECOND",
    "EMIT STREAM AFTER DELAY INTERVAL '0.2' SECOND AND AFTER WATERMARK",
)
HOUR = 3600 * SECOND
MAX_WINDOWS_OF_A_TUPLE = 8


@st.composite
def schemas(draw: st.DrawFn) -> StreamSchema:
    """Draw a stream with a number column, an event time, and five to nine more."""
    keys = draw(st.lists(st.sampled_from(sorted(NAMES, key=NAMES.__getitem__)), min_size=5, max_size=9, unique=True))
    columns = [Column(NAMES[key], *key, null_rate=draw(st.sampled_from((0.0, 0.0, 0.05, 0.4)))) for key in keys]
    event_time = draw(st.sampled_from(("time", "ts")))
    columns.insert(draw(st.integers(0, len(columns))), Column(event_time, Kind.TIMESTAMP))
    columns.insert(draw(st.integers(0, len(columns))), Column(SEQUENCE, Kind.BIGINT, "many"))
    lateness = draw(st.sampled_from((2 * SECOND, 0, SECOND, 5 * SECOND, SECOND // 2)))
    return StreamSchema(tuple(columns), event_time, lateness, draw(st.sampled_from(BASES)))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Draw a window; the slide need not divide the size."""
    form = draw(st.sampled_from(("bracket", "function", "named")))
    slide = draw(st.sampled_from((1, 2, 3, 4, 5, 10, 60)))
    if draw(st.booleans()):
        size = slide
    else:
        size = draw(st.integers(slide, min(slide * MAX_WINDOWS_OF_A_TUPLE, 2 * slide + 10)))
    offset = 0
    if form != "bracket" and draw(st.integers(0, 2)) == 0:
        offset = draw(st.integers(1, slide * 2 - 1)) * SECOND // 2
    return Window(size * SECOND, slide * SECOND, offset, form)  # type: ignore[arg-type]


@st.composite
def selections(draw: st.DrawFn, schema: StreamSchema) -> Selection:
    """Draw a selection: SELECT *, columns, or columns and expressions."""
    where = draw(where_clauses(schema))
    if draw(st.integers(0, 3)) == 0:
        return Selection((), where)
    columns = draw(st.lists(st.sampled_from(schema.columns), min_size=1, max_size=5, unique=True))
    items = [Item(column.name, column.name, column.kind) for column in columns]
    for number in range(draw(st.integers(0, 2))):
        computed = draw(arithmetic(schema))
        items.append(Item(computed.sql, f"computed_{number}", computed.kind))
    return Selection(tuple(items), where)


@st.composite
def aggregates(draw: st.DrawFn, schema: StreamSchema, name: str) -> Item:
    """Draw one aggregate function over a column or expression."""
    function = draw(st.sampled_from(("COUNT(*)", "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_SAMP", "DISTINCT")))
    if function == "COUNT(*)":
        return Item(function, name, Kind.BIGINT)
    if function == "DISTINCT":
        return Item(f"COUNT(DISTINCT {draw(st.sampled_from(schema.columns)).name})", name, Kind.BIGINT)
    if function == "COUNT":
        return Item(f"COUNT({draw(st.sampled_from(schema.columns)).name})", name, Kind.BIGINT)
    if function in ("MIN", "MAX"):
        ordered = [column for column in schema.columns if column.kind is not Kind.BOOLEAN]
        column = draw(st.sampled_from(ordered))
        return Item(f"{function}({column.name})", name, column.kind)
    numeric = [column for column in schema.columns if column.kind.numeric]
    if function == "STDDEV_SAMP":  # of wide numbers the other engine's deviations have too few digits
        narrow = [column.name for column in numeric if column.domain != "wide"]
        which = draw(st.sampled_from(("STDDEV_SAMP", "STDDEV_POP")))
        return Item(f"{which}({draw(st.sampled_from(narrow))})", name, Kind.DOUBLE)
    column = draw(st.sampled_from(numeric))
    argument = Item(column.name, "", column.kind)
    if draw(st.integers(0, 3)) == 0:
        argument = draw(arithmetic(schema))
    kind = Kind.DOUBLE if function == "AVG" else argument.kind
    kind = Kind.BIGINT if kind is Kind.INT else kind
    return Item(f"{function}({argument.sql})", name, kind)


@st.composite
def filtered(draw: st.DrawFn, schema: StreamSchema, name: str) -> Item:
    """Draw an aggregate, sometimes of the tuples only that satisfy a condition."""
    aggregate = draw(aggregates(schema, name))
    condition = draw(where_clauses(schema)) if draw(st.integers(0, 3)) == 0 else None
    return aggregate if condition is None else replace(aggregate, sql=f"{aggregate.sql} FILTER (WHERE {condition})")


@st.composite
def aggregations(draw: st.DrawFn, schema: StreamSchema) -> Aggregation:
    """Draw a windowed aggregation, mostly grouped by columns of few values."""
    few_valued = [
        column.name for column in schema.columns if column.domain == "few" and column.name != schema.event_time
    ]
    uses_few = bool(few_valued) and draw(st.integers(0, 5)) > 0
    names = few_valued if uses_few else [column.name for column in schema.columns]
    group_by = draw(st.lists(st.sampled_from(names), max_size=min(3, len(names)), unique=True))
    selected = [name for name in group_by if draw(st.integers(0, 4))]
    items = [Item(name, name, schema.column(name).kind) for name in selected]
    window: Window | Sessions = draw(windows())
    if draw(st.integers(0, 4)) == 0:
        form = draw(st.sampled_from(("bracket", "function", "named")))
        window = Sessions(draw(st.sampled_from((1, 2, 3, 10))) * SECOND, form)  # type: ignore[arg-type]
    items += [draw(filtered(schema, f"agg_{number}")) for number in range(draw(st.integers(1, 3)))]
    selects_window = window.form != "bracket" and draw(st.booleans())
    emit = draw(st.sampled_from(("", "", "", *CHANGELOGS)))
    return Aggregation(tuple(items), window, tuple(group_by), draw(where_clauses(schema)), selects_window, emit)


def queries(schema: StreamSchema) -> st.SearchStrategy[Query]:
    """Draw a query; two of three are aggregations."""
    return st.one_of(selections(schema), aggregations(schema), aggregations(schema))


@st.composite
def pushes(draw: st.DrawFn, tuples: int) -> Push:
    """Draw one push of up to `tuples` tuples."""
    return Push(
        count=draw(st.integers(1, tuples)) if draw(st.integers(0, 4)) == 0 else tuples,
        seed=draw(st.integers(0, 2**31)),
        span=draw(st.sampled_from((5, 1, 3, 10, 20))) * SECOND,
        gap=draw(st.sampled_from((0, 0, 0, 0, 0, 30 * SECOND, 26 * HOUR))),
        late_rate=draw(st.sampled_from((0.0, 0.02, 0.2))),
        settle=draw(st.booleans()),
        format=draw(st.sampled_from(("ndjson", "json", "arrow"))),
    )


@st.composite
def runs(
    draw: st.DrawFn,
    *,
    pushed: int = 12,
    tuples: int = 300,
    created: tuple[int, int] = (20, 40),
) -> Run:
    """Draw a run: `pushed` pushes with creations and deletions of queries between them.

    Args:
        draw: given by Hypothesis.
        pushed: how many pushes.
        tuples: how many tuples a full push has.
        created: the least and greatest number of queries.
    """
    # Hypothesis begins with the simplest of all: twenty times SELECT *, not worth a run against a service
    assume(draw(st.integers(0, 2**16)) != 0)
    schema = draw(schemas())
    query_count = draw(st.integers(*created))
    remaining = [draw(queries(schema)) for _ in range(query_count)]
    # the same query more than once: whatever is shared must answer both
    for position in draw(st.lists(st.integers(0, query_count - 1), max_size=3)):
        remaining[position] = remaining[query_count - 1 - position]
    slots: list[list[Step]] = [[] for _ in range(pushed)]
    while remaining:
        batch_size = draw(st.sampled_from((1, 4, 8, 12)))
        batch, remaining = tuple(remaining[:batch_size]), remaining[batch_size:]
        # early ones see more, so they are likelier
        slots[min(draw(st.integers(0, pushed - 1)), draw(st.integers(0, pushed - 1)))].append(Create(batch))
    for _ in range(draw(st.integers(1, 4))):
        places = draw(st.lists(st.integers(0, created[1]), min_size=1, max_size=5, unique=True))
        slots[draw(st.integers(1, pushed - 1))].append(Delete(tuple(places)))
    for _ in range(draw(st.integers(1, 3))):
        paused_at = draw(st.integers(0, pushed - 1))
        places = tuple(draw(st.lists(st.integers(0, created[1]), min_size=1, max_size=4, unique=True)))
        slots[paused_at].append(Pause(places))
        slots[draw(st.integers(paused_at, pushed - 1))].append(Resume(tuple(range(draw(st.integers(1, 4))))))
    for _ in range(draw(st.integers(1, 3))):
        replaced = Replace(draw(st.integers(0, created[1])), draw(queries(schema)))
        slots[draw(st.integers(0, pushed - 1))].append(replaced)
    steps: list[Step] = []
    for slot in slots:
        steps += [*slot, draw(pushes(tuples))]
    return Run(schema, tuple(steps))
