"""Options that all sinks have, whatever is given for them."""

from __future__ import annotations

from typing import Any

import pytest

from braid.router.sinks.connectors import read_sink
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from tests.router.sinks.subjects import SELECTION

FILE = {"connector": "file", "path": "rows"}


@pytest.mark.parametrize(
    "more",
    [
        {"flush_rows": "9" * 5000},
        {"flush_rows": "0"},
        {"flush_rows": "²"},
        {"flush_rows": 1_000_001},
        {"flush_rows": 10**5000},
        {"flush_seconds": "9" * 5000},
        {"flush_seconds": "nan"},
        {"flush_seconds": -1},
        {"flush_seconds": 1e300},
        {"path": "a\0b"},
        {"path": "nothing://x"},
    ],
)
def test_what_cannot_be_read_is_not_allowed(more: dict[str, Any]) -> None:
    with pytest.raises(NotAllowed):
        validate({**FILE, **more})


def validate(value: dict[str, Any]) -> None:
    sink = read_sink(value)
    assert sink is not None
    sink.validate(SELECTION, OPEN)


@pytest.mark.parametrize(("rows", "seconds"), [("1", "0"), ("1000000", "86400"), (7, 0.5)])
def test_what_is_within_limits_is_read(rows: object, seconds: object) -> None:
    sink = read_sink({**FILE, "flush_rows": rows, "flush_seconds": seconds})
    assert sink is not None
    sink.validate(SELECTION, OPEN)
    assert (sink.flush_rows, sink.flush_seconds) == (int(str(rows)), float(str(seconds)))
