"""Records of queries as tests need them, without a session."""

from __future__ import annotations

from typing import Any

from braid.session.state.query_record import RETIRED, QueryRecord
from tests.session.queries import aggregation, selection


def record(number: int, state: str = RETIRED, finished_us: int | None = 7, **fields: Any) -> QueryRecord:
    """Return the record of query ``q-number``."""
    query = selection("s-1") if number % 2 else aggregation("s-1")
    values = {
        "query": query,
        "operator": "o",
        "labels": {"parity": str(number % 2)},
        "stream_names": {"s-1": "purchases"},
        **fields,
    }
    return QueryRecord(f"q-{number}", f"SELECT {number}", created_us=1, state=state, finished_us=finished_us, **values)
