"""Bodies of tuples to push: the same tuples in each format, and the figures that come of pushing them."""

from __future__ import annotations

import time

import pytest

from braid.bench_driver.programs.push_rate import BODY_TIME, MEDIA_TYPES, encode, measure, purchases
from braid.sources.core.schema import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.formats import decode

SCHEMA = StreamSchema(
    (
        Field("user_id", BIGINT),
        Field("item", VARCHAR),
        Field("price", DOUBLE),
        Field("gems", BIGINT),
        Field("gift", BOOLEAN),
        Field("time", TIMESTAMP),
    ),
    "time",
    0,
)


def test_each_format_has_the_same_tuples() -> None:
    rows = purchases(3, 500)
    assert rows[-1]["time"] - rows[0]["time"] < BODY_TIME
    assert rows[-1]["time"] < purchases(4, 500)[0]["time"]
    decoded = {form: decode(encode(rows, form), media_type, SCHEMA) for form, media_type in MEDIA_TYPES.items()}
    assert [body.malformed for body in decoded.values()] == [()] * 4
    assert decoded["ndjson"].tuples.num_rows == 500
    assert decoded["ndjson"].tuples.equals(decoded["json"].tuples)
    assert decoded["ndjson"].tuples.equals(decoded["csv"].tuples)
    assert decoded["ndjson"].tuples.equals(decoded["arrow"].tuples)


@pytest.mark.service
@pytest.mark.long
def test_what_is_pushed_is_measured() -> None:
    began = time.monotonic()
    report = measure("arrow", 1000, 2, 3, 1.0)
    took = time.monotonic() - began
    assert report["tuples"] >= 2000, "two bodies"
    assert report["tuples"] % 1000 == 0
    assert report["tuples"] / took < report["tuples_per_second"] <= report["tuples"] / 1.0
    assert 0 < report["p50_seconds"] <= report["p95_seconds"]
    assert (report["format"], report["queries"], report["clients"], report["refused"]) == ("arrow", 3, 2, 0)
