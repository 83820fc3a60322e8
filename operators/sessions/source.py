"""Session windows in source tasks: fragments of tuples that no query's gap parts."""

from __future__ import annotations

from operators.aggregation.source import AggregationSource, SourceOperator
from operators.operator import Arrived
from operators.query_parts import SESSIONS
from operators.sessions.sessions import fragments
from operators.state.bucket import Bucket
from operators.state.sliced_tuples import SlicedTuples


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
