"""What queries over queries cost: queries over a named one against the same over its stream, and latency by level.

`python -m braid.bench_driver.programs.levels [--rate N] [--queries N] [--rounds N] [--output FILE.json]` runs
look-alike aggregations over a selection, then over the stream that it selects from while the selection runs, too, in
alternation; a chain of four levels; and joins of three streams that have two of them in common, as they are and over a
named query that joins these two. Latency is from the end of a window to the row that a reader has.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import numpy as np

from braid.bench_driver.programs.replays import live_latencies
from braid.bench_driver.programs.standalone import command, report_on, say
from braid.bench_driver.service_process import ServiceProcess
from braid.client import Client

SETTLE_SECONDS, SECONDS = 8.0, 15.0
LEVELS = 4
MAX_JOINS = 200
STREAM = (
    "CREATE STREAM events (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'generator', dataset = 'purchases', rate = '{}')"
)
SELECTION = "SELECT user_id, gem_pack, price FROM events"
ASKED = (
    "SELECT gem_pack, SUM(user_id) AS s FROM {} [RANGE 4 SECONDS SLIDE 1 SECOND] WHERE user_id > {} GROUP BY gem_pack"
)
FIRST = "SELECT gem_pack, COUNT(*) AS n FROM events [RANGE 1 SECOND] GROUP BY gem_pack"
INPUT = (
    "CREATE STREAM side{0} (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
    " WITH (connector = 'generator', dataset = 'purchases', rate = '2000', keys = '1000', seed = '{0}')"
)
WINDOW = "[RANGE 2 SECONDS]"
IN_COMMON = (
    f"SELECT x.user_id AS u, x.price AS p, y.price AS q FROM side1 {WINDOW} x JOIN side2 {WINDOW} y USING (user_id)"
)
JOINED = (
    f"SELECT x.price AS p, y.price AS q, z.price AS r FROM side1 {WINDOW} x JOIN side2 {WINDOW} y"
    f" ON x.user_id = y.user_id JOIN side3 {WINDOW} z ON z.user_id = x.user_id"
)
JOINED_WITH_COMMON = f"SELECT c.p, c.q, z.price AS r FROM common {WINDOW} c JOIN side3 {WINDOW} z ON z.user_id = c.u"
NEXT = "SELECT gem_pack, SUM(n) AS n FROM {} [RANGE 1 SECOND] GROUP BY gem_pack"


def _over(source: str, rate: int, queries: int) -> dict[str, float]:
    """Return what queries over one source take, in a service of their own."""
    with ServiceProcess("levels") as service, Client(service.url, timeout=120) as client:
        service.wait_ready()
        client.create_stream(STREAM.format(rate))
        client.create_queries([{"sql": SELECTION, "name": "selected"}], wait=60)
        began = time.monotonic()
        bodies = [{"sql": ASKED.format(source, number % 1000)} for number in range(queries)]
        probe = client.create_queries(bodies, wait=60)[0]["id"]
        created = time.monotonic() - began
        live_latencies(client, probe, SETTLE_SECONDS)
        before, began = service.processor_seconds(), time.monotonic()
        latencies = live_latencies(client, probe, SECONDS)
        cores = (service.processor_seconds() - before) / (time.monotonic() - began)
    say(f"{queries} queries over {source}: {cores:.2f} cores, p50 {np.percentile(latencies, 50):.3f} s")
    p50, p95 = np.percentile(latencies, [50, 95]).tolist()
    return {"cores": cores, "created": created, "p50": p50, "p95": p95}


def _chain(rate: int) -> list[float]:
    """Return the median latency of each level of a chain."""
    with ServiceProcess("levels") as service, Client(service.url, timeout=120) as client:
        service.wait_ready()
        client.create_stream(STREAM.format(rate))
        for level in range(LEVELS):
            sql = FIRST if not level else NEXT.format(f"level{level}")
            client.create_queries([{"sql": sql, "name": f"level{level + 1}"}], wait=60)
        live_latencies(client, f"level{LEVELS}", SETTLE_SECONDS)
        return [median(live_latencies(client, f"level{level + 1}", SECONDS)) for level in range(LEVELS)]


def _joins(text: str, queries: int) -> dict[str, float]:
    """Return what joins of three streams take, in a service of their own."""
    with ServiceProcess("levels") as service, Client(service.url, timeout=120) as client:
        service.wait_ready()
        for number in (1, 2, 3):
            client.create_stream(INPUT.format(number))
        if text == JOINED_WITH_COMMON:
            client.create_queries([{"sql": IN_COMMON, "name": "common"}], wait=60)
        conditions = (f"z.gem_pack = {number % 10} AND z.price > {number % 50}" for number in range(queries))
        bodies = [{"sql": f"{text} WHERE {condition}"} for condition in conditions]
        probe = client.create_queries(bodies, wait=60)[0]["id"]
        live_latencies(client, probe, SETTLE_SECONDS)
        before, began = service.processor_seconds(), time.monotonic()
        latencies = live_latencies(client, probe, SECONDS)
        cores = (service.processor_seconds() - before) / (time.monotonic() - began)
    return {"cores": cores, "p50": median(latencies)}


def measure(rate: int, queries: int, rounds: int) -> dict[str, Any]:
    """Return medians over the rounds, and the latencies of the chain."""
    taken: dict[str, list[dict[str, float]]] = {"selected": [], "events": []}
    for _ in range(rounds):
        for source, measured in taken.items():
            measured.append(_over(source, rate, queries))
    figures = {
        f"{source}_{name}": median(each[name] for each in measured)
        for source, measured in taken.items()
        for name in measured[0]
    }
    chain = {f"level_{number}_p50": latency for number, latency in enumerate(_chain(rate), start=1)}
    for name, text in (("joins", JOINED), ("joins_over_common", JOINED_WITH_COMMON)):
        chain |= {f"{name}_{what}": figure for what, figure in _joins(text, min(queries, MAX_JOINS)).items()}
    ratio = figures["selected_cores"] / figures["events_cores"]
    return {
        "rate": rate,
        "queries": queries,
        "rounds": rounds,
        **figures,
        "cores_of_selected_to_events": ratio,
        **chain,
    }


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when something failed."""
    parser = command("braid.bench_driver.programs.levels", __doc__)
    parser.add_argument("--rate", type=int, default=100_000, help="how many rows come in a second (100 000)")
    parser.add_argument("--queries", type=int, default=1000, help="how many look-alikes run (1000)")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured, in alternation (2)")
    options = parser.parse_args(arguments)
    return report_on(lambda: measure(options.rate, options.queries, options.rounds), options.output)


if __name__ == "__main__":
    sys.exit(main())
