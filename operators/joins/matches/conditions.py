"""Joins of which more is asked than counts by key can answer: conditions, keys or measures across inputs.

Their rows are formed when the window fires, some at a time, tested, and kept or aggregated. That costs what the join
gives before it is tested, so a window with too many such rows is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from braid.operators.joins.inputs import join_of
from braid.operators.joins.matches.block import JoinBlock
from braid.operators.joins.matches.counts import count_alone
from braid.operators.joins.matches.firing import JoinedWindow
from braid.operators.joins.matches.formed_rows import MAX_FORMED, EvaluationFailed, rows_or_groups
from braid.operators.joins.matches.groups import fired_windows
from braid.operators.joins.matches.late_rows import joined_rows
from braid.operators.joins.matches.partners import Places, pieces
from braid.operators.joins.matches.relations import MANY
from braid.operators.joins.matches.rows import BlockWindow, form_rows, index_window
from braid.operators.state.tuple_bucket import TupleBucket
from braid.operators.tuples import Tuples
from braid.operators.windowing.fired_rows import Fired
from braid.sources.core.columns import arrays_of


def fire_tested(
    windows: Sequence[JoinedWindow],
    tuples: Mapping[str, Sequence[TupleBucket]],
    max_rows: int,
    failures: dict[str, str],
) -> Fired | None:
    """Return the rows of windows of one join operator, or their groups; None for no rows.

    Of each window ``max_rows`` are kept that satisfy the conditions. ``tuples`` are the tuple buckets of each input's
    operator; ``failures`` gets messages by query id, also of windows that are left out.
    """
    if not windows:
        return None
    block = joined_rows(count_alone([contents.keys for contents in windows[0].contents], windows), tuples, MANY).block
    tables = []
    for window in windows:
        live = window.live_inputs[0].live
        if window.joined.total > MAX_FORMED:
            failures[live.id] = (
                f"A window is left out: more than {MAX_FORMED} of its rows in one partition would have to be tested."
                " Join by more columns, or make the window shorter."
            )
            continue
        try:
            rows = rows_or_groups(live, _pieces(window, block), max_rows, failures)
        except EvaluationFailed as problem:
            failures[live.id] = str(problem)
            continue
        if rows is not None:
            tables.append((window, rows))
    return fired_windows(tables)


def _pieces(window: JoinedWindow, block: JoinBlock) -> Iterator[Tuples]:
    """Return the rows of a window, some at a time."""
    live = window.live_inputs[0].live
    join = join_of(live)
    index = index_window(join, block, window.start, window.end, live.active_from)
    block_window = BlockWindow(0, window.start, window.end, index.total)

    def form(places: Sequence[Places]) -> Tuples:
        rows = form_rows(join, block, block_window, places)
        return Tuples(arrays_of(rows), rows.num_rows)

    return pieces(join, index, form)
