"""A small workload for a peer that is really run: sums of a stream, which comes at a rate."""

from __future__ import annotations

from braid.bench_driver.query_spec import ColumnRef, Comparison, QuerySpec, WindowSpec
from braid.bench_driver.workload import StreamSpec, Workload

AT_ONCE = float("inf")


def workload(rate: float) -> Workload:
    """Return the workload with one query, which starts at so many tuples a second."""
    return Workload(
        name="test",
        about="sums of a stream",
        source="4.4",
        streams=(StreamSpec("a", "astream", {"keys": 10}),),
        template="aggregation",
        options={},
        counts=(1,),
        start_rate=rate,
    )


def aggregation(constant: int, size_ms: int = 1000) -> QuerySpec:
    """Return the sums of the tuples below a constant."""
    return QuerySpec(
        streams=("a",),
        window=WindowSpec(size_ms, size_ms),
        comparisons=(Comparison("a", "field1", "<", constant),),
        keys=(ColumnRef("a", "key"),),
        measure=ColumnRef("a", "field0"),
    )
