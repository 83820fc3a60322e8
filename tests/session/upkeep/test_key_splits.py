"""When the session splits keys of a join, and that it says so once."""

from __future__ import annotations

from pathlib import Path

from braid.operators.joins.key_splits import KeySplit
from tests.session.driver import TESTED_JOIN, Driver

FIRST, SECOND = KeySplit(7, frozenset([1, 2**64 - 1])), KeySplit(8, frozenset([3]), 1, by=("price", "user_id"))
NONE = KeySplit(0)


def split(driver: Driver, key_split: KeySplit) -> bool:
    """Ask for a split of the only operator; return whether it is made."""
    (name,) = driver.state.plan.operators
    changelog = driver.session._write_changelog(None, {name: key_split})
    return changelog is not None and [made.number for made in changelog.split] == [key_split.number]


def test_keys_are_split_anew_once_windows_from_before_are_over(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "data", key_splits="off", reoptimize_seconds=10_000)
    driver.stream()
    driver.run(TESTED_JOIN.format("purchases", 1))
    (name,) = driver.state.plan.operators
    driver.batch({"s-1": 100})
    assert split(driver, FIRST)
    assert driver.state.plan.to_json()["nodes"][1]["split"] == {"keys": 2, "spread": "purchases"}
    assert not split(driver, SECOND), "a batch must have it first"
    driver.batch({"s-1": 101})
    assert [key_split.number for key_split in driver.state.active.splits[name]] == [0, 7]
    assert not split(driver, SECOND), "windows of three seconds that began at 100 or before are open"
    driver.batch({"s-1": 104})
    driver.run(TESTED_JOIN.replace("3 SECONDS", "60 SECONDS").format("purchases", 2))
    assert not split(driver, SECOND), "those of the new query are, too"
    driver.batch({"s-1": 170})
    driver.batch({"s-1": 171})
    assert driver.recovered() == driver.observed()
    assert split(driver, FIRST)
    driver.batch({"s-1": 172})
    assert [key_split.number for key_split in driver.state.active.splits[name]] == [7]
    assert split(driver, SECOND)
    driver.batch({"s-1": 173})
    assert driver.state.plan.to_json()["nodes"][1]["split"]["by"] == ["price", "user_id"]
    assert [key_split.by for key_split in driver.state.active.splits[name]] == [(), ("price", "user_id")]
    assert driver.recovered() == driver.observed()
    for second in (250, 251):
        driver.batch({"s-1": second})
    assert split(driver, SECOND)
    driver.batch({"s-1": 252})
    assert split(driver, NONE)
    driver.batch({"s-1": 253})
    assert "split" not in driver.state.plan.to_json()["nodes"][1]
    assert [key_split.number for key_split in driver.state.active.splits[name]] == [8, 0]
    for second in (400, 401):
        driver.batch({"s-1": second})
    assert split(driver, NONE)
    driver.batch()
    assert driver.state.active.splits == {}
    assert driver.recovered() == driver.observed()
    driver.end()


def test_a_split_goes_with_its_last_query(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "data", key_splits="off", reoptimize_seconds=10_000)
    driver.stream()
    (query,) = driver.run(TESTED_JOIN.format("purchases", 1))
    driver.batch({"s-1": 100})
    assert split(driver, FIRST)
    driver.batch({"s-1": 101})
    driver.session.queries.delete(query, drain=False)
    driver.create(TESTED_JOIN.format("purchases", 1))  # the same operator, by the same changelog
    driver.flush()
    driver.batch({"s-1": 102})
    assert len(driver.state.plan.operators) == 1
    assert (driver.state.plan.splits, driver.state.active.splits) == ({}, {})
    assert driver.recovered() == driver.observed()
    driver.end()


def test_with_splits_off_those_that_are_there_end(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "data", key_splits="off", reoptimize_seconds=10_000)
    driver.stream()
    driver.run(TESTED_JOIN.format("purchases", 1))
    driver.batch({"s-1": 100})
    assert split(driver, FIRST)
    for second in (101, 110, 111):
        driver.batch({"s-1": second})
    for second in (112, 120, 121):
        driver.session.reoptimize()
        driver.batch({"s-1": second})
    assert (driver.state.plan.splits, driver.state.active.splits) == ({}, {})
    kinds = [change["kind"] for change in driver.session.plans.graph()["changes"]]
    assert kinds == ["unsplit"]
    driver.end()
