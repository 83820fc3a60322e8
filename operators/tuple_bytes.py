"""How many bytes a tuple takes, besides its columns, while a source task adds it up.

A source task computes every key, argument and residual condition once for a chunk of tuples, and keeps them until all
operators have had the chunk. So chunks must be shorter the more there is of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from braid.operators.expressions import Call, Expression
from braid.operators.functions.text_size import constant_bytes
from braid.operators.predicates.analysis import analyse
from braid.operators.predicates.bitmaps import compared_values
from braid.operators.queries import Aggregation
from braid.operators.query_parts import Measure
from braid.operators.state.components import components_of

_NUMBER_BYTES = 8
_CONDITION_BYTES = 8  # its truth, and the cell that this is, or bitmaps of its parts


def bytes_a_tuple(keys: Iterable[Expression], measures: Iterable[Measure], residuals: Iterable[Expression]) -> int:
    """Return how many bytes some keys, measures and residual conditions take for a tuple, each counted once.

    Of texts only the parts that are the same in every row are counted.
    """
    keys, by_name = set(keys), {measure.name: measure for measure in measures}
    residuals = set(residuals)
    arguments = {measure.argument for measure in by_name.values() if measure.argument is not None}
    keys |= {argument for measure in by_name.values() for argument in measure.by_value}
    components = {component for measure in by_name.values() for component in components_of(measure)}
    values = sum(_NUMBER_BYTES for value in keys | arguments if isinstance(value, Call))
    texts = sum(map(constant_bytes, keys | arguments | residuals))
    numbers = sum(component.dtype.itemsize for component in components)
    compared = {value for residual in residuals for value in compared_values(residual)}
    return values + texts + numbers + _NUMBER_BYTES * (len(keys) + len(compared)) + _CONDITION_BYTES * len(residuals)


def aggregation_bytes(query: Aggregation) -> int:
    """Return how many bytes an aggregation takes for a tuple."""
    taken = bytes_a_tuple(query.keys, query.measures, analyse(query.where).residuals.values())
    return taken + bytes_again(query.keys, query.measures)


def bytes_again(keys: Sequence[Expression], measures: Iterable[Measure]) -> int:
    """Return what each COUNT(DISTINCT …) takes besides: it has the keys of its query once more."""
    return _NUMBER_BYTES * len(keys) * sum(len(measure.by_value) for measure in measures)
