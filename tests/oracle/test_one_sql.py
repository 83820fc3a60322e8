"""One SQL to Rule Them All through the service: NEXMark's query 7 over the bids of its section 4, listings 1 to 13.

The paper's processing time is an order of steps here: each bid is a batch, and each watermark is set from outside. A
table that the paper asks for at 8:13 is what the same query gives over the bids that were recorded by then. Rows of a
join come once, when they are final, so the changelogs (listings 9 and 13) are those of the subquery, the highest price
of each window. For listing 14, whose delay takes minutes, see tests/operators/test_early_rows.py.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.operators import nexmark
from tests.operators.nexmark import EIGHT
from tests.oracle.answers import SECONDS, end, finished_rows, push, push_batch, unique

pytestmark = pytest.mark.service

Row = dict[str, Json]
Cells = list[tuple[str, ...]]

# watermarks are those of the paper: LATENESS brings none
BIDS = "(bidtime TIMESTAMP LATENESS INTERVAL '1' HOUR, price INT, item VARCHAR) WITH (connector = 'push')"
TUMBLE = "Tumble(data => TABLE({0}), timecol => DESCRIPTOR(bidtime), dur => INTERVAL '10' MINUTE)"
HOP = """Hop(
    data => TABLE {0}, timecol => DESCRIPTOR(bidtime), dur => INTERVAL '10' MINUTES, hopsize => INTERVAL '5' MINUTES)"""
MAX_BID = f"""(
    SELECT MAX(TumbleBid.price) maxPrice, TumbleBid.window_start wstart, TumbleBid.window_end wend
    FROM {TUMBLE} TumbleBid GROUP BY TumbleBid.window_end
)"""
QUERY_7 = {
    "listing 1": """
        SELECT B.window_start AS wstart, B.window_end AS wend, B.bidtime, B.price, B.item
        FROM {0} [RANGE 10 MINUTE SLIDE 10 MINUTE] B
        WHERE B.price = (SELECT MAX(B1.price) FROM {0} [RANGE 10 MINUTE SLIDE 10 MINUTE] B1)
    """,
    "listing 2, a window after each input": f"""
        SELECT MaxBid.wstart, MaxBid.wend, Bid.bidtime, Bid.price, Bid.item
        FROM {{0}} [RANGE 10 MINUTES] Bid, {MAX_BID} [RANGE 10 MINUTES] MaxBid
        WHERE Bid.price = MaxBid.maxPrice AND Bid.bidtime >= MaxBid.wend - INTERVAL '10' MINUTE
            AND Bid.bidtime < MaxBid.wend
    """,
    "listing 2, joined by the ends of windows": f"""
        SELECT MaxBid.wstart, MaxBid.wend, Bid.bidtime, Bid.price, Bid.item
        FROM (SELECT *, window_end AS wend FROM {TUMBLE}) Bid JOIN {MAX_BID} MaxBid ON Bid.wend = MaxBid.wend
        WHERE Bid.price = MaxBid.maxPrice
    """,
}
LISTINGS = {
    "5": f"SELECT * FROM {TUMBLE[:-1]}, offset => INTERVAL '0' MINUTES)",
    "6": f"SELECT MAX(window_start) AS wstart, window_end, SUM(price) AS price FROM {TUMBLE} GROUP BY window_end",
    "7": f"SELECT * FROM {HOP}",
    "8": f"SELECT MAX(window_start) AS wstart, window_end, SUM(price) AS price FROM {HOP} GROUP BY window_end",
}


def table(text: str) -> Cells:
    """Return the cells of a table that the paper prints."""
    return [tuple(line.split()) for line in text.strip().splitlines()]


LISTING_3 = table("""
    8:00  8:10  8:09  $5  D
    8:10  8:20  8:17  $6  F
""")
LISTING_4 = table("""
    8:00  8:10  8:05  $4  C
    8:10  8:20  8:11  $3  B
""")
LISTING_5 = table("""
    8:00  8:10  8:07  $2  A
    8:10  8:20  8:11  $3  B
    8:00  8:10  8:05  $4  C
    8:00  8:10  8:09  $5  D
    8:10  8:20  8:13  $1  E
    8:10  8:20  8:17  $6  F
""")
LISTING_6 = table("""
    8:00  8:10  $11
    8:10  8:20  $10
""")
LISTING_7 = table("""
    8:00  8:10  8:07  $2  A
    8:05  8:15  8:07  $2  A
    8:05  8:15  8:11  $3  B
    8:10  8:20  8:11  $3  B
    8:00  8:10  8:05  $4  C
    8:05  8:15  8:05  $4  C
    8:00  8:10  8:09  $5  D
    8:05  8:15  8:09  $5  D
    8:05  8:15  8:13  $1  E
    8:10  8:20  8:13  $1  E
    8:10  8:20  8:17  $6  F
    8:15  8:25  8:17  $6  F
