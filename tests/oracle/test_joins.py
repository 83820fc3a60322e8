"""Joins through the service against DuckDB: random joins of three streams, made and retired while tuples come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.client import Api
from tests.kit.examples import examples
from tests.oracle.join_run import JoinRun

pytestmark = pytest.mark.service

ROUNDS = 6


@pytest.mark.parametrize("seed", range(11, 11 + examples(1)))
def test_joins_give_the_rows_that_duckdb_gives(api: Api, seed: int, tmp_path: Path) -> None:
    run = JoinRun(api, seed, joins=24, rounds=ROUNDS, folder=tmp_path)
    for _ in range(ROUNDS):
        run.next_round()
    run.finish()
    run.verify()
