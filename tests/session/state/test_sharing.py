"""Equal parts of queries are kept once, and equal is not the same."""

from __future__ import annotations

from dataclasses import replace

from braid.operators.expressions import Literal
from braid.operators.queries import Selection
from braid.operators.query_parts import Output
from braid.session.state.sharing import Shared, shared, shared_dict
from braid.sources.core.schema import DOUBLE, INT
from tests.session.queries import aggregation, selection


def test_all_but_the_predicate_is_shared() -> None:
    for make in (aggregation, selection):
        first = shared(make("s-1"))
        second = shared(replace(make("s-1"), where=Literal(None, INT)))
        assert first == make("s-1")
        assert second.outputs is first.outputs
        assert second.where == Literal(None, INT)
    assert shared(aggregation("s-1")).window is shared(aggregation("s-1")).window


def test_what_is_equal_but_not_the_same_stays_apart() -> None:
    zeros = [
        shared(Selection("s-1", None, (Output("zero", Literal(value, kind)),)))
        for value, kind in ((0.0, DOUBLE), (-0.0, DOUBLE), (0, INT))
    ]
    assert [str(zero.outputs[0].expression) for zero in zeros] == ["0.0", "-0.0", "0"]


def test_dicts_are_shared() -> None:
    assert shared_dict({"a": 1}) is shared_dict({"a": 1})
    assert shared_dict({"a": 2}) == {"a": 2}
    assert shared_dict({"a": None}) == {"a": None}


def test_the_tables_are_bounded() -> None:
    table = Shared(most=3)
    for value in range(100):
        assert table(value, str(value)) == str(value)
        assert len(table._values) <= 3
