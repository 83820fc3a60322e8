"""Random queries are valid, repeatable, and match as many tuples as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bench_driver.first_mark_workload import (
    GEM_PACKS,
    LEAST_CENTS,
    MOST_CENTS,
    USERS,
    Predicate,
    purchases_stream,
    random_predicates,
    revenue_query,
)
from operators.evaluation import evaluate
from operators.queries import Aggregation
from session.sql.select import plan_select
from session.statements import read_create_stream, to_definition
from sources import generator
from sources.generator import GeneratorConnector

CATALOG = {"purchases": to_definition(read_create_stream(purchases_stream(100_000)), "s-1", "", 0)}


def test_the_same_seed_gives_the_same_predicates() -> None:
    assert random_predicates(200) == random_predicates(200)
    assert random_predicates(200, seed=1) != random_predicates(200)


def test_a_thousand_queries_are_mostly_different_and_all_planned() -> None:
    predicates = random_predicates(1000)
    assert len({p.text for p in predicates}) > 600  # ten packs make few different ones
    for predicate in predicates:
        assert isinstance(plan_select(revenue_query(predicate), CATALOG), Aggregation)


def test_predicates_hold_for_the_share_of_generated_tuples_they_say() -> None:
    connector = GeneratorConnector(replace(CATALOG["purchases"], created_us=0))
    tuples = pa.Table.from_batches([chunk.tuples for chunk in connector.read("0", 0, 200_000)])
    columns = {name: tuples[name].combine_chunks() for name in tuples.column_names}
    for predicate in random_predicates(60):
        query = plan_select(revenue_query(predicate), CATALOG)
        assert isinstance(query, Aggregation)
        assert query.where is not None
        held = evaluate(query.where, columns, tuples.num_rows)
        assert np.mean(held.to_numpy(zero_copy_only=False)) == pytest.approx(predicate.selectivity, abs=0.01)


def test_the_constants_of_the_workload_are_those_of_the_generator() -> None:
    assert (LEAST_CENTS, MOST_CENTS) == (generator.LEAST_CENTS, generator.MOST_CENTS)
    assert generator.GEM_PACKS == GEM_PACKS
    assert generator.GeneratorOptions("purchases").keys == USERS


def test_a_selectivity_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1\.5"):
        Predicate("price > 1", 1.5)
