"""What the demo sends is valid, and its changes fit into its time."""

from __future__ import annotations

from itertools import islice

import pytest

from braid.bench_driver.demo_script import (
    EXAMPLES,
    MORE,
    STREAMS,
    added_later,
    change_times,
    more_examples,
)
from braid.operators.queries import Aggregation, Selection
from braid.session.commands.statements import read_create_stream, to_definition
from braid.sources.core.schema import StreamDefinition
from tests.kit.plans import plan_select


@pytest.fixture
def catalog() -> dict[str, StreamDefinition]:
    statements = [read_create_stream(sql) for sql in STREAMS]
    return {s.name: to_definition(s, f"s-{i}", "", 0) for i, s in enumerate(statements)}


def test_every_query_of_the_demo_is_planned(catalog: dict[str, StreamDefinition]) -> None:
    examples = [*EXAMPLES, *more_examples(), *(added_later(i) for i in range(1, 8))]
    kinds = {type(plan_select(example.sql, catalog)) for example in examples}
    assert kinds == {Aggregation, Selection}
    assert len({example.name for example in examples}) == len(examples)


def test_the_fifty_more_differ_in_their_constants() -> None:
    assert len({example.sql for example in more_examples()}) == MORE


def test_two_queries_have_their_rows_shown() -> None:
    assert sum(example.watched for example in EXAMPLES) == 2


@pytest.mark.parametrize("seconds", [1, 5, 15, 36, 60, 61, 600])
def test_a_demo_adds_and_retires_and_leaves_time_to_see_it(seconds: int) -> None:
    times = list(change_times(seconds))
    assert len(times) >= 2
    assert times == sorted(times)
    between = times[1] - times[0]
    assert times[-1] <= seconds - 0.9 * between


def test_an_endless_demo_goes_on_changing() -> None:
    assert list(islice(change_times(None), 3)) == [12.0, 24.0, 36.0]
