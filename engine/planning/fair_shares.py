"""How streams share a batch that cannot take all that waits: max-min, so that none is behind for another one's sake."""

from __future__ import annotations

from collections.abc import Mapping


def fair_shares(waiting: Mapping[str, int], costs: Mapping[str, float], budget: float) -> dict[str, int]:
    """Return how many of the tuples that wait a batch takes of each stream.

    ``costs`` says what a tuple of each stream costs, in the unit of ``budget``. A stream that wants less than an even
    share gets what it wants, and what it leaves is shared by the others. Every stream gets a tuple, if it has one: one
    that costs more than its share makes the batch dearer, and not the shares of others smaller.

    >>> fair_shares({"small": 500, "large": 10**10, "wide": 10**6}, {"small": 1, "large": 1, "wide": 10}, 100_500)
    {'small': 500, 'large': 50000, 'wide': 5000}
    """
    shares: dict[str, int] = {}
    left = budget
    by_want = sorted(waiting, key=lambda stream: waiting[stream] * costs[stream])
    for place, stream in enumerate(by_want):
        even = left / (len(by_want) - place)
        shares[stream] = min(waiting[stream], max(1, int(even / costs[stream])))
        left -= min(even, shares[stream] * costs[stream])
    return shares
