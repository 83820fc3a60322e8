"""Idle streams: when they are, whom they follow, and what that means for joins and for what they bring later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.engine.planning.idleness import Idleness, active_partners, raise_followers
from braid.engine.planning.offsets import Offset
from braid.operators.live_queries import LiveQueries
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import SECOND, WatermarkOptions
from tests.kit.plans import plan_select
from tests.operators.job_in_process import Job
from tests.operators.join_pipeline import changelog

NOW = 1_700_000_000 * SECOND
TIMEOUT = 5 * SECOND
SCHEMA = StreamSchema((Field("k", BIGINT), Field("v", BIGINT), Field("t", TIMESTAMP)), "t", 0)


def stream(name: str, timeout_us: int | None = TIMEOUT) -> StreamDefinition:
    options = WatermarkOptions(None, timeout_us)
    return StreamDefinition(name, name, SCHEMA, "push", "json", watermark=options)


CATALOG = {name: stream(name) for name in "abcd"}


def join(*names: str) -> str:
    sources = ", ".join(f"{name} [RANGE 10 SECONDS] AS {name}" for name in names)
    equal = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
    return f"SELECT {names[0]}.v FROM {sources} WHERE {equal}"


def live(*queries: str) -> LiveQueries:
    live_queries = LiveQueries()
    created = [(f"q{slot}", slot, plan_select(sql, CATALOG)) for slot, sql in enumerate(queries)]
    live_queries.apply(changelog(1, created), {})
    return live_queries


def test_a_stream_is_idle_when_it_has_been_silent_for_its_timeout() -> None:
    idleness, streams = Idleness(), {"a": stream("a"), "b": stream("b", None), "c": stream("c", 2 * TIMEOUT)}
    assert idleness.idle(streams, (), NOW) == ()
    assert idleness.idle(streams, "abc", NOW + TIMEOUT - 1) == ()
    assert idleness.idle(streams, "abc", NOW + TIMEOUT) == ("a",)
    assert idleness.idle(streams, "abc", NOW + 9 * TIMEOUT) == ("a", "c")
    assert idleness.idle(streams, "bc", NOW + 9 * TIMEOUT) == ("c",)
    assert idleness.idle(streams, "abc", NOW + 10 * TIMEOUT - 1) == ("c",)


def test_a_new_stream_has_its_timeout_from_when_it_is_known() -> None:
    idleness = Idleness()
    assert idleness.idle({"a": stream("a")}, "a", NOW) == ()
    assert idleness.idle({"a": stream("a")}, "a", NOW + TIMEOUT) == ("a",)
    assert idleness.idle({"b": stream("b")}, "b", NOW + TIMEOUT) == ()
    assert idleness.idle({"a": stream("a")}, "a", NOW + TIMEOUT) == (), "dropped and declared again"


@pytest.mark.parametrize(
    ("queries", "idle", "expected"),
    [
        ([join("a", "b")], "", {}),
        ([join("a", "b")], "a", {"a": ["b"]}),
        ([join("a", "b")], "ab", {}),
        ([join("a", "b", "c")], "ab", {"a": ["c"], "b": ["c"]}),
        ([join("a", "b"), join("a", "c")], "a", {"a": ["b", "c"]}),
        ([join("a", "b"), join("b", "c")], "a", {"a": ["b"]}),
        ([join("a", "b"), join("b", "c")], "ab", {"b": ["c"]}),
        (["SELECT v FROM a", "SELECT COUNT(*) AS n FROM a [RANGE 1 SECOND]"], "a", {}),
        ([join("a", "b")], "d", {}),
    ],
)
def test_an_idle_stream_follows_those_that_joins_wait_for_with_it(
    queries: list[str], idle: str, expected: dict[str, list[str]]
) -> None:
    assert active_partners(live(*queries), tuple(idle)) == expected


def test_a_stream_that_is_joined_with_itself_follows_nobody() -> None:
    sql = "SELECT x.v FROM a [RANGE 10 SECONDS] AS x, a [RANGE 10 SECONDS] AS y WHERE x.k = y.k"
    assert active_partners(live(sql), ("a",)) == {}


@pytest.mark.parametrize(
    ("watermarks", "follows", "expected"),
    [
        ({"a": 3, "b": 9, "c": 7}, {"a": ["b", "c"]}, 7),
        ({"a": 8, "b": 9, "c": 7}, {"a": ["b", "c"]}, 8),
        ({"a": None, "b": 9, "c": 7}, {"a": ["b"]}, 9),
        ({"a": 3, "b": 9, "c": None}, {"a": ["b", "c"]}, 3),
        ({"a": 3, "b": 9}, {"a": ["b", "c"]}, 3),
        ({"a": 3, "b": 9}, {}, 3),
    ],
)
def test_it_rises_to_the_least_and_never_falls(
    watermarks: dict[str, int | None], follows: dict[str, list[str]], expected: int
) -> None:
    assert raise_followers(watermarks, follows) == {**watermarks, "a": expected}


TIMES = st.dictionaries(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(-50, 50)))


@given(TIMES, st.sets(st.sampled_from("abcd")), st.lists(st.permutations("abcd").map(lambda p: p[:3]), max_size=3))
def test_only_idle_streams_move_and_no_join_gets_ahead_of_one_that_is_not(
    watermarks: Mapping[str, int | None], idle: set[str], joined: list[list[str]]
) -> None:
    risen = raise_followers(watermarks, active_partners(live(*(join(*names) for names in joined)), idle))
    for name in "abcd":
        before, after = watermarks.get(name), risen.get(name)
        assert name in idle or before == after
        assert before is None or (after is not None and after >= before)
    for names in joined:
        active = [watermarks.get(name) for name in names if name not in idle]
        reached = [watermark for watermark in active if watermark is not None]
        if reached and len(reached) == len(active):
            alone = {name for name in names if name in idle and sum(name in streams for streams in joined) == 1}
            for name in alone:
                own = watermarks.get(name)
                assert risen[name] == (min(reached) if own is None else max(min(reached), own))


@contextmanager
def job(*queries: str, streams: str = "ab") -> Iterator[Job]:
    with TemporaryDirectory() as folder:
        running = Job(
            Path(folder), [CATALOG[name] for name in streams], {f"q{n}": sql for n, sql in enumerate(queries)}
        )
        try:
            yield running
        finally:
            running.close()


def row(value: int, second: int) -> dict[str, int]:
    return {"k": 1, "v": value, "t": NOW + second * SECOND}


def test_a_silent_stream_does_not_hold_a_join_and_what_it_brings_later_is_late() -> None:
    with job(join("a", "b"), "SELECT COUNT(*) AS n FROM b [RANGE 10 SECONDS]") as running:
        running.push("a", [row(1, 1)])
        running.push("b", [row(2, 2)])
        running.run(NOW)
        running.push("a", [row(3, 11)])
        (record,) = running.run(NOW + 4 * SECOND)
        assert record["idle"] == []
        assert not running.rows("q0"), "b may still bring something"
        (record,) = running.run(NOW + 5 * SECOND)
        assert (record["idle"], record["streams"]["a"]["tuples"]) == (["b"], 0), "a batch for that alone"
        assert record["watermarks"] == {"a": NOW + 11 * SECOND, "b": NOW + 11 * SECOND}
        assert record["clocks"]["b"] == NOW + 2 * SECOND, "the clock is what the stream brought"
        assert [result["v"] for result in running.rows("q0")] == [1]
        assert [result["n"] for result in running.rows("q1")] == [1], "its own windows are final, too"
        assert running.run(NOW + 6 * SECOND) == []

        running.push("a", [row(4, 25)])
        (record,) = running.run(NOW + 7 * SECOND)
        assert record["watermarks"]["b"] == NOW + 25 * SECOND, "it goes on following, in the same batch"

        running.push("b", [row(5, 12), row(6, 24), row(7, 26)])
        running.push("a", [row(8, 27), row(9, 45)])
        (record,) = running.run(NOW + 8 * SECOND)
        assert record["idle"] == []
        assert record["streams"]["b"]["late"] == 2
        assert record["watermarks"] == {"a": NOW + 45 * SECOND, "b": NOW + 26 * SECOND}
        assert [letter["reason"] for letter in running.dead_letters("b")] == ["late", "late"]
        assert [result["v"] for result in running.rows("q0")] == [1], "it is heard again, so it is waited for"
        running.push("a", [row(10, 46)])
        running.run(NOW + 12 * SECOND)
        running.run(NOW + 13 * SECOND)
        assert sorted(result["v"] for result in running.rows("q0")) == [1, 4, 8]


def test_a_stream_without_tuples_is_idle_too() -> None:
    with job(
        "SELECT a.v, b.v AS w FROM a [RANGE 10 SECONDS] AS a LEFT JOIN b [RANGE 10 SECONDS] AS b ON a.k = b.k"
    ) as j:
        j.run(NOW)
        j.push("a", [row(1, 1), row(2, 11)])
        (record,) = j.run(NOW + 6 * SECOND)
        assert (record["idle"], record["clocks"]["b"]) == (["b"], None)
        assert [(result["v"], result["w"]) for result in j.rows("q0")] == [(1, None)]


def test_when_all_are_idle_nothing_moves() -> None:
    with job(join("a", "b")) as running:
        running.push("a", [row(1, 11)])
        running.push("b", [row(2, 2)])
        (before,) = running.run(NOW)
        (record,) = running.run(NOW + TIMEOUT)
        assert record["idle"] == ["a", "b"]
        assert record["watermarks"] == before["watermarks"]
        assert running.run(NOW + 9 * TIMEOUT) == []


def test_a_stream_alone_is_idle_and_stays_where_it_is() -> None:
    with job("SELECT COUNT(*) AS n FROM a [RANGE 10 SECONDS]") as running:
        running.push("a", [row(1, 1)])
        running.push("b", [row(2, 50)])
        running.run(NOW)
        running.push("b", [row(2, 60)])
        (record,) = running.run(NOW + TIMEOUT)
        assert (record["idle"], record["watermarks"]["a"]) == (["a"], NOW + SECOND)


def test_a_batch_that_runs_again_decides_the_same() -> None:
    with job(join("a", "b")) as running:
        running.push("a", [row(1, 1), row(3, 11)])
        running.push("b", [row(2, 2)])
        running.run(NOW)
        running.push("a", [row(4, 21)])
        end = running.latest(NOW + TIMEOUT)
        assert end.idle == ("b",)
        logged = Offset.from_json(end.to_json())
        running.push("b", [row(5, 3)])  # comes after the offset was logged, and is not of the batch
        first = told(running, logged)
        assert told(running, logged) == first
        assert first[0]["watermarks"] == {"a": NOW + 21 * SECOND, "b": NOW + 21 * SECOND}
        running.batch(logged)
        assert [result["v"] for result in running.rows("q0")] == [1]
        running.planner = running.new_planner()
        (record,) = running.run(NOW + TIMEOUT)
        assert (record["idle"], record["streams"]["b"]["late"]) == ([], 1)


def test_a_planner_that_starts_anew_counts_from_its_start() -> None:
    with job(join("a", "b")) as running:
        running.push("a", [row(1, 11)])
        running.push("b", [row(2, 2)])
        running.run(NOW)
        running.planner = running.new_planner()
        assert running.run(NOW + 2 * TIMEOUT) == []
        (record,) = running.run(NOW + 3 * TIMEOUT)
        assert record["idle"] == ["a", "b"]


def told(running: Job, end: Offset) -> list[Any]:
    progress = [body for kind, body in running.attempt(end) if kind == "progress"]
    return [{name: record[name] for name in ("streams", "clocks", "watermarks", "idle")} for record in progress]
