"""Write docs/metrics.md from what ``api/metrics/families.py`` says of each metric: ``make metrics``."""

from __future__ import annotations

from pathlib import Path

from braid.api.metrics.families import SECTIONS, Family
from braid.router.delivery.progress import LATENCY_SECONDS

PAGE = Path(__file__).resolve().parents[1] / "metrics.md"
HEAD = f"""\
# Metrics

For whoever keeps a service up. `GET /metrics` exposes these metrics in Prometheus' text format;
[monitoring](monitoring.md) shows how to use them. `make metrics` writes this page from the code.

## Latencies

All are in seconds. A histogram with the label `query_id` has {len(LATENCY_SECONDS)} bounds from \
{LATENCY_SECONDS[0]:g} to {LATENCY_SECONDS[-1]:g} s, since each bound is a series for each query.

| latency | from | to |
| --- | --- | --- |
| deployment | acceptance of a query | start of the first batch that runs it |
| event time | greatest event time that contributed to a result | commit of the batch with the result |
| processing time | start of the batch | commit of the batch |
| delivery | commit of the batch | its rows have left the result log |

Event-time latency is counted where that event time is less than a day from the commit: the age of recorded data is no
latency.

A batch of a query counts once for delivery latency, when its last row is delivered:

- With a sink, delivery is the sink's confirmation. Deliverers report it twice a second.
- Without a sink, delivery is the first read of `/results` or `/results/stream`. Batches from before the first read of
  the query do not count, nor do rows that nobody reads. A reader that polls every ten seconds makes a latency of up to
  ten.

## Labels

A query has series with its id as `query_id` while it is RUNNING or DRAINING; those of its sink stay until all is
delivered. At most `metrics_labelled_queries` queries ([settings](settings.md#logs-and-metrics)) have series; all others
share `query_id="other"`.

A label `team` of a query is the label `label_team` of `braid_query_info`. A character that Prometheus does not allow in
a name becomes `_`.

## Counters

Counters start at 0 with the service. These go on: created, deleted and retired queries, batches, the counts of
streams that `GET /streams` shows, and the rows, errors and latency of sinks.
"""


def page() -> str:
    """Return the page."""
    return HEAD + "".join(f"\n## {title}\n\n{_table(families)}" for title, families in SECTIONS.items())


def _table(families: tuple[Family, ...]) -> str:
    rows = (
        (f"`{family.name}`", family.kind, ", ".join(f"`{label}`" for label in family.labels), family.meaning)
        for family in families
    )
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n{lines}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
