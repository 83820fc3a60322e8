"""How many tuples a second are taken by pushes, with aggregations running; clients and service share the cores.

`python -m braid.bench_driver.programs.push_rate [--format ndjson|json|arrow] [--tuples N] [--clients N] [--queries N]
[--seconds S] [--output FILE.json]`. Bodies are made beforehand and sent again and again. A refusal with 429 is waited
out.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from braid.bench_driver.programs.standalone import command, report_on, say, wait_running, wait_until
from braid.bench_driver.service_process import ServiceProcess
from braid.client import MEDIA_TYPES, Client, Refused

BODIES = 20
BODY_TIME = timedelta(milliseconds=100)  # of event time, in each body
START = datetime(2026, 1, 1, tzinfo=UTC)
DRAIN_SECONDS = 120.0


def purchases(number: int, count: int) -> list[dict[str, Any]]:
    """Return the tuples of a body, in order of their event times."""
    rng = random.Random(number)
    return [
        {
            "user_id": rng.randrange(1_000_000),
            "item": rng.choice("abcdefgh") * 3,
            "price": round(rng.random() * 100, 2),
            "gems": rng.randrange(100),
            "gift": rng.random() < 0.5,
            "time": START + number * BODY_TIME + place * BODY_TIME / count,
        }
        for place in range(count)
    ]


def encode(rows: list[dict[str, Any]], form: str) -> bytes:
    """Return tuples as a body; ``form`` is one of `MEDIA_TYPES`."""
    if form == "arrow":
        table = pa.Table.from_pylist(rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())
    if form == "csv":
        lines = [",".join(rows[0]), *(",".join(map(_field, row.values())) for row in rows)]
        return "\n".join(lines).encode()
    texts = [json.dumps({**row, "time": row["time"].isoformat()}) for row in rows]
    return ("\n".join(texts) if form == "ndjson" else f"[{', '.join(texts)}]").encode()


def _field(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


class Pusher(threading.Thread):
    """One client: pushes bodies, one after the other on one connection, until its time is over."""

    def __init__(self, url: str, bodies: list[bytes], form: str, first: int, until: float) -> None:
        super().__init__(name=f"pusher-{first}", daemon=True)
        self._url, self._bodies, self._form, self._next, self._until = url, bodies, form, first, until
        self.seconds: list[float] = []
        """How long each request took that was accepted."""
        self.refused = 0
        self.problem: Exception | None = None

    def run(self) -> None:
        """Push."""
        try:
            with Client(self._url, timeout=60) as client:
                while (began := time.monotonic()) < self._until:
                    self._push(client, began)
        except Exception as problem:  # raised again where it is waited for
            self.problem = problem

    def _push(self, client: Client, began: float) -> None:
        try:
            client.push("purchases", self._bodies[self._next % len(self._bodies)], self._form)
        except Refused as refusal:
            if refusal.retry_after is None:
                raise
            self.refused += 1
            time.sleep(refusal.retry_after)
        else:
            self._next += 1
            self.seconds.append(time.monotonic() - began)


def measure(form: str, tuples: int, clients: int, queries: int, seconds: float) -> dict[str, Any]:
    """Return how many tuples a second were accepted, until the last of them was read, and how long requests took."""
    bodies = [encode(purchases(number, tuples), form) for number in range(BODIES)]
    say(f"bodies of {len(bodies[0])} bytes are made")
    with ServiceProcess("push") as service, Client(service.url, timeout=30) as client:
        service.wait_ready()
        client.create_stream(
            "CREATE STREAM purchases (user_id BIGINT, item VARCHAR, price DOUBLE, gems INT, gift BOOLEAN,"
            " time TIMESTAMP LATENESS INTERVAL '2' SECOND) WITH (connector = 'push')"
        )
        client.create_queries([{"sql": sql} for sql in _queries(queries)])
        wait_running(client, 60)
        began = time.monotonic()
        pushers = [Pusher(service.url, bodies, form, number, began + seconds) for number in range(clients)]
        for pusher in pushers:
            pusher.start()
        for pusher in pushers:
            pusher.join()
            if pusher.problem is not None:
                raise pusher.problem
        took = [request for pusher in pushers for request in pusher.seconds]
        pushed = tuples * len(took)
        wait_until(
            lambda: _read(client) >= pushed,
            DRAIN_SECONDS,
            lambda: f"all {pushed} tuples must be read within {DRAIN_SECONDS:g} s, got {_read(client)}",
        )
        ended = time.monotonic()
    quantiles = statistics.quantiles(took, n=20, method="inclusive")
    return {
        "format": form,
        "queries": queries,
        "clients": clients,
        "tuple_bytes": len(bodies[0]) / tuples,
        "body_tuples": tuples,
        "tuples": pushed,
        "tuples_per_second": tuples * len(took) / (ended - began),
        "refused": sum(pusher.refused for pusher in pushers),
        "p50_seconds": quantiles[9],
        "p95_seconds": quantiles[18],
    }


def _queries(count: int) -> Iterator[str]:
    rng = random.Random(2)
    for _ in range(count):
        source = f"purchases [RANGE {rng.randint(1, 5)} SECONDS SLIDE 1 SECOND]"
        where = f"gems > {rng.randint(0, 99)}"
        yield f"SELECT item, COUNT(*) AS n, SUM(price) AS s FROM {source} WHERE {where} GROUP BY item"


def _read(client: Client) -> int:
    """Return how many tuples batches have read."""
    stream = client.stream("purchases")
    return int(stream["tuples"]) + int(stream["late"])


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, print the figures, write the JSON; 1 when something failed."""
    parser = command("braid.bench_driver.programs.push_rate", __doc__)
    parser.add_argument("--format", choices=MEDIA_TYPES, default="ndjson", help="what bodies are (ndjson)")
    parser.add_argument("--tuples", type=int, default=10_000, help="how many tuples a body has (10 000)")
    parser.add_argument("--clients", type=int, default=4, help="how many clients push at the same time (4)")
    parser.add_argument("--queries", type=int, default=100, help="how many aggregations run (100)")
    parser.add_argument("--seconds", type=float, default=15.0, help="for how long (15)")
    options = parser.parse_args(arguments)
    return report_on(
        lambda: measure(options.format, options.tuples, options.clients, options.queries, options.seconds),
        options.output,
    )


if __name__ == "__main__":
    sys.exit(main())
