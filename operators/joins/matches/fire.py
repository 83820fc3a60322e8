"""Firing a join operator: what its queries ask decides which rows are formed now, and which when somebody reads them.

- groups that are computed key by key, with no row formed (:mod:`braid.operators.joins.matches.groups`);
- rows that are formed now, to be tested or grouped (:mod:`braid.operators.joins.matches.conditions`,
  :mod:`braid.operators.joins.session_joins`);
- rows that readers form, out of a block (:mod:`braid.operators.joins.matches.block`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from braid.operators.aggregation.space_queries import Predicates
from braid.operators.joins.matches.conditions import fire_tested
from braid.operators.joins.matches.counts import count_alone, count_together
from braid.operators.joins.matches.firing import JoinOperator, due_joins, join_windows
from braid.operators.joins.matches.groups import fire_groups
from braid.operators.joins.matches.late_rows import JoinedRows, joined_rows
from braid.operators.joins.session_joins import fire_session_joins
from braid.operators.state.bucket import Bucket
from braid.operators.state.tuple_bucket import TupleBucket
from braid.operators.windowing.early_rows import combine_fired
from braid.operators.windowing.fired_rows import Fired


def fire_joins(
    operator: JoinOperator,
    buckets: Mapping[str, Sequence[Bucket]],
    tuples: Mapping[str, Sequence[TupleBucket]],
    predicates: Predicates,
    after: int,
    upto: int,
    max_rows: int,
    failures: dict[str, str],
) -> tuple[Fired | None, JoinedRows | None]:
    """Return what the windows give that end in ``(after, upto]``: rows that are formed, and what others are formed of.

    ``buckets`` and ``tuples`` are by operator of the parts. Of a window ``max_rows`` are kept; ``failures`` gets
    messages by query id.
    """
    if operator.is_sessions:
        return fire_session_joins(operator, tuples, after, upto, max_rows, failures), None
    due = due_joins(operator, buckets, tuples, after, upto)
    if due is None:
        return None, None
    counted, uncounted = count_together(due, predicates)
    windows = list(join_windows(due, uncounted, predicates, failures))
    groups = fire_groups((w for w in windows if w.join.is_factorised and w.join.grouping), failures)
    tested = fire_tested([w for w in windows if not w.join.is_factorised], tuples, max_rows, failures)
    formed = [part for part in (groups, tested) if part is not None]
    counted = counted.with_more(count_alone(due.keys, [window for window in windows if window.join.is_formed_late]))
    return combine_fired(formed) if formed else None, joined_rows(
        counted, tuples, max_rows
    ) if counted.windows else None
