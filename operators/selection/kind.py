"""Selections as a kind of operator."""

from __future__ import annotations

from braid.operators.operator import OperatorKind
from braid.operators.predicates.analysis import analyse
from braid.operators.queries import Selection
from braid.operators.query_parts import SELECTION
from braid.operators.selection.reading import SelectionReader
from braid.operators.selection.source import SelectionSource
from braid.operators.tuple_bytes import bytes_a_tuple


def operator_of(query: Selection) -> str:
    """Return the id of the operator that runs a selection: the one of its input."""
    return f"selection:{query.input}"


def _evaluation(query: Selection) -> dict[str, str]:
    names = ", ".join(analyse(query.where).dimensions)
    return {"form": "query-sets", "why": f"selected rows are kept one by one; tested: {names or 'nothing'}"}


SELECTIONS = OperatorKind(
    name=SELECTION,
    shown_as="selection",
    has_emit=False,
    operator_of=operator_of,
    source_operators=lambda query: (operator_of(query),),
    partitioned_by=lambda _: (),
    evaluation=_evaluation,
    rule=lambda streams, _: f"all selections over {streams} share one operator",
    bytes_a_tuple=lambda query: bytes_a_tuple((), (), analyse(query.where).residuals.values()),
    source_side=SelectionSource,
    partition_side=None,
    reader=SelectionReader,
)
