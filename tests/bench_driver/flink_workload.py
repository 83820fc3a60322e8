"""A workload for Flink: sums of a stream at a rate."""

from __future__ import annotations

from braid.bench_driver.query_spec import ColumnRef, Comparison, QuerySpec, WindowSpec
from braid.bench_driver.workload import StreamSpec, Workload

RATE = 2_000
AT_ONCE = float("inf")
WORKLOAD = Workload(
    name="test",
    about="sums of a stream",
    source="4.4",
    streams=(StreamSpec("a", "astream", {"keys": 10}),),
    template="aggregation",
    options={},
    counts=(1,),
    start_rate=RATE,
)


def aggregation(constant: int) -> QuerySpec:
    return QuerySpec(
        streams=("a",),
        window=WindowSpec(1000, 1000),
        comparisons=(Comparison("a", "field1", "<", constant),),
        keys=(ColumnRef("a", "key"),),
        measure=ColumnRef("a", "field0"),
    )
