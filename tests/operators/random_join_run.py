"""Random joins that come and go while random tuples do, in one process, against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from braid.operators.joins.inputs import SALT, columns_to_spread_by
from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of
from braid.operators.queries import Aggregation
from braid.operators.query_parts import JOIN
from braid.operators.state.key_groups import hash_keys
from braid.operators.windows import Window
from tests.kit.random_joins import SECOND, STREAMS, RandomJoin, comparable, expected, plan, random_tuples
from tests.operators.join_pipeline import JoinPipeline, changelog
from tests.operators.pipeline import Row


def run_random_joins(pipeline: JoinPipeline, rng: random.Random, queries: Mapping[str, RandomJoin]) -> None:
    """Run batches in which some of the queries are made and deleted, then hold the rows of all against DuckDB's."""
    plans = {name: _planned(query) for name, query in queries.items()}
    slots = {name: number for number, name in enumerate(queries)}
    waiting = list(queries)
    active_from: dict[str, dict[str, int | None]] = {}
    active_to: dict[str, int] = {}
    seen: dict[str, list[Row]] = {stream.id: [] for stream in STREAMS}
    time, epoch = 5 * SECOND, 0
    for _ in range(rng.randint(3, 12)):
        changelogs = []
        if waiting and rng.random() < 0.7:
            name = waiting.pop()
            epoch += 1
            changelogs.append(changelog(epoch, [(name, slots[name], plans[name])]))
            active_from[name] = dict(pipeline.clocks)
        running = [name for name in active_from if name not in active_to]
        if running and rng.random() < 0.1 and all(clock is not None for clock in pipeline.clocks.values()):
            name = rng.choice(running)
            if active_from[name] != pipeline.clocks:
                epoch += 1
                changelogs.append(changelog(epoch, [], [(name, slots[name])]))
                clocks = [pipeline.clocks[stream] for stream in plans[name].streams]
                active_to[name] = min(clock for clock in clocks if clock is not None)
        if running and rng.random() < 0.4:  # plans change at random: whatever the groups, rows are the same
            epoch += 1
            moved = [(name, slots[name], rng.randrange(3)) for name in running if rng.random() < 0.7]
            changelogs.append(changelog(epoch, [], regrouped=moved))
        joins = {operator_of(plans[name]): plans[name] for name in running}
        for join in joins.values():  # and whatever keys are split
            if isinstance(join, Join) and rng.random() < 0.5 and _may_split(pipeline, join):
                epoch += 1
                changelogs.append(changelog(epoch, [], split=[_random_split(rng, epoch, join, pipeline)]))
        batch = {}
        for stream in STREAMS:
            batch[stream.id], reached_time = random_tuples(rng, time)
            time = max(time, reached_time - SECOND)
        time += rng.choice([0, 0, 0, 0, 5 * SECOND])
        for of, rows in pipeline.run(batch, changelogs).items():
            seen[of] += rows
    last = {"k": 77, "m": 77, "v": 77, "x": 0.0, "s": "end", "d": None, "t": time + 100 * SECOND}
    for of, rows in pipeline.run({stream.id: [last] for stream in STREAMS}).items():
        seen[of] += rows
    for name in active_from:
        reached = min(w for s in plans[name].streams if (w := pipeline.watermarks[s]) is not None)
        wanted = expected(queries[name], seen, active_from[name], active_to.get(name), reached)
        got = [
            tuple(value for column, value in row.items() if column != "_partial") for row in pipeline.rows.get(name, [])
        ]
        assert sorted(map(comparable, got)) == sorted(map(comparable, wanted)), (name, queries[name].sql)
    assert not pipeline.failures


def _may_split(pipeline: JoinPipeline, join: Join) -> bool:
    """Whether windows from before the last split of a join's operator are over; nothing was planned for this batch."""
    members = [live.query for live in pipeline.live.of_kind(JOIN) if live.operator == operator_of(join)]
    splits, watermarks = pipeline.live.splits.get(operator_of(join)), [pipeline.watermarks.get(s) for s in join.streams]
    if not splits:
        return True
    longest = max((each.window.size_us for each in members if isinstance(each.window, Window)), default=0)
    return all(watermark is not None and watermark >= splits[-1].since + longest for watermark in watermarks)


def _random_split(rng: random.Random, number: int, join: Join, pipeline: JoinPipeline) -> dict[str, Any]:
    """Split some keys of one or two attributes, or none, which ends a split, or those that are split already."""
    splits = pipeline.live.splits.get(operator_of(join))
    if splits and rng.random() < 0.4:
        return {"operator": operator_of(join), "streams": list(join.streams), **splits[-1].to_json()}
    keys = [[value] for value in range(4)] + [[one, two] for one in range(4) for two in range(3)]
    hashes = [int(hash_keys([pa.array([value]) for value in key], 1, SALT)[0]) for key in keys]
    if rng.random() < 0.3:
        return {"operator": operator_of(join), "streams": join.streams, "number": 0, "hashes": [], "spread": 0}
    spread = rng.randrange(len(join.inputs))
    return {
        "operator": operator_of(join),
        "streams": list(join.streams),
        "number": number,
        "hashes": [each for each in hashes if rng.random() < 0.5],
        "spread": spread,
        "by": list(columns_to_spread_by(join, spread) or ()),
    }


def _planned(query: RandomJoin) -> Join | Aggregation:
    found = plan(query)
    assert found is not None
    return found
