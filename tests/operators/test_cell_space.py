"""Cell spaces: each tuple's query-set is what evaluating every query gives."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.predicates.cell_space import (
    NO_CELL,
    Groups,
    LineSpace,
    assign_cells,
    cell_spaces,
    set_spaces,
)
from braid.operators.predicates.cells import LineCells, SetCells
from braid.operators.predicates.index import PredicateIndex
from braid.operators.predicates.query_set import unpack
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.query_parts import Measure
from braid.operators.tuples import Tuples
from braid.sources.core.schema import BOOLEAN, INT
from tests.kit.examples import examples
from tests.operators.pipeline import K, S, V, aggregation, batch_of, compare, live_of

OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


def where_over(rng: random.Random, dimensions: int) -> Expression | None:
    columns = [K, V, S][:dimensions]
    parts = [compare(c, rng.choice(OPERATORS), rng.choice("abc") if c is S else rng.randint(0, 4)) for c in columns]
    return Call("and", tuple(parts), BOOLEAN) if parts else None


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dimensions=st.lists(st.integers(0, 3), min_size=1, max_size=80),
    length=st.integers(1, 60),
)
def test_query_sets_of_tuples_are_those_of_each_query(seed: int, dimensions: list[int], length: int) -> None:
    rng = random.Random(seed)
    wheres = [where_over(rng, n) for n in dimensions]
    queries = list(live_of(*(aggregation(w) for w in wheres)).by_slot.values())
    rng.shuffle(queries)
    rows = [
        {"k": rng.choice([None, *range(6)]), "v": rng.randint(-1, 5), "s": rng.choice([None, *"abcd"]), "t": 0}
        for _ in range(length)
    ]
    tuples = Tuples.of(batch_of(rows))
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    cells = index.cells_of(tuples)
    spaces = set_spaces(queries, index, 2)
    assert sorted(q.slot for space in spaces for q in space.queries) == list(range(len(queries)))
    for space, rows in zip(spaces, Groups(spaces).rows(cells, length), strict=True):
        cell, meanings = space.for_bucket(*space.assign(cells, length))
        query_sets = meanings.query_sets
        assert cell.max() < len(query_sets)
        left_out = np.setdiff1d(np.arange(length), np.arange(length) if rows is None else rows)
        assert (cell[left_out] == NO_CELL).all()
        for query in space.queries:
            mine = np.ones(length, dtype=np.bool_)
            for name, mask in index.masks_of(query.id).items():
                mine &= mask[cells[name]]
            got = unpack(query_sets, np.array([query.slot]))[cell, 0] & (cell != NO_CELL)
            assert got.tolist() == mine.tolist(), str(query.query.where)
        outside = [q.slot for q in queries if q not in space.queries]
        assert not unpack(query_sets, np.array(outside, dtype=np.int64)).any()
        wanted = np.any(unpack(query_sets, np.array([q.slot for q in space.queries])), axis=1)[cell]
        assert ((cell == NO_CELL) | wanted).all(), "a tuple that nobody selects must have no cell"


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 30), length=st.integers(1, 60))
def test_cells_of_one_column_are_true_or_false_as_a_whole(seed: int, count: int, length: int) -> None:
    rng = random.Random(seed)
    column = rng.choice([K, V, S])
    constants = "abc" if column is S else range(5)
    queries = list(
        live_of(
            *(aggregation(compare(column, rng.choice(OPERATORS), rng.choice(constants))) for _ in range(count))
        ).by_slot.values()
    )
    rows = [
        {"k": rng.choice([None, *range(6)]), "v": rng.randint(-1, 5), "s": rng.choice([None, *"abcd"]), "t": 0}
        for _ in range(length)
    ]
    tuples = Tuples.of(batch_of(rows))
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    cells = index.cells_of(tuples)
    (space,) = cell_spaces(queries, index, 1)
    assert isinstance(space, LineSpace)
    cell, meanings = assign_cells(space, cells, length)
    selected = np.zeros(length, dtype=np.bool_)
    for query in queries:
        ((name, mask),) = index.masks_of(query.id).items()
        truth = index.predicates[query.id].truths[name].mask_over(meanings.boundaries)
        inside = cell != NO_CELL
        assert (mask[cells[name]] == (truth[cell] & inside)).all()
        selected |= mask[cells[name]]
    assert ((cell != NO_CELL) == selected).all(), "a tuple that nobody selects must have no cell"


@pytest.mark.parametrize("slots", [1, 200])
def test_one_dimension_keeps_the_order_of_values_and_merges_what_nobody_tells_apart(slots: int) -> None:
    queries = live_of(*(aggregation(compare(V, ">", 10 * (i % 4))) for i in range(slots))).by_slot.values()
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    (space,) = cell_spaces(list(queries), index, 4)
    rows = [{"v": v, "t": 0} for v in range(-5, 50)]
    cell, meanings = assign_cells(space, index.cells_of(Tuples.of(batch_of(rows))), len(rows))
    assert isinstance(meanings, LineCells)
    assert meanings.count == min(slots, 4) + 2  # one per stretch between constants, and NULL
    inside = cell[cell != NO_CELL]
    assert (np.diff(inside) >= 0).all()


def test_extremes_of_one_query_are_not_kept_in_the_cells_of_all() -> None:
    adding = [aggregation(compare(V, ">", i), measures=[Measure("sum", K)]) for i in range(100)]
    asking = aggregation(compare(V, ">", 7), measures=[Measure("sum", K), Measure("max", K)])
    queries = list(live_of(*adding, asking).by_slot.values())
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    sums, extremes = cell_spaces(queries, index, 2)
    assert (sums.key, extremes.key) == (SpaceKey(("v",)), SpaceKey(("v",), has_extremes=True))
    assert [query.query for query in extremes.queries] == [asking]
    assert isinstance(sums, LineSpace)
    assert isinstance(extremes, LineSpace)
    assert (sums.cells.count, extremes.cells.count) == (102, 3)


def test_a_long_in_does_not_cut_the_cells_of_all() -> None:
    wanted = range(0, 1000, 10)
    naming = Call("in", (V, *(Literal(value, INT) for value in wanted)), BOOLEAN)
    measures = [Measure("sum", K)]
    shared = [aggregation(where, measures=measures) for where in (compare(V, ">", 500), naming)]
    queries = list(live_of(*shared).by_slot.values())
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    comparing, listing = cell_spaces(queries, index, 1)
    assert (comparing.key, listing.key) == (SpaceKey(("v",)), SpaceKey(("v",), is_scattered=True))
    tuples = Tuples.of(batch_of([{"v": v, "t": 0} for v in range(1000)]))
    cell, stretches = assign_cells(comparing, index.cells_of(tuples), 1000)
    assert (stretches.count, np.flatnonzero(cell != NO_CELL).tolist()) == (3, list(range(501, 1000)))
    cell, sets = assign_cells(listing, index.cells_of(tuples), 1000)
    assert (sets.count, np.flatnonzero(cell != NO_CELL).tolist()) == (2, list(wanted))


def test_many_cells_for_few_tuples() -> None:
    """Codes of cells are far apart when both columns have many constants."""
    both = [Call("and", (compare(K, "<", i), compare(V, "<", i)), BOOLEAN) for i in range(60)]
    queries = list(live_of(*(aggregation(w) for w in both)).by_slot.values())
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    (space,) = cell_spaces(queries, index, 1)
    rows = [{"k": 10, "v": 20, "t": 0}, {"k": 70, "v": 1, "t": 0}, {"k": 20, "v": 10, "t": 0}]
    cell, meanings = assign_cells(space, index.cells_of(Tuples.of(batch_of(rows))), 3)
    assert isinstance(meanings, SetCells)
    query_sets = meanings.query_sets
    assert cell[1] == NO_CELL
    assert cell[0] == cell[2]
    assert unpack(query_sets, np.arange(60))[cell[0]].tolist() == [i > 20 for i in range(60)]


def test_many_groups_take_what_their_queries_select() -> None:
    """More groups than a word has bits, each with a query of its own."""
    both = [Call("and", (compare(K, "=", i // 10), compare(V, "=", i % 10)), BOOLEAN) for i in range(100)]
    queries = [replace(q, group=q.slot) for q in live_of(*(aggregation(w) for w in both)).by_slot.values()]
    index = PredicateIndex()
    index.update({q.id: q.query.where for q in queries})
    spaces = cell_spaces(queries, index, 2)
    tuples = [{"k": i // 10, "v": i % 10, "t": 0} for i in reversed(range(100))]
    taken = Groups(spaces).rows(index.cells_of(Tuples.of(batch_of(tuples))), len(tuples))
    assert [rows.tolist() for rows in taken if rows is not None] == [[99 - space.queries[0].slot] for space in spaces]
