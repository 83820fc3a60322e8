"""What an operator over windows of one stream emits in a batch: rows of windows that are final, and early ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from braid.operators.aggregation.operator_queries import OperatorQueries
from braid.operators.event_times import EARLIEST
from braid.operators.failure_isolation import isolate_failures
from braid.operators.operator import FiringBatch
from braid.operators.windowing.early_rows import Current, combine_fired, with_change_columns
from braid.operators.windowing.emission_log import reach_of
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windowing.fired_rows import Fired

FireWindows = Callable[[str, OperatorQueries, int, int, FiringBatch], Fired | None]
"""Returns the rows of queries of an operator, given by its name, for the windows that end in ``(after, upto]``."""


def emit(operators: Mapping[str, OperatorQueries], batch: FiringBatch, fire: FireWindows) -> Iterator[FiredBlock]:
    """Yield a block for each operator with rows to emit; what is emitted early is kept in ``batch.emitted``."""
    for name, operator in operators.items():
        parts: Sequence[Fired] = ()
        with batch.work.timed(name), isolate_failures((query.id for query in operator.queries), batch.failures):
            parts = _emit_one(name, operator, batch, fire)
        if parts:
            yield FiredBlock(name, operator.queries, combine_fired(parts))


def _emit_one(name: str, operator: OperatorQueries, batch: FiringBatch, fire: FireWindows) -> Sequence[Fired]:
    passed, reached = batch.before.get(operator.stream), batch.after.get(operator.stream)
    rows = None
    if operator.final.queries and name in batch.held.buckets and reached is not None and reached != passed:
        rows = fire(name, operator.final, EARLIEST if passed is None else passed, reached, batch)
        if rows is not None and operator.final.emits_changes:
            rows = with_change_columns(rows, batch.now_us)
    early = None
    if operator.early:
        early = _early(name, operator, batch, fire, passed, reached)
    elif name in batch.emitted.operators:
        batch.emitted.revise(name, None, (), passed, reached, batch.now_us)
    return [part for part in (rows, early) if part is not None]


def _early(
    name: str,
    operator: OperatorQueries,
    batch: FiringBatch,
    fire: FireWindows,
    passed: int | None,
    reached: int | None,
) -> Fired | None:
    """Return the early rows, from what the windows hold now that new buckets may have changed."""
    queries = batch.emitted.counted(operator.early)
    new_buckets = [bucket for bucket in batch.new_buckets if bucket.operator == name]
    current = None
    if new_buckets:
        after, upto = reach_of(new_buckets, queries, passed)
        rows = fire(name, OperatorQueries(queries, operator.predicates), after, upto, batch)
        current = Current(rows, after, upto, frozenset(query.slot for query in queries if query.id in batch.failures))
    return batch.emitted.revise(name, current, queries, passed, reached, batch.now_us)
