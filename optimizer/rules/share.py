"""The sharing rule: which operator runs a query, and so which queries share its work (thesis 4.2)."""

from __future__ import annotations

from operators.joins.parts import attributes_of, operators_of
from operators.queries import Join, Query, Selection
from operators.windows import SessionWindow


def share(query: Query) -> str:
    """Return the id of the operator that runs ``query``.

    AStream's assumption: operators can be shared as long as queries have the same streams, after the same lookups in
    static tables, and the same partitioning attributes. Windows, predicates and aggregates may differ; they are shared
    slice by slice, and sessions with sessions. Joins with the same inputs in the same order share an operator; each
    input is shared with all joins that compare it by the same attributes.
    """
    if isinstance(query, Selection):
        return f"selection:{query.input}"
    if isinstance(query, Join):
        compared = ";".join(",".join(map(str, attributes)) for attributes in attributes_of(query))
        return f"join:{' '.join(operators_of(query))} on {compared}"
    kind = "sessions" if isinstance(query.window, SessionWindow) else "aggregation"
    return f"{kind}:{query.input}:{','.join(str(key) for key in query.keys)}"
