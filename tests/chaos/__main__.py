"""Chaos for a while: ``python -m tests.chaos --seconds 3600 [--seed 1]``.

Acts follow each other at random, several beside each bystander. The last lines say how often each was carried out and
how many rows of bystanders were right; the exit status is 1 as soon as something is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.chaos.acts import ACTS
from tests.chaos.arena import Arena, bystanding, confined
from tests.chaos.clocks import CLOCKS
from tests.kit.moved_clock import NO_CLOCK

ACTS_BESIDE_ONE = 5


def main() -> int:
    """Carry out acts until the time is over."""
    parser = argparse.ArgumentParser(description="Hostile requests and faults beside queries that an oracle checks.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    rng = random.Random(seed)
    print(f"chaos for {options.seconds:g} s, seed {seed}", flush=True)
    counts: Counter[str] = Counter()
    rows = queries = 0
    folder = Path(tempfile.mkdtemp(prefix="braid-chaos-"))
    service = confined(folder, {})
    acts = ACTS
    if service.clock is None:
        acts = tuple(act for act in ACTS if act not in CLOCKS)
        print(f"without acts of clocks: {NO_CLOCK}", flush=True)
    else:
        print("acts of clocks move that of all processes of the service: driver, JVM, planner, workers, deliverers")
    began = time.monotonic()
    try:
        service.start()
        while time.monotonic() - began < options.seconds:
            with bystanding(service, rng.randrange(2**31)) as bystander:
                for _ in range(ACTS_BESIDE_ONE):
                    if time.monotonic() - began >= options.seconds:
                        break
                    act, at = rng.choice(acts), time.monotonic()
                    with Arena(service, random.Random(rng.randrange(2**31))) as arena:
                        act(arena)
                        bystander.push()
                        bystander.settle()
                        arena.leave()
                    counts[act.__name__] += 1
                    elapsed = time.monotonic() - began
                    print(f"{elapsed:6.0f} s  {act.__name__}: {time.monotonic() - at:.0f} s", flush=True)
            rows += sum(len(query.rows) for query in bystander.driver.queries)
            queries += len(bystander.driver.queries)
            print(f"{time.monotonic() - began:6.0f} s  {rows} rows of {queries} queries are DuckDB's", flush=True)
        service.stop()
    except Exception:
        traceback.print_exc()
        print(f"WRONG after {time.monotonic() - began:.0f} s, seed {seed}; the data and the logs are in {folder}")
        return 1
    finally:
        service.end_everything()
    for name, count in sorted(counts.items()):
        print(f"{count:5} times  {name.replace('_', ' ')}")
    print(
        f"all right: {sum(counts.values())} acts in {time.monotonic() - began:.0f} s, {rows} rows of {queries} queries"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
