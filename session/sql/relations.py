"""What FROM can name besides streams and tables: queries, subqueries, what WITH names, and UNION ALL of SELECTs.

A subquery is planned as a query of its own, whose rows are a derived stream; that has a provisional id until the
session knows which query gives these rows (:class:`Subquery`). One that only selects rows of one stream is no query:
the outer one reads that stream itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braid.operators.derived import QueryBehind, column_name, derived_stream, gives_changes, shown_name, window_behind
from braid.operators.expressions import Column, Expression
from braid.operators.functions.coercion import in_one_type
from braid.operators.queries import Query, Selection
from braid.operators.query_parts import Output
from braid.session.sql.statements import SUBQUERY, InlineRows, Select
from braid.sources.core.derived import derived_id, lineages_of
from braid.sources.core.schema import NULL, TIMESTAMP, StreamDefinition

_PROVISIONAL = "q-sub"
PlanQuery = Callable[[Select, "Relations"], Query]


@dataclass(frozen=True)
class Subquery:
    """A query that another one reads, by its provisional id; ``sql`` is its text."""

    id: str
    query: Query
    sql: str


@dataclass
class _Found:
    """The subqueries of a statement, each once, inner ones first, and the definitions of what reads them."""

    subqueries: dict[str, Subquery] = field(default_factory=dict)
    definitions: dict[str, StreamDefinition] = field(default_factory=dict)


class Relations(Mapping[str, StreamDefinition]):
    """Streams by name, in lower case, and what the WITH clauses around a SELECT name."""

    def __init__(
        self,
        streams: Mapping[str, StreamDefinition],
        plan: PlanQuery,
        named: Mapping[str, tuple[Select, Relations]] | None = None,
        found: _Found | None = None,
    ) -> None:
        self._streams = streams
        self._plan = plan
        self._named = dict(named or {})
        self._found = found or _Found()

    def __getitem__(self, name: str) -> StreamDefinition:
        if name.lower() in self._named:
            select, relations = self._named[name.lower()]
            return relations.subquery(select, name)
        stream = self._streams.get(name)  # names of queries tell cases apart
        return self._streams[name.lower()] if stream is None else stream

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def within(self, select: Select) -> Relations:
        """Return what the SELECT can name besides: each name in its WITH is known after it."""
        relations = self
        for name, subquery in select.named:
            named = {**relations._named, name: (subquery, relations)}
            relations = Relations(self._streams, self._plan, named, self._found)
        return relations

    def inline(self, named: str | Select) -> InlineRows | None:
        """Return the rows of a subquery, or of one that WITH names, which is VALUES alone; None for others."""
        select = self._named.get(named.lower(), (None,))[0] if isinstance(named, str) else named
        is_values = select is not None and select.is_values and not select.union
        return select.source.inline if select is not None and is_values else None

    def subquery(self, select: Select, name: str = SUBQUERY) -> StreamDefinition:
        """Return the derived stream of a subquery's rows."""
        return self.of_branches(select, self._branches(select), name)

    def _branches(self, select: Select) -> list[Select]:
        first = replace(select, union=())
        if select.union:
            first = replace(first, start=select.first[0], end=select.first[1])
        return [first, *(replace(branch, named=(*select.named, *branch.named)) for branch in select.union)]

    def union(self, select: Select) -> StreamDefinition:
        """Return the derived stream of the rows of all SELECTs between UNION ALL."""
        return self.of_branches(select, self._branches(select), "union")

    def of_branches(self, select: Select, branches: Sequence[Select], name: str) -> StreamDefinition:
        """Return the derived stream of the rows of SELECTs with equal columns."""
        queries = [self._planned(branch) for branch in branches]
        if len(queries) > 1:
            queries = [
                self._with_changes_as_columns(query, branch) for query, branch in zip(queries, branches, strict=True)
            ]
            queries = _with_equal_types(select, branches, queries)
        planned = [self._register(query, branch.text) for query, branch in zip(queries, branches, strict=True)]
        return self._stream_of(planned, name)

    def _with_changes_as_columns(self, query: Query, branch: Select) -> Query:
        """Return a query of the rows of another one, whose columns are those of EMIT STREAM, too."""
        if not query.emit.stream:
            return query
        return all_of_stream(self._stream_of([self._register(query, branch.text)], SUBQUERY))

    def _stream_of(self, planned: Sequence[Subquery], name: str) -> StreamDefinition:
        stream_id = derived_id([each.id for each in planned])
        if stream_id not in self._found.definitions:
            behind = [QueryBehind(each.id, each.query, number) for number, each in enumerate(planned)]
            self._found.definitions[stream_id] = derived_stream(stream_id, name, behind)
        return replace(self._found.definitions[stream_id], name=name)

    def _planned(self, select: Select) -> Query:
        query = self._plan(select, self)
        check_readable(select, query)
        return query

    def _register(self, query: Query, sql: str) -> Subquery:
        for known in self._found.subqueries.values():
            if known.query.to_json() == query.to_json():
                return known
        number = len(self._found.subqueries) + 1
        subquery = Subquery(f"{_PROVISIONAL}{number}", query, sql)
        self._found.subqueries[subquery.id] = subquery
        return subquery

    def merged(self, query: Query) -> Query:
        """Return a query that reads what a subquery of it selects from, where that is no more than a selection."""
        stream = query.streams[0]
        inner = None if stream not in self._found.subqueries else self._found.subqueries[stream].query
        if not isinstance(inner, Selection):
            return query
        columns: dict[str, Expression] = {column_name(o.name): o.expression for o in inner.outputs}
        event_time = self._found.definitions[stream].schema.event_time
        columns.setdefault(event_time, Column(inner.event_time, TIMESTAMP))
        return query.over(inner, columns)

    def needed_by(self, query: Query) -> tuple[Subquery, ...]:
        """Return the subqueries that a query reads, itself or through others, inner ones first."""
        needed: set[str] = set()
        waiting = [query]
        while waiting:
            for stream in waiting.pop().streams:
                for query_id in lineages_of(stream):
                    if query_id in self._found.subqueries and query_id not in needed:
                        needed.add(query_id)
                        waiting.append(self._found.subqueries[query_id].query)
        return tuple(each for each in self._found.subqueries.values() if each.id in needed)


