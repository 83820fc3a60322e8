"""Session windows in source tasks: fragments of tuples that no query's gap parts."""

from __future__ import annotations

from braid.operators.aggregation.source import AggregationSource, SourceOperator
from braid.operators.operator import Arrived
from braid.operators.query_parts import SESSIONS
from braid.operators.sessions.sessions import fragments
from braid.operators.state.bucket import Bucket
from braid.operators.state.sliced_tuples import SlicedTuples


class SessionSource(AggregationSource):
    """The operators of session windows over an input: as those of aggregations, with fragments instead of slices."""

    kind = SESSIONS

    def _add_up(self, operator: SourceOperator, arrived: Arrived) -> tuple[SlicedTuples, list[tuple[int, Bucket]]]:
        sliced = operator.in_one_slice(arrived, self._groups)
        buckets: list[tuple[int, Bucket]] = []
        for space, measures in operator.spaces:
            buckets += fragments(
                sliced, arrived.times, space, arrived.cells, measures, operator.name, self._epoch, operator.cuts
            )
        return sliced, buckets
