"""What the demo tells the service: two streams, example queries, fifty more of one form, and when it changes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STREAMS = (
    "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
    " time TIMESTAMP LATENESS INTERVAL '1' SECOND)"
    " WITH (connector = 'generator', dataset = 'purchases', rate = '50000')",
    "CREATE STREAM ads (user_id BIGINT, gem_pack INT, time TIMESTAMP LATENESS INTERVAL '1' SECOND)"
    " WITH (connector = 'generator', dataset = 'ads', rate = '20000')",
)
MORE = 50
SECONDS_BETWEEN_CHANGES = 12.0


@dataclass(frozen=True)
class Example:
    """A query under a name; `watched` ones have their latest rows shown."""

    name: str
    sql: str
    watched: bool = False


EXAMPLES = (
    Example(
        "revenue",
        "SELECT gem_pack, SUM(price) AS revenue FROM purchases [RANGE 2 SECONDS] GROUP BY gem_pack",
        watched=True,
    ),
    Example(
        "mean-price",
        "SELECT gem_pack, AVG(price) AS mean FROM purchases [RANGE 8 SECONDS SLIDE 2 SECONDS] GROUP BY gem_pack",
    ),
    Example(
        "big-packs",
        "SELECT COUNT(*) AS purchases FROM purchases [RANGE 1 SECONDS] WHERE gem_pack > 3 AND price > 50",
    ),
    Example("expensive", "SELECT time, user_id, gem_pack, price FROM purchases WHERE price > 99.9", watched=True),
    Example(
        "ad-clicks",
        "SELECT window_start, window_end, gem_pack, COUNT(*) AS clicks"
        " FROM TUMBLE(data => TABLE ads, timecol => DESCRIPTOR(time), dur => INTERVAL '2' SECOND)"
        " GROUP BY window_start, window_end, gem_pack",
    ),
)


def more_examples(count: int = MORE) -> list[Example]:
    """Return queries that differ in one constant: they share an operator, and each adds next to no work."""
    step = 100 / count
    return [
        Example(
            f"above-{i * step:g}",
            "SELECT gem_pack, COUNT(*) AS purchases, SUM(price) AS revenue FROM purchases [RANGE 2 SECONDS]"
            f" WHERE price > {i * step:g} GROUP BY gem_pack",
        )
        for i in range(count)
    ]


def added_later(number: int) -> Example:
    """Return the query that the demo adds as its `number`-th change (from 1) while everything runs."""
    most = 20 * ((number - 1) % 5 + 1)
    return Example(
        f"late-{number}",
        f"SELECT gem_pack, COUNT(*) AS cheap FROM purchases [RANGE 1 SECONDS] WHERE price < {most} GROUP BY gem_pack",
    )


def change_times(seconds: float | None) -> Iterator[float]:
    """Yield when, in seconds, the demo makes a change: it adds a query, then retires one, and so on in turn.

    There are at least two within `seconds`, and the last is early enough to be seen through; None never ends.
    """
    between = SECONDS_BETWEEN_CHANGES if seconds is None else min(SECONDS_BETWEEN_CHANGES, seconds / 3)
    number = 1
    while seconds is None or number * between <= seconds - 0.9 * between:
        yield number * between
        number += 1
