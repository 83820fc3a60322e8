"""What is said of a soak; the soak itself is `make soak`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from braid.bench_driver.programs.soak import Minute, SoakChurn, render, trend

MIB = 2**20


def minutes(memory: list[float]) -> list[Minute]:
    """Return minutes of which a JVM has 100 MiB, and what else there is a worker."""
    kinds = [{"java": 100 * MIB, "pyspark.worker": round((m - 100) * MIB)} for m in memory]
    return [
        Minute(60.0 * (i + 1), memory_by_kind, 2**30, 10 * i, 80, 0.5, 0.9) for i, memory_by_kind in enumerate(kinds)
    ]


def test_growth_is_that_after_the_warm_up() -> None:
    assert trend(minutes([100, *[1000] * 7])) == pytest.approx(0, abs=1)
    growing = minutes([0, 0, *(1000 + 3 * i for i in range(10))])
    assert trend(growing) == pytest.approx(3 * MIB)
    assert trend(growing, "pyspark.worker") == pytest.approx(3 * MIB)
    assert trend(growing, "java") == pytest.approx(0, abs=1)
    assert trend(minutes([100])) == 0.0


def test_the_text_has_the_most_and_the_growth() -> None:
    text = render(minutes([512, *[1024] * 7]))
    assert text.index("pyspark.worker   412 MiB  924 MiB") < text.index("java             100 MiB  100 MiB")
    assert "At most 1.00 GiB; after the warm-up it grew by +0.0 MiB a minute." in text
    assert "70" in text
    assert "1.0 GiB" in text


class Queries:
    """What a client is asked for."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.deleted: list[str] = []

    def create_query(self, sql: str) -> dict[str, Any]:
        """Take a query."""
        self.created.append(sql)
        return {"id": f"q-{len(self.created)}"}

    def delete_query(self, query_id: str) -> None:
        """Note that one goes."""
        self.deleted.append(query_id)


def test_churn_replaces_the_oldest_and_never_faster_than_it_is_told() -> None:
    queries, began = Queries(), time.monotonic()
    churn = SoakChurn(queries, ["a", "b"], ["old-1", "old-2"], rate=1000.0)  # type: ignore[arg-type]
    while churn.replaced < 3:
        churn.until(time.monotonic() + 0.01)
    assert churn.replaced <= (time.monotonic() - began) * 1000 + 1
    assert queries.created == ["a", "b"] * (churn.replaced // 2) + ["a"] * (churn.replaced % 2)
    assert queries.deleted == ["old-1", "old-2", *(f"q-{n}" for n in range(1, churn.replaced - 1))]
