"""The statements that measurements send: generated streams, and queries by the thesis's template (figure 4.8)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

SEED = 7
OPERATORS = ("=", ">", "<", ">=", "<=")
# what the generator makes up: 1000 users, 10 packs, prices from 0.99 to 99.99 in cents, all uniform
USERS = 1000
GEM_PACKS = 10
LEAST_CENTS, MOST_CENTS = 99, 9_999

QUIET_STREAM = (
    "CREATE STREAM quiet (user_id BIGINT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'push', format = 'json')"
)


@dataclass(frozen=True)
class Predicate:
    """A comparison of a column with a constant; `selectivity` is the share of tuples it holds for."""

    text: str
    selectivity: float

    def __post_init__(self) -> None:
        if not 0 <= self.selectivity <= 1:
            raise ValueError(f"selectivity must be from 0 to 1, got {self.selectivity!r}")


def purchases_stream(rate: int) -> str:
    """Return the statement that declares generated purchases at `rate` tuples a second, never late."""
    return (
        "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
        " time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        f" WITH (connector = 'generator', dataset = 'purchases', rate = '{rate}', seed = '{SEED}')"
    )


def revenue_query(predicate: Predicate | None = None) -> str:
    """Return the query of the marks: the revenue of each user in each second."""
    where = "" if predicate is None else f" WHERE {predicate.text}"
    return f"SELECT user_id, SUM(price) AS revenue FROM purchases [RANGE 1 SECONDS]{where} GROUP BY user_id"


def random_predicates(count: int, seed: int = SEED) -> list[Predicate]:
    """Return `count` predicates of random column, operator and constant; the same for the same seed."""
    chosen = random.Random(seed)
    columns: tuple[Callable[[random.Random], tuple[str, str, int, int]], ...] = (_price, _gem_pack, _user_id)
    predicates = []
    for _ in range(count):
        column, constant, rank, values = chosen.choice(columns)(chosen)
        operator = chosen.choice(OPERATORS)
        predicates.append(Predicate(f"{column} {operator} {constant}", _selectivity(operator, rank, values)))
    return predicates


def _price(chosen: random.Random) -> tuple[str, str, int, int]:
    cents = chosen.randint(LEAST_CENTS, MOST_CENTS)
    return "price", f"{cents / 100:.2f}", cents - LEAST_CENTS, MOST_CENTS - LEAST_CENTS + 1


def _gem_pack(chosen: random.Random) -> tuple[str, str, int, int]:
    pack = chosen.randrange(GEM_PACKS)
    return "gem_pack", str(pack), pack, GEM_PACKS


def _user_id(chosen: random.Random) -> tuple[str, str, int, int]:
    user = chosen.randrange(USERS)
    return "user_id", str(user), user, USERS


def _selectivity(operator: str, rank: int, values: int) -> float:
    """Return the share of `values` equally likely values that compare so with the one at `rank`."""
    below, equal = rank / values, 1 / values
    shares = {"=": equal, "<": below, "<=": below + equal, ">": 1 - below - equal, ">=": 1 - below}
    return min(1.0, max(0.0, shares[operator]))
