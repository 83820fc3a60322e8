"""What goes wrong for some queries, in a source task or in a partition, is told to them, and the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.operators.aggregation import partition as aggregation_partition
from braid.operators.aggregation.shared_aggregation import SharedAggregation
from braid.operators.failure_isolation import isolate_failures
from braid.operators.queries import Query
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.state import components
from braid.operators.stream_operators import StreamOperators
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage
from tests.operators.pipeline import STREAM, K, Pipeline, S, V, aggregation, batch_of, changelog, live_of

SUM, GREATEST = Measure("sum", V), Measure("max", S)


def row(t: int) -> dict[str, Any]:
    return {"k": 0, "v": 1, "s": "a", "t": t}


def test_errors_of_queries_are_told() -> None:
    failures: dict[str, str] = {"c": "before"}
    with isolate_failures(["a", "b"], failures):
        raise pa.ArrowInvalid("too large")
    assert failures == {"a": "ArrowInvalid: too large", "b": "ArrowInvalid: too large", "c": "before"}


@pytest.mark.parametrize(
    "problem", [MemoryError(), OSError("no space"), pa.ArrowMemoryError("x"), CorruptData("bytes")]
)
def test_errors_of_the_machine_are_not(problem: Exception) -> None:
    failures: dict[str, str] = {}
    with pytest.raises(type(problem)), isolate_failures(["a"], failures):
        raise problem
    assert not failures


def test_a_measure_that_cannot_be_encoded_fails_its_queries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = components.encode

    def encode(measure: Measure, column: pa.Array) -> components.Encoded:
        if measure == GREATEST and column.null_count < len(column):
            raise pa.ArrowInvalid("out of range")
        return whole(measure, column)

    monkeypatch.setattr(components, "encode", encode)
    live = live_of(*(aggregation(measures=measures) for measures in ((COUNT_ALL, SUM), (SUM, GREATEST), (GREATEST,))))
    output = StreamOperators(live, STREAM, 1).process(batch_of([row(1), row(2)]), None)
    assert output.failures == dict.fromkeys(["q1", "q2"], "ArrowInvalid: out of range")
    ((_, bucket),) = output.buckets
    assert int(bucket.component(COUNT_ALL.name).sum()) == 2


def test_an_operator_that_cannot_add_up_fails_its_queries_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SharedAggregation.aggregate

    def aggregate(self: SharedAggregation, *arguments: Any) -> Any:
        for group, bucket in whole(self, *arguments):
            yield group, bucket
            if bucket.operator == "s":
                raise ZeroDivisionError("by zero")

    monkeypatch.setattr(SharedAggregation, "aggregate", aggregate)
    live = live_of(aggregation(keys=(K,)), aggregation(keys=(S,)), aggregation(keys=(S,)))
    output = StreamOperators(live, STREAM, 1).process(batch_of([row(1)]), None)
    assert output.failures == dict.fromkeys(["q1", "q2"], "ZeroDivisionError: by zero")
    assert [bucket.operator for _, bucket in output.buckets] == ["k"]


def test_a_partition_that_cannot_fire_fails_the_queries_of_the_operator_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = aggregation_partition.fire

    def fire(buckets: Any, *rest: Any) -> Any:
        if buckets[0].operator == "s":
            raise IndexError("beyond the end")
        return whole(buckets, *rest)

    monkeypatch.setattr(aggregation_partition, "fire", fire)
    created: list[tuple[str, int, Query]] = [
        ("a", 0, aggregation(keys=(K,))),
        ("b", 1, aggregation(keys=(S,))),
        ("c", 2, aggregation(keys=(K,))),
    ]
    pipeline = Pipeline(Storage(str(tmp_path)))
    pipeline.run([row(0)], [changelog(1, created)])
    pipeline.run([row(1000)])
    assert {name: message for partition in pipeline.partitions for name, message in partition.failures.items()} == {
        "b": "IndexError: beyond the end"
    }
    assert set(pipeline.rows) == {"a", "c"}
