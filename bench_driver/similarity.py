"""Joins that are as similar to a pattern query as wanted (thesis 5.7.2).

The similarity is equation 5.3, ComS * ComSJA / AllS²: ComS counts the streams that both have, ComSJA their join
attributes that both have, AllS the pattern's streams. As a stream may have two join attributes, a chain of three or
more is more than 1 similar to itself.

The joins of an n-way query are a chain of streams, each joined with the next. The first and the last stream of a chain
have one join attribute, those between have two.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from braid.bench_driver.query_spec import ColumnRef, JoinSpec


def draw_pattern(rng: random.Random, streams: Sequence[str], attributes: Sequence[str]) -> tuple[JoinSpec, ...]:
    """Return the joins of a pattern query: a chain of the streams in order on random attributes.

    The two join attributes of a stream differ, so that they count apart.
    """
    return _chain([_draw_slots(rng, stream, attributes, streams) for stream in streams])


def draw_similar(
    rng: random.Random,
    pattern: Sequence[JoinSpec],
    target: float,
    streams: Sequence[str],
    attributes: Sequence[str],
) -> tuple[JoinSpec, ...]:
    """Return the joins of a query as long as the pattern and `target` similar to it, by the thesis's three steps.

    It is as close to `target` as whole numbers of streams and attributes allow. `streams` are all there are; where
    they are too few for streams that the pattern does not have, more of the pattern's are taken.
    """
    chain = _slots(pattern)
    of_pattern = {attribute.stream for slots in chain for attribute in slots}
    outside = [stream for stream in streams if stream not in of_pattern]
    # step 1; what is not common must come from outside
    common_count = rng.randint(max(1, len(chain) - len(outside)), len(chain))
    # step 2
    while True:
        kept_count = int(target * len(chain) ** 2 / common_count + 0.5)
        starts = [
            i
            for i in range(len(chain) - common_count + 1)
            if _attribute_count(chain[i : i + common_count]) >= kept_count
        ]
        if starts or common_count == len(chain):
            break
        common_count += 1
    # step 3; neighbours in the chain are joined with each other
    run_start = rng.choice(starts or [0])
    run = range(run_start, run_start + common_count)
    candidates = [attribute for i in run for attribute in chain[i]]
    kept_attributes = set(rng.sample(candidates, min(kept_count, len(candidates))))
    other_streams = iter(rng.sample(outside, len(chain) - common_count))
    slots_of_query = []
    for i, slots in enumerate(chain):
        if i in run:
            other_attributes = [a for a in attributes if ColumnRef(slots[0].stream, a) not in slots]
            slots_of_query.append(
                [s if s in kept_attributes else ColumnRef(s.stream, rng.choice(other_attributes)) for s in slots]
            )
        else:
            stream = next(other_streams)
            slots_of_query.append([ColumnRef(stream, rng.choice(attributes)) for _ in slots])
    return _chain(slots_of_query)


def _draw_slots(rng: random.Random, stream: str, attributes: Sequence[str], streams: Sequence[str]) -> list[ColumnRef]:
    slots = 1 if stream in (streams[0], streams[-1]) else 2
    return [ColumnRef(stream, attribute) for attribute in rng.sample(attributes, slots)]


def _chain(slots: Sequence[Sequence[ColumnRef]]) -> tuple[JoinSpec, ...]:
    """Return the steps that join each stream's last attribute with the next stream's first."""
    return tuple(JoinSpec(left[-1], right[0]) for left, right in itertools.pairwise(slots))


def _slots(chain: Sequence[JoinSpec]) -> list[list[ColumnRef]]:
    """Return the join attributes of each stream in order of the chain, the inverse of `_chain`."""
    between = [[step.right, following.left] for step, following in itertools.pairwise(chain)]
    return [[chain[0].left], *between, [chain[-1].right]]


def _attribute_count(slots: Sequence[Sequence[ColumnRef]]) -> int:
    return sum(map(len, slots))
