"""Workload files load, agree with the datasets, and bad ones are refused with what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from braid.bench_driver import workload as workloads
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.schedule import Share
from braid.bench_driver.workload import Churn, list_workloads, load_workload, parse_workload

SMALLEST: dict[str, Any] = {
    "about": "a test",
    "source": "none",
    "streams": [{"name": "a", "dataset": "astream", "keys": 10}],
    "queries": {"template": "aggregation", "counts": [1], "window_max_seconds": 5},
    "load": {"start_rate": 1000},
}


def test_every_workload_of_the_thesis_is_there() -> None:
    assert {
        "rovio-aggregation",
        "rovio-join",
        "astream-sc1",
        "astream-sc1-join",
        "astream-sc1-complex",
        "astream-sc2",
        "astream-sc2-join",
        "astream-sc2-complex",
        "ajoin-sc1",
        "ajoin-sc2",
        "large-windows",
        "one-key",
        "fluctuating",
    } <= set(list_workloads())


@pytest.mark.parametrize("name", list_workloads())
def test_a_workload_names_its_source_and_options_that_its_datasets_have(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.about
    assert workload.source[0].isdigit() or workload.source.startswith("NEXMark"), "else a section of the thesis"
    for stream in workload.streams:
        assert find_dataset(stream.dataset).options(stream.options).items() >= stream.options.items()


def test_queries_are_posted_at_the_ramp_that_reaches_their_number() -> None:
    workload = load_workload("astream-sc1")
    assert [workload.per_second(queries) for queries in (1, 20, 21, 60, 61, 1000, 5000)] == [
        1,
        1,
        10,
        10,
        100,
        100,
        100,
    ]
    assert load_workload("rovio-aggregation").per_second(1) == 100


def test_a_churn_workload_measures_as_many_queries_as_each_churn_replaces() -> None:
    workload = load_workload("astream-sc2")
    assert workload.counts == (10, 50)
    assert [workload.churn(queries) for queries in (10, 49, 50, 200)] == [
        Churn(10, 10),
        Churn(10, 10),
        Churn(50, 10),
        Churn(50, 10),
    ]
    assert workload.churn(3) == Churn(3, 10)
    assert load_workload("astream-sc1").churn(10) is None


def test_several_streams_may_be_declared_at_once() -> None:
    streams = [{"names": ["a", "b"], "dataset": "astream", "keys": 10}]
    parsed = parse_workload("test", {**SMALLEST, "streams": streams})
    assert [(stream.name, stream.dataset, dict(stream.options)) for stream in parsed.streams] == [
        ("a", "astream", {"keys": 10}),
        ("b", "astream", {"keys": 10}),
    ]


def test_streams_may_have_shares_of_the_rate() -> None:
    shares = [stream.share for stream in load_workload("nexmark").streams]
    assert shares == [Share(1, 50), Share(3, 50), Share(46, 50)]
    assert sum(share.rate(1_000_000) for share in shares) == 1_000_000
    assert {stream.share for stream in load_workload("ajoin-sc1").streams} == {Share()}


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("streams", [], "needs streams"),
        ("streams", [{"names": ["a", "a"], "dataset": "astream"}], "a name of its own"),
        ("streams", [{"name": "a", "dataset": "astream", "share": [2, 1]}], "a share must be"),
        ("queries", {"template": "nonsense", "counts": [1]}, "template must be one of"),
        ("queries", {"template": "aggregation", "counts": []}, "counts"),
        ("queries", {"template": "aggregation", "counts": [0]}, "counts from 1"),
        (
            "queries",
            {"template": "aggregation", "counts": [1], "churns": [{"queries": 1, "every_seconds": 1}]},
            "churn",
        ),
        ("load", {"start_rate": 0}, "positive start_rate"),
        ("load", {"start_rate": 1, "shape": "odd"}, "shape must be one of"),
        ("load", {"start_rate": 1, "shape": "fluctuating"}, "profile"),
    ],
)
def test_an_impossible_workload_is_refused(part: str, value: Any, complaint: str) -> None:
    parse_workload("test", SMALLEST)
    with pytest.raises(ValueError, match=complaint):
        parse_workload("test", {**SMALLEST, part: value})


def test_options_of_the_queries_may_follow_the_name() -> None:
    workload = load_workload("ajoin-sc1:ways=[3]:similarity=0.25")
    assert (workload.name, workload.options["ways"]) == ("ajoin-sc1:ways=[3]:similarity=0.25", [3])
    assert workload.options == {**load_workload("ajoin-sc1").options, "ways": [3], "similarity": 0.25}
    with pytest.raises(ValueError, match=r"no option 'way' of its queries; there are similarity, ways, window_seconds"):
        load_workload("ajoin-sc1:way=[3]")
    with pytest.raises(ValueError, match=":NAME=VALUE"):
        load_workload("ajoin-sc1:3")


def test_an_unknown_workload_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no workload '\.\./workload'; there are ajoin-sc1, "):
        load_workload("../workload")


@pytest.mark.parametrize("text", ["about = ", 'about = "x"', 'about = "x"\nodd = 1\nstreams = []\n[queries]\n[load]\n'])
def test_a_file_that_is_no_workload_is_named(text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(workloads, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"broken\.toml does not describe a workload"):
        load_workload("broken")
