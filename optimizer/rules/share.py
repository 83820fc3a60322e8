"""The sharing rule: which operator runs a query, and so which queries share its work (thesis 4.2)."""

from __future__ import annotations

from operators.queries import Query, Selection, SessionWindow


def share(query: Query) -> str:
    """Return the id of the operator that runs ``query``.

    AStream's assumption: operators can be shared as long as queries have the same streams and the same partitioning
    attributes. Windows, predicates and aggregates may differ; they are shared slice by slice, and sessions with
    sessions.
    """
    if isinstance(query, Selection):
        return f"selection:{query.stream}"
    kind = "sessions" if isinstance(query.window, SessionWindow) else "aggregation"
    return f"{kind}:{query.stream}:{','.join(str(key) for key in query.keys)}"
