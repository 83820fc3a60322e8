"""Rows for the page: what tests of it commit, and how they read it off its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from playwright.sync_api import Page, Route

from tests.api.rest import Rest, tuple_at
from tests.router.batches import SECOND

START = 1_790_000_000  # seconds since 1970


def url(rest: Rest) -> str:
    """Return where the page is."""
    return str(rest.client.base_url).rstrip("/")


def served_with(before: str, after: str) -> Callable[[Route], None]:
    """Return what serves a script of the page with another figure, such as one that a busy machine brings about."""

    def serve(route: Route) -> None:
        script = route.fetch()
        changed = script.text().replace(before, after)
        assert changed != script.text()
        route.fulfill(response=script, body=changed)

    return serve


def select(rest: Rest, query: dict[str, Any], numbers: range) -> None:
    """Commit a batch of tuples, one a number, that a query selects."""
    rest.select([tuple_at(START + n, user_id=n, price=n / 4, pack=n % 3) for n in numbers], [query["slot"]])


def sums(rest: Rest, query: dict[str, Any], window: int, totals: dict[int, int]) -> None:
    """Commit a batch with one window of SUMS: totals by pack."""
    groups = {"key0": pa.array(list(totals), pa.int32())}
    rest.commit(results=[block(rest, query, window, groups, list(totals.values()))])


def block(
    rest: Rest,
    query: dict[str, Any],
    window: int | Sequence[int],
    groups: dict[str, pa.Array],
    totals: Sequence[int],
) -> Any:
    """Write rows of a query like SUMS: the keys of their groups, and their totals; of one window, or one a row."""
    windows = [window] * len(totals) if isinstance(window, int) else window
    starts = [(START + 4 * each) * SECOND for each in windows]
    rows = pa.table(
        {
            "_slot": pa.array([query["slot"]] * len(totals), pa.int32()),
            "window_start": pa.array(starts, pa.timestamp("us")),
            "window_end": pa.array([start + 8 * SECOND for start in starts], pa.timestamp("us")),
            **groups,
            **{m.name: pa.array(totals, pa.int64()) for m in measures(rest, query)},
            "count(*)": pa.array([1] * len(totals), pa.int64()),
        }
    )
    return rest.batches.aggregation(rest.service.session.streams.definition("purchases").id, rows)


def history(rest: Rest, query: dict[str, Any], windows: int, packs: int) -> None:
    """Commit a batch with many windows of SUMS: the total of pack p in window w is 100 p + w % 100."""
    pairs = [(window, pack) for window in range(windows) for pack in range(packs)]
    keys = {"key0": pa.array([pack for _, pack in pairs], pa.int32())}
    totals = [100 * pack + window % 100 for window, pack in pairs]
    rest.commit(results=[block(rest, query, [window for window, _ in pairs], keys, totals)])


def measures(rest: Rest, query: dict[str, Any]) -> Any:
    """Return the measures of a query that aggregates."""
    return rest.service.session.lookup.deployed(query["id"]).query.measures  # type: ignore[union-attr]


def column(page: Page, name: str) -> list[str]:
    """Return a column of the table of rows, the newest first."""
    names = page.locator("table.rows thead th").all_inner_texts()
    if name not in names:
        return []
    return page.locator(f"table.rows tbody td:nth-child({names.index(name) + 1})").all_inner_texts()