""")
LISTING_8 = table("""
    8:00  8:10  $11
    8:05  8:15  $15
    8:10  8:20  $10
    8:15  8:25  $6
""")
QUERY_7_COLUMNS = ("wstart", "wend", "bidtime", "price", "item")
EMITS = ("EMIT STREAM", "EMIT STREAM AFTER WATERMARK", "EMIT AFTER WATERMARK")
LATE = 22  # when a bid comes that is late
FINAL_ROWS = {13: [], 16: LISTING_3[:1], 21: LISTING_3}  # listings 10, 11 and 12, by minutes after eight


def printed(rows: Sequence[Row], *columns: str) -> Cells:
    """Return columns of rows as the paper prints them."""
    return [tuple(_cell(column, row[column]) for column in columns) for row in rows]


def _cell(column: str, value: Json) -> str:
    if column == "price":
        return f"${value}"
    if column == "item":
        return str(value)
    time = dt.datetime.fromisoformat(value)
    assert (time.date(), time.second) == (dt.date(2026, 3, 1), 0)
    return f"{time.hour}:{time.minute:02}"


def minutes(row: Row, column: str) -> int:
    """Return a time of a row in minutes after eight."""
    time = dt.datetime.fromisoformat(row[column])
    return time.hour * 60 + time.minute - EIGHT


def rfc_3339(minute: int) -> str:
    """Return a minute of the day of the auction."""
    return f"2026-03-01T{minute // 60:02}:{minute % 60:02}:00Z"


def bid(bidtime: int, price: int, item: str) -> Row:
    """Return a bid, whose time is in minutes of the day."""
    return {"bidtime": rfc_3339(bidtime), "price": price, "item": item}


@pytest.fixture(scope="module")
def recorded(service: RunningService) -> Iterator[Mapping[tuple[str, int], list[Row]]]:
    """Return the rows of queries over what was there at a processing time (minutes after eight), by both."""
    with Api(service.url) as api:
        queries: dict[tuple[str, int], str] = {}
        for at, texts in ((13, QUERY_7), (21, QUERY_7 | LISTINGS)):
            stream = unique("bid")
            api.create_stream(f"CREATE STREAM {stream} {BIDS}")
            created = api.create_queries([{"sql": text.format(stream)} for text in texts.values()])
            queries |= {(name, at): query["id"] for name, query in zip(texts, created, strict=True)}
            by_then = [entry for entry in nexmark.ENTRIES if entry[0] <= EIGHT + at and entry[-1] != nexmark.MARK]
            push(api, stream, (bid(*each[1:]) for each in by_then))
            end(api, stream)
        yield {key: finished_rows(api, query) for key, query in queries.items()}
        api.drop_created()


@dataclass
class Readers:
    """Readers of queries, and the rows of each with the minute after eight at which they came."""

    api: Api
    queries: Mapping[str, str]
    rows: dict[str, list[tuple[int, Row]]] = field(default_factory=lambda: defaultdict(list))
    _cursors: dict[str, str] = field(default_factory=dict)

    def read(self, at: int) -> None:
        """Read what came since."""
        for name, query in self.queries.items():
            page = self.api.page(query, after=self._cursors.get(name))
            self._cursors[name] = page["cursor"]
            self.rows[name] += [(at, row) for row in page["rows"]]

    def read_final(self, at: int, windows: int) -> None:
        """Read until so many windows are final in all queries: a row comes a batch later for each level of them."""

        def come() -> bool:
            self.read(at)
            return all(len(self.rows[name]) >= windows for name in self.queries if name != "EMIT STREAM")

        wait_until(come, SECONDS, f"{windows} windows are final")


@pytest.fixture(scope="module")
def auction(service: RunningService) -> Iterator[Mapping[str, list[tuple[int, Row]]]]:
    """Return the rows of queries over the bids as they come, each with the minute after eight at which it came."""
    with Api(service.url) as api:
        stream = unique("bid")
        api.create_stream(f"CREATE STREAM {stream} {BIDS}")
        highest = f"SELECT MAX(price) AS price FROM {stream} [RANGE 10 MINUTES]"
        texts = {name: text.format(stream) + " EMIT AFTER WATERMARK" for name, text in QUERY_7.items()}
        texts |= {emit: f"{highest} {emit}" for emit in EMITS}
        created = api.create_queries([{"sql": text} for text in texts.values()])
        readers = Readers(api, {name: query["id"] for name, query in zip(texts, created, strict=True)})
        for ptime, bidtime, price, item in nexmark.ENTRIES:
            if item == nexmark.MARK:
                reached = bidtime - nexmark.LATENESS_MINUTES
                time = {"time": rfc_3339(reached)}
                api.call("POST", f"/streams/{stream}/watermark", 200, json=time)
                readers.read_final(ptime - EIGHT, sum(reached >= EIGHT + end for end in (10, 20)))
            else:
                push_batch(api, stream, [bid(bidtime, price, item)])
                readers.read(ptime - EIGHT)
        push(api, stream, [bid(EIGHT + 15, 100, "late")])
        wait_until(lambda: bool(api.stream(stream)["late"] == 1), SECONDS, "the last bid is late")
        readers.read(LATE)
        yield readers.rows
        api.drop_created()


@pytest.mark.parametrize("name", QUERY_7)
def test_query_7_over_what_was_recorded_is_what_listings_3_and_4_print(
    name: str, recorded: Mapping[tuple[str, int], list[Row]]
) -> None:
    assert printed(recorded[name, 21], *QUERY_7_COLUMNS) == LISTING_3
    assert printed(recorded[name, 13], *QUERY_7_COLUMNS) == LISTING_4


@pytest.mark.parametrize(
    ("name", "listing", "columns"),
    [
        ("5", LISTING_5, ("window_start", "window_end", "bidtime", "price", "item")),
        ("6", LISTING_6, ("wstart", "window_end", "price")),
        ("7", LISTING_7, ("window_start", "window_end", "bidtime", "price", "item")),
        ("8", LISTING_8, ("wstart", "window_end", "price")),
    ],
)
def test_table_functions_give_what_the_listings_print(
    name: str, listing: Cells, columns: tuple[str, ...], recorded: Mapping[tuple[str, int], list[Row]]
) -> None:
    assert sorted(printed(recorded[name, 21], *columns)) == sorted(listing)


@pytest.mark.parametrize("name", QUERY_7)
def test_emit_after_watermark_gives_the_rows_of_final_windows(
    name: str, auction: Mapping[str, list[tuple[int, Row]]]
) -> None:
    for at, listing in FINAL_ROWS.items():
        assert printed([row for came, row in auction[name] if came <= at], *QUERY_7_COLUMNS) == listing
    highest = [(came, minutes(row, "window_start"), row["price"]) for came, row in auction["EMIT AFTER WATERMARK"]]
    for at, rows in nexmark.FINAL_ROWS:
        assert tuple(row for came, *row in highest if came <= at) == tuple(map(list, rows))


@pytest.mark.parametrize(
    ("emit", "listing"), [("EMIT STREAM", nexmark.LISTING_9), ("EMIT STREAM AFTER WATERMARK", nexmark.LISTING_13)]
)
def test_emit_stream_gives_the_changes_of_the_highest_price(
    emit: str, listing: tuple[nexmark.Change, ...], auction: Mapping[str, list[tuple[int, Row]]]
) -> None:
    changes = []
    for at, row in auction[emit]:
        assert minutes(row, "window_end") == minutes(row, "window_start") + 10
        assert list(row)[-4:] == ["_partial", "_op", "_ptime", "_ver"]
        changes.append((minutes(row, "window_start"), row["price"], row["_op"], at, row["_ver"]))
    assert tuple(changes) == listing


def test_a_batch_has_one_processing_time_and_that_goes_on(auction: Mapping[str, list[tuple[int, Row]]]) -> None:
    changes = auction["EMIT STREAM"] + auction["EMIT STREAM AFTER WATERMARK"]
    times = sorted({(at, row["_ptime"]) for at, row in changes})
    assert [at for at, _ in times] == sorted({at for at, _ in changes})
    assert [time for _, time in times] == sorted({time for _, time in times})


@pytest.mark.parametrize(("at", "listing"), [(13, LISTING_4), (21, LISTING_3)])
def test_standard_sql_makes_the_table_of_its_changelog(
    at: int, listing: Cells, auction: Mapping[str, list[tuple[int, Row]]]
) -> None:
    """Section 3.3.1: a changelog can be converted back, by SQL without special operators."""
    with connected() as duck:
        duck.execute("CREATE TEMP TABLE changes (wstart INT, price INT, undo BOOLEAN)")
        changes = [
            (minutes(row, "window_start"), row["price"], row["_op"] == "retract")
            for came, row in auction["EMIT STREAM"]
            if came <= at
        ]
        duck.executemany("INSERT INTO changes VALUES (?, ?, ?)", changes)
        rows = duck.execute("""
            SELECT wstart, price FROM changes GROUP BY ALL HAVING SUM(IF(undo, -1, 1)) > 0 ORDER BY wstart
        """).fetchall()
    highest = [(wstart, price) for wstart, _, _, price, _ in listing]
    assert [(f"8:{wstart:02}", f"${price}") for wstart, price in rows] == highest


def test_a_bid_of_a_complete_window_changes_nothing(auction: Mapping[str, list[tuple[int, Row]]]) -> None:
    """Extension 2: further inputs to a group that the watermark has passed are dropped."""
    assert {name: rows for name, rows in auction.items() if any(at == LATE for at, _ in rows)} == {}
