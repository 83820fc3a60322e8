"""Each dataset makes what the thesis says of its tuples, and refuses options that it does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.bench_driver.queues.datasets import AJOIN_ATTRIBUTES, ASTREAM_FIELDS, DATASETS, find_dataset
from braid.bench_driver.queues.mixed_datasets import static_table
from braid.bench_driver.queues.ring import ARROW_TYPES, Ring
from braid.bench_driver.queues.schedule import RateSegment, Schedule

COUNT = 20_000


def make(name: str, seed: int = 1, **options: Any) -> dict[str, Any]:
    dataset = find_dataset(name)
    return dataset.make(np.random.default_rng(seed), COUNT, dataset.options(options))


@pytest.mark.parametrize("name", DATASETS)
def test_all_columns_are_made_but_the_time(name: str) -> None:
    dataset, columns = DATASETS[name], make(name)
    assert [*columns, dataset.time] == [column for column, _ in dataset.columns]
    assert dataset.columns[-1][1] == "TIMESTAMP"
    assert {len(column) for column in columns.values()} == {COUNT}
    times = np.arange(100)
    batch = Ring(dataset, {}, 1, "a", 100).batch(0, times, Schedule((RateSegment(0, 0, 10),)))
    batch.validate(full=True)
    assert batch.schema.types == [ARROW_TYPES[sql_type] for _, sql_type in dataset.columns]
    assert batch[dataset.time].cast(pa.int64()).to_pylist() == times.tolist()


@pytest.mark.parametrize("name", DATASETS)
def test_the_seed_decides_the_tuples(name: str) -> None:
    columns, same_seed, another_seed = make(name), make(name), make(name, seed=2)
    assert pa.table(columns) == pa.table(same_seed)
    assert pa.table(columns) != pa.table(another_seed)


def test_astream_keys_go_round_and_fields_are_uniform() -> None:
    columns = make("astream", keys=7, fields_max=10)
    assert ((columns["key"][:-1] + 1) % 7 == columns["key"][1:]).all()
    for field in ASTREAM_FIELDS:
        counts = np.bincount(columns[field], minlength=10)
        assert len(counts) == 10
        assert counts.min() > 0.8 * COUNT / 10
    assert (columns["field0"] != columns["field1"]).any()


def test_astream_with_one_key_is_as_skewed_as_can_be() -> None:
    assert set(make("astream", one_key=True)["key"]) == {0}


def test_ajoin_attributes_are_uniform() -> None:
    columns = make("ajoin", atr_max=20)
    for attribute in AJOIN_ATTRIBUTES:
        counts = np.bincount(columns[attribute], minlength=20)
        assert len(counts) == 20
        assert counts.min() > 0.8 * COUNT / 20


def test_purchases_have_normal_or_uniform_keys() -> None:
    uniform, normal = make("purchases", gem_packs=6), make("purchases", gem_packs=6, distribution="normal")
    flat = np.bincount(uniform["gem_pack"], minlength=6) / COUNT
    bell = np.bincount(normal["gem_pack"], minlength=6) / COUNT
    assert flat == pytest.approx([1 / 6] * 6, abs=0.02)
    # one standard deviation a pack: the normal distribution's own shares
    assert bell == pytest.approx([0.0214, 0.1359, 0.3413, 0.3413, 0.1359, 0.0214], abs=0.02)
    assert normal["user_id"].min() >= 0
    assert normal["user_id"].max() < 1000
    assert normal["price"].min() > 0


def test_bids_are_mostly_for_hot_auctions_and_some_lack_a_text() -> None:
    bids = make("bids")
    assert (bids["auction"] % 100 == 0).mean() == pytest.approx(0.505, abs=0.02)
    assert (bids["bidder"] < 20).mean() == pytest.approx(0.25, abs=0.02)
    assert bids["price"].min() >= 99
    assert bids["extra"].null_count / COUNT == pytest.approx(1 / 40, abs=0.01)
    texts = bids["extra"].drop_null().to_pylist()
    assert {len(text) for text in texts} == set(range(1, 40))
    assert all(text.isalpha() and text.islower() for text in texts)


def test_totals_of_trips_are_their_fares_and_some_have_no_tip() -> None:
    trips = make("trips")
    assert [float(total) for total in trips["total"].to_pylist()] == trips["fare"].tolist()
    assert trips["tip"].null_count / COUNT == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("dataset", "column", "table", "key"),
    [("bids", "bidder", "bidders", "bidder_id"), ("trips", "zone", "zones", "zone_id")],
)
def test_each_tuple_has_one_row_in_its_static_table(dataset: str, column: str, table: str, key: str) -> None:
    keys = static_table(table)[key].to_pylist()
    assert len(keys) == len(set(keys))
    assert set(make(dataset)[column].tolist()) <= set(keys)


def test_an_unknown_static_table_is_told_those_there_are() -> None:
    with pytest.raises(ValueError, match="no static table 'users'; there are bidders, zones"):
        static_table("users")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("astream", {"key": 3}, "has the options keys, fields_max, one_key; it has no key"),
        ("astream", {"keys": 0}, "'keys' of dataset 'astream' must be a whole number from 1 to 10000000, got 0"),
        ("astream", {"keys": True}, "must be a whole number"),
        ("astream", {"one_key": 1}, "must be true or false, got 1"),
        ("ajoin", {"atr_max": "500"}, "must be a whole number"),
        ("ads", {"distribution": "zipf"}, "must be 'uniform' or 'normal', got 'zipf'"),
    ],
)
def test_options_that_a_dataset_does_not_have_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_dataset(name).options(options)


def test_an_unknown_dataset_is_told_those_there_are() -> None:
    with pytest.raises(ValueError, match="no dataset 'nexmark'; there are purchases, ads, astream, ajoin"):
        find_dataset("nexmark")