def check_readable(select: Select, query: Query) -> None:
    """Raise SqlNotAllowed for a subquery whose rows nothing can read."""
    if (reason := query.emit.unreadable) is not None:
        raise select.sql.not_allowed(reason, select.start)


def all_of_stream(stream: StreamDefinition) -> Selection:
    """Return the query that gives all tuples of a derived stream."""
    schema = stream.schema
    fields = (field for field in schema.fields if field.name not in schema.hidden)
    outputs = tuple(Output(shown_name(f.name), Column(f.name, f.type)) for f in fields)
    row_window = window_behind(stream)
    return Selection(stream.id, None, outputs, event_time=schema.event_time, row_window=row_window)


def _with_equal_types(select: Select, branches: Sequence[Select], queries: Sequence[Query]) -> list[Query]:
    """Return queries with casts to common types of their columns; SqlNotAllowed where there is none."""
    change = [gives_changes(query) for query in queries]
    for branch, changes in zip(branches, change, strict=True):
        if changes != change[0]:
            raise select.sql.not_allowed(
                "Rows of all SELECTs of a UNION ALL must change, or those of none; write EMIT STREAM in all of them.",
                branch.start,
            )
    counts = [len(query.outputs) for query in queries]
    for branch, count in zip(branches, counts, strict=True):
        if count != counts[0]:
            raise select.sql.not_allowed(
                f"All SELECTs of a UNION ALL need as many columns; the first has {counts[0]}, this one {count}."
                " A windowed one begins with window_start and window_end.",
                branch.start,
            )
    columns: list[tuple[Expression, ...]] = []
    for number, outputs in enumerate(zip(*(query.outputs for query in queries), strict=True), start=1):
        expressions = [output.expression for output in outputs]
        types = [expression.type for expression in expressions]
        wanted = None if NULL in types and len(set(types)) == 1 else _common(expressions)
        if wanted is None:
            at = next(branch.start for branch, kind in zip(branches, types, strict=True) if kind != types[0])
            raise select.sql.not_allowed(
                f"Column {number} of all SELECTs of a UNION ALL needs one type; there are"
                f" {' and '.join(dict.fromkeys(map(str, types)))}. Write CAST(… AS {types[0]}).",
                at,
            )
        columns.append(wanted)
    rows = zip(*columns, strict=True)
    return [
        replace(query, outputs=tuple(Output(o.name, e) for o, e in zip(query.outputs, row, strict=True)))
        for query, row in zip(queries, rows, strict=True)
    ]


def _common(expressions: Sequence[Expression]) -> tuple[Expression, ...] | None:
    """Return expressions in their common type, None where there is none; texts are not read as other things."""
    types = {expression.type for expression in expressions} - {NULL}
    if len(types) > 1 and not all(kind.is_numeric for kind in types):
        return None
    return in_one_type(expressions)
