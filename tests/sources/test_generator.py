"""Generated streams: what they hold, that every process makes up the same, and which options there are."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from braid.sources.connectors.generator import (
    BLOCK_TUPLES,
    DATASETS,
    DISTRIBUTIONS,
    MAX_RATE,
    GeneratorConnector,
    validate_options,
)
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field, StreamDefinition, StreamSchema

TWO_CENTURIES = 200 * 366 * 86_400
CREATED_US = 1_700_000_000_123_456
PURCHASES = StreamSchema(DATASETS["purchases"], "time", 0)
REPOSITORY = Path(__file__).resolve().parents[2]


def connector(schema: StreamSchema = PURCHASES, name: str = "purchases", **options: str) -> GeneratorConnector:
    """Open a generated stream."""
    return GeneratorConnector(StreamDefinition("s1", name, schema, "generator", "", options, created_us=CREATED_US))


def table(generator: GeneratorConnector, start: int, end: int) -> pa.Table:
    """Read offsets as one table."""
    batches = [chunk.tuples for chunk in generator.read("0", start, end)]
    return pa.Table.from_batches(batches).combine_chunks()


def times(generator: GeneratorConnector, start: int, end: int) -> list[int]:
    """Return the event times of offsets in microseconds."""
    return [us or 0 for us in table(generator, start, end)["time"].cast(pa.int64()).to_pylist()]


@given(st.integers(1, MAX_RATE), st.integers(0, TWO_CENTURIES), st.integers(0, 10**7), st.integers(1, 50))
@example(MAX_RATE, TWO_CENTURIES, 10**7, 50)
def test_event_times_follow_from_offset_and_rate(rate: int, seconds: int, further: int, count: int) -> None:
    start = rate * seconds + further
    expected = [CREATED_US + i * 10**6 // rate for i in range(start, start + count)]
    assert times(connector(rate=str(rate)), start, start + count) == expected


@given(st.integers(1, MAX_RATE), st.integers(0, 10**12))
def test_what_is_available_has_happened_and_the_next_has_not(rate: int, elapsed: int) -> None:
    generator = connector(rate=str(rate))
    end = generator.available(CREATED_US + elapsed)["0"].end
    last, following = times(generator, end - 1, end + 1)
    assert last <= CREATED_US + elapsed < following


def test_a_clock_that_goes_back_takes_nothing_back() -> None:
    generator = connector(rate="10")
    assert generator.available(CREATED_US - 1) == {"0": (0, 0)}
    assert generator.available(CREATED_US + 1_000_000) == {"0": (0, 11)}
    assert generator.available(CREATED_US) == {"0": (0, 11)}


@given(
    st.lists(st.integers(0, 3 * BLOCK_TUPLES), min_size=2, max_size=5).map(sorted),
    st.sampled_from(DISTRIBUTIONS),
)
def test_any_cut_of_a_range_reads_the_same(cuts: list[int], distribution: str) -> None:
    generator = connector(distribution=distribution)
    whole = table(generator, 0, 3 * BLOCK_TUPLES)
    for start, end in pairwise(cuts):
        if start < end:
            assert table(generator, start, end).equals(whole.slice(start, end - start).combine_chunks())


def test_another_process_makes_up_the_same() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tests.sources.test_generator import connector, table\n"
        "print(hash(str(table(connector(seed='7'), 65_000, 66_000).to_pylist())))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": "0"},
        ).stdout
        for _ in range(2)
    }
    assert len(answers) == 1
    assert not table(connector(seed="7"), 0, 99)["user_id"].equals(table(connector(), 0, 99)["user_id"])


def test_values_are_what_the_thesis_describes() -> None:
    data = table(connector(keys="50"), 0, 200_000)
    assert data.schema == PURCHASES.arrow
    users, packs, prices = (data[n].to_numpy() for n in ("user_id", "gem_pack", "price"))
    assert set(np.unique(users)) == set(range(50))
    assert set(np.unique(packs)) == set(range(10))
    assert 0.99 <= prices.min() < 1.1
    assert 99.8 < prices.max() <= 99.99
    assert [round(p, 2) for p in prices[:1000].tolist()] == prices[:1000].tolist()
    assert np.bincount(users).std() < 0.05 * np.bincount(users).mean()
    assert abs(np.corrcoef(users, packs)[0, 1]) < 0.02
    assert abs(np.corrcoef(packs, prices)[0, 1]) < 0.02
    normal = table(connector(keys="1000", distribution="NORMAL"), 0, 200_000)["user_id"].to_numpy()
    assert 0 <= normal.min() <= normal.max() <= 999
    assert abs(normal.mean() - 500) < 5
    assert abs(normal.std() - 125) < 5
    ads = table(connector(StreamSchema(DATASETS["ads"], "time", 0), "ads"), 0, 1000)
    assert not ads["user_id"].equals(table(connector(), 0, 1000)["user_id"])


def test_a_stream_may_have_some_columns_in_any_order() -> None:
    fields = {f.name: f for f in PURCHASES.fields}
    schema = StreamSchema((fields["time"], Field("PRICE", fields["price"].type)), "time", 0)
    data = table(connector(schema, "mine", dataset="purchases"), 10, 20)
    assert data.schema == schema.arrow
    assert data["PRICE"].equals(table(connector(), 10, 20)["price"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mine", {}, "than its data, 'purchases', 'ads', must name them: WITH"),
        ("purchases", {"dataset": "x"}, "dataset must be one of 'purchases', 'ads'; got 'x'"),
        ("purchases", {"speed": "1"}, "has no option 'speed'. It has 'dataset', 'rate'"),
        ("purchases", {"rate": "fast"}, "rate must be a whole number, such as rate = '1000'; got 'fast'"),
        ("purchases", {"rate": "0"}, "rate must lie in 1..10000000; got 0"),
        ("purchases", {"rate": "10000001"}, "rate must lie in 1..10000000; got 10000001"),
        ("purchases", {"keys": "0"}, "keys must lie in 1..2147483648; got 0"),
        ("purchases", {"seed": "-1"}, "seed must be a whole number"),
        ("purchases", {"seed": "9" * 5000}, "seed must be a whole number"),
        (
            "purchases",
            {"distribution": "zipf"},
            "distribution must be one of 'uniform', 'normal'; got 'zipf'",
        ),
        (
            "ads",
            {},
            "Dataset 'ads' has the columns user_id BIGINT, gem_pack INT, time TIMESTAMP; got price DOUBLE",
        ),
    ],
)
def test_options_that_do_not_exist_are_told_with_those_that_do(
    name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(NotAllowed, match=message):
        validate_options(name, PURCHASES, options)


def test_no_other_partition() -> None:
    with pytest.raises(ValueError, match="partition '0' only"):
        next(connector().read("1", 0, 1))
