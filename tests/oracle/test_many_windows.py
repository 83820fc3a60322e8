"""Hundreds of random windows at once on one stream: hardly two of them share an edge."""

from __future__ import annotations

import os
import random

import pytest

from tests.kit.client import Api
from tests.oracle.driver import Driver
from tests.oracle.model import SECOND, Aggregation, Create, Delete, Item, Kind, Push, Run, Step, Window
from tests.oracle.test_oracle import AMOUNT, COUNT, GEM_PACK, REVENUE, SCHEMA
from tests.oracle.verify import verify

pytestmark = pytest.mark.service

QUERIES = int(os.environ.get("BRAID_ORACLE_WINDOWS", "100"))
MINUTES = float(os.environ.get("BRAID_ORACLE_MINUTES", "0.5"))
PUSHES = 20
MILLISECOND = 1000


def random_query(rng: random.Random) -> Aggregation:
    """Return a query with a window of whole milliseconds, none of them like another's, and a random predicate."""
    slide = rng.randint(1000, 30_000)
    size = rng.choice((slide, rng.randint(slide, 60_000)))
    window = Window(size * MILLISECOND, slide * MILLISECOND, rng.randint(0, slide) * MILLISECOND, "function")
    tested = rng.choice((None, f"user_id > {rng.randint(0, 5)}", f"gem_pack <> {rng.randint(0, 3)}", "price > 100"))
    highest_price = Item("MAX(price)", "most", Kind.DOUBLE)
    items = (COUNT, rng.choice((REVENUE, AMOUNT, highest_price)))
    if rng.random() < 0.5:
        return Aggregation((GEM_PACK, *items), window, ("gem_pack",), tested)
    return Aggregation(items, window, (), tested)


def random_run(rng: random.Random) -> Run:
    """Return a run in which half of the queries are there at first, and others come and go."""
    later = max(1, QUERIES // (2 * PUSHES))
    span = int(MINUTES * 60 * SECOND) // PUSHES
    steps: list[Step] = [Create(tuple(random_query(rng) for _ in range(QUERIES - later * PUSHES)))]
    for _ in range(PUSHES):
        steps.append(Push(1000, rng.randint(0, 2**31), span, late_rate=0.02))
        steps.append(Create(tuple(random_query(rng) for _ in range(later))))
        steps.append(Delete(tuple(rng.sample(range(QUERIES), later // 4))))
    return Run(SCHEMA, tuple(steps))


@pytest.mark.long
def test_many_random_windows_give_what_each_of_them_holds(api: Api) -> None:
    driver = Driver(api, SCHEMA)
    driver.carry_out(random_run(random.Random(QUERIES)))
    driver.finish()
    verify(driver)
