"""What the intake of a stream admits: late tuples, and those too far in the future, become dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from braid.engine.stream_intake import StreamIntake
from braid.sources.connectors.connector import Chunk, Malformed
from braid.sources.core.watermark_options import SECOND, WatermarkOptions
from tests.operators.pipeline import STREAM, batch_of

NOW = 1_700_000_000 * SECOND
MINUTE = 60 * SECOND


def taking_in(watermark: int | None = None, **options: Any) -> StreamIntake:
    return StreamIntake(replace(STREAM, watermark=WatermarkOptions(**options)), watermark, NOW)


def chunk(*times: int, malformed: tuple[Malformed, ...] = ()) -> Chunk:
    return Chunk(batch_of([{"k": n, "t": us} for n, us in enumerate(times)]), malformed, NOW, 100)


def letters(intake: StreamIntake) -> list[dict[str, Any]]:
    return pa.concat_tables(intake.dead_letters).to_pylist() if intake.dead_letters else []


def test_a_tuple_after_the_limit_is_malformed_and_one_at_it_is_not() -> None:
    intake = taking_in(max_future_us=MINUTE)
    admitted = intake.admit(chunk(NOW - 1, NOW + MINUTE, NOW + MINUTE + 1))
    assert admitted.column("k").to_pylist() == [0, 1]
    assert intake.counts == {
        "tuples": 2, "late": 0, "malformed": 1, "bytes": 100, "earliest_us": NOW - 1, "latest_us": NOW + MINUTE
    }  # fmt: skip
    (letter,) = letters(intake)
    assert letter["reason"] == "malformed"
    assert letter["detail"] == (
        "event time 2023-11-14T22:14:20.000001Z is more than 1 min after 2023-11-14T22:13:20.000000Z, when it was read;"
        " the stream's option max_future sets the limit ('none': no limit)"
    )
    assert (letter["received_us"], letter["raw"]) == (NOW, None)
    assert letter["tuple"] == '{"k":2,"v":null,"s":null,"t":"2023-11-14T22:14:20.000001Z"}'


def test_an_hour_ahead_is_allowed_by_default() -> None:
    intake = taking_in()
    assert intake.admit(chunk(NOW + 60 * MINUTE, NOW + 60 * MINUTE + 1)).num_rows == 1


def test_no_limit() -> None:
    intake = taking_in(max_future_us=None)
    latest = 253_402_300_799_999_999
    assert intake.admit(chunk(0, latest)).num_rows == 2
    assert intake.counts["latest_us"] == latest


@pytest.mark.parametrize("options", [{}, {"max_future_us": None}, {"percentile": 50.0}])
def test_where_nothing_is_wrong_nothing_is_copied(options: dict[str, Any]) -> None:
    whole_chunk = chunk(NOW - 5, NOW)
    assert taking_in(NOW - 5, **options).admit(whole_chunk) is whole_chunk.tuples


def test_a_chunk_of_the_future_alone_leaves_the_clock() -> None:
    intake = taking_in()
    assert intake.admit(chunk(NOW + 61 * MINUTE)).num_rows == 0
    assert intake.counts == {
        "tuples": 0, "late": 0, "malformed": 1, "bytes": 100, "earliest_us": None, "latest_us": None
    }  # fmt: skip
    assert intake.event_times == []


def test_late_malformed_and_future_tuples_of_one_chunk() -> None:
    intake = taking_in(watermark=NOW)
    admitted = intake.admit(chunk(NOW + 99 * MINUTE, NOW - 1, NOW, malformed=(Malformed("no JSON", "{"),)))
    assert admitted.column("k").to_pylist() == [2]
    assert intake.counts == {
        "tuples": 2, "late": 1, "malformed": 2, "bytes": 100, "earliest_us": NOW - 1, "latest_us": NOW
    }  # fmt: skip
    assert [letter["reason"] for letter in letters(intake)] == ["malformed", "malformed", "late"]
    assert letters(intake)[2]["detail"] == "event time before the watermark 2023-11-14T22:13:20.000000Z"


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 6])
def test_many_dead_letters_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("braid.engine.stream_intake.LETTERS_AT_ONCE", at_once)
    intake = taking_in(watermark=NOW)
    late, beyond = [NOW - n for n in range(1, 6)], [NOW + (60 + n) * MINUTE for n in range(1, 6)]
    assert intake.admit(chunk(*late, NOW, *beyond)).num_rows == 1
    assert intake.counts == {
        "tuples": 6, "late": 5, "malformed": 5, "bytes": 100, "earliest_us": NOW - 5, "latest_us": NOW
    }  # fmt: skip
    assert max(table.num_rows for table in intake.dead_letters) == min(at_once, 5)
    assert [letter["reason"] for letter in letters(intake)] == ["malformed"] * 5 + ["late"] * 5
    assert [orjson.loads(letter["tuple"])["k"] for letter in letters(intake)] == [*range(6, 11), *range(5)]
    for letter in letters(intake)[:5]:
        assert letter["detail"].startswith(f"event time {orjson.loads(letter['tuple'])['t']} is more than")


def test_event_times_are_summed_up_where_the_watermark_follows_a_percentile() -> None:
    intake = taking_in(percentile=99.0)
    intake.admit(chunk(NOW + 1, NOW, NOW + 61 * MINUTE))
    intake.admit(chunk(NOW - 9))
    assert [sums["us"] for sums in intake.event_times] == [[NOW, NOW + 1], [NOW - 9]]
    without = taking_in()
    without.admit(chunk(NOW))
    assert without.event_times == []
