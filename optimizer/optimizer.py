"""Decide how a query runs: an ordered tuple of rules, each a function of the module of its name."""

from __future__ import annotations

from collections.abc import Callable

from operators.queries import Query
from optimizer.rules.share import share

Rule = Callable[[Query], str]

RULES: tuple[Rule, ...] = (share,)


def optimize(query: Query, rules: tuple[Rule, ...] = RULES) -> dict[str, str]:
    """Return what each rule decides, by the rule's name; ``share`` gives the operator's id."""
    return {rule.__name__: rule(query) for rule in rules}


def operator_of(query: Query) -> str:
    """Return the id of the operator that runs ``query``."""
    return optimize(query)["share"]
