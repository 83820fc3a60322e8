"""Queries built by hand, for tests below the SQL."""

from __future__ import annotations

from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.queries import Aggregation, Selection
from braid.operators.query_parts import COUNT_ALL, Output
from braid.operators.windows import SessionWindow, Window
from braid.sources.core.schema import BIGINT, BOOLEAN, DOUBLE, INT, TIMESTAMP

PRICE = Column("price", DOUBLE)
GEM_PACK = Column("gem_pack", INT)


def above(price: float) -> Expression:
    """Return ``price > …``."""
    return Call(">", (PRICE, Literal(price, DOUBLE)), BOOLEAN)


def selection(stream: str = "s-1", price: float = 5.0) -> Selection:
    """Return a selection of one column."""
    return Selection(stream, above(price), (Output("price", PRICE),))


def aggregation(
    stream: str = "s-1", keys: tuple[Expression, ...] = (GEM_PACK,), window: Window | SessionWindow | None = None
) -> Aggregation:
    """Return a count per key."""
    edges = tuple(Output(name, Column(name, TIMESTAMP)) for name in ("window_start", "window_end"))
    counted = Output("n", Column(COUNT_ALL.name, BIGINT))
    window = window or Window(8_000_000, 4_000_000)
    return Aggregation(stream, window, None, keys, (COUNT_ALL,), (*edges, counted))
