"""Session windows as a kind of operator: shown, named and read as aggregations are."""

from __future__ import annotations

from dataclasses import replace

from braid.operators.aggregation.kind import AGGREGATIONS
from braid.operators.query_parts import SESSIONS
from braid.operators.sessions.partition import SessionPartition
from braid.operators.sessions.source import SessionSource

_WHY = "rows within the shortest gap of the operator's queries stay together"

SESSION_AGGREGATIONS = replace(
    AGGREGATIONS,
    name=SESSIONS,
    evaluation=lambda _: {"form": "fragments", "why": _WHY},
    cells=None,
    source_side=SessionSource,
    partition_side=SessionPartition,
)
