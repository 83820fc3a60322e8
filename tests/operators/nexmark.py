"""The example of One SQL to Rule Them All: NEXMark's query 7 over the bids of its section 4, listings 3 to 14.

Query 7 joins the highest price of ten minutes with the bids. What stands here is its aggregation, MAX(price) for each
window: the columns ``bidtime`` and ``item`` of the listings are left out, all others are as printed. Braid's watermark
is the greatest event time seen minus LATENESS, so each watermark of the paper comes with a tuple that no query selects.
"""

from __future__ import annotations

LATENESS_MINUTES = 6
MARK = "mark"

# processing time, bidtime, price in dollars, item; all times in minutes of the day
EIGHT = 8 * 60


def _watermark(at: int, reached: int) -> tuple[int, int, int, str]:
    return EIGHT + at, EIGHT + reached + LATENESS_MINUTES, 100, MARK


def _bid(at: int, bidtime: int, price: int, item: str) -> tuple[int, int, int, str]:
    return EIGHT + at, EIGHT + bidtime, price, item


ENTRIES = (
    _watermark(7, 5),
    _bid(8, 7, 2, "A"),
    _bid(12, 11, 3, "B"),
    _bid(13, 5, 4, "C"),
    _watermark(14, 8),
    _bid(15, 9, 5, "D"),
    _watermark(16, 12),
    _bid(17, 13, 1, "E"),
    _bid(18, 17, 6, "F"),
    _watermark(21, 20),
)

# window start (its end is ten minutes later), price, undo, processing time, version; minutes after eight
Change = tuple[int, int, str, int, int]
INSERT, UNDO = "insert", "retract"

LISTING_9: tuple[Change, ...] = (
    (0, 2, INSERT, 8, 0),
    (10, 3, INSERT, 12, 0),
    (0, 2, UNDO, 13, 1),
    (0, 4, INSERT, 13, 2),
    (0, 4, UNDO, 15, 3),
    (0, 5, INSERT, 15, 4),
    (10, 3, UNDO, 18, 1),
    (10, 6, INSERT, 18, 2),
)
# EMIT AFTER WATERMARK asked at 8:13, at 8:16 and at 8:21: listings 10, 11, 12
FINAL_ROWS: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = (
    (13, ()),
    (16, ((0, 5),)),
    (21, ((0, 5), (10, 6))),
)
LISTING_13: tuple[Change, ...] = ((0, 5, INSERT, 16, 0), (10, 6, INSERT, 21, 0))
LISTING_14: tuple[Change, ...] = (
    (0, 4, INSERT, 14, 0),
    (10, 6, INSERT, 18, 0),
    (0, 4, UNDO, 21, 1),
    (0, 5, INSERT, 21, 2),
)
