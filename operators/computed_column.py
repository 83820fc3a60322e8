"""Columns of streams that are computed from others, where tuples are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from braid.operators import expressions
from braid.operators.evaluation import evaluate
from braid.operators.expressions import Expression
from braid.sources.core import computation


@dataclass(frozen=True)
class ComputedColumn:
    """What a column is computed as, and the text of it in the declaration."""

    expression: Expression
    text: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns that it is computed from."""
        return tuple(dict.fromkeys(expressions.columns_of(self.expression)))

    def evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return the values, one per row; ``columns`` are those before it, by name."""
        return evaluate(self.expression, columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        return {"expression": expressions.to_json(self.expression), "text": self.text}


def _from_json(value: dict[str, Any]) -> ComputedColumn:
    return ComputedColumn(expressions.from_json(value["expression"]), value["text"])


computation.set_reader(_from_json)
