"""The generated runs themselves: reproducible, valid SQL, and rich enough to be worth running."""

from __future__ import annotations

import datetime as dt

from hypothesis import HealthCheck, given, settings

from tests.kit.examples import examples
from tests.oracle.model import SEQUENCE, Push, Row, Run, Window, interval, literal, micros
from tests.oracle.recompute import Life, Recompute
from tests.oracle.strategies import runs
from tests.oracle.tuples import make_tuples
from tests.oracle.wire import decode_row, encode

SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=examples(10), deadline=None, suppress_health_check=SLOW_TO_DRAW)  # a run is big by intent
@given(runs(pushed=3, tuples=60, created=(5, 15)))
def test_runs_are_reproducible_and_their_queries_have_the_types_they_declare(run: Run) -> None:
    schema = run.schema
    tuples: list[Row] = []
    newest: int | None = None
    for push in (step for step in run.steps if isinstance(step, Push)):
        pushed = make_tuples(schema, push, newest, len(tuples))
        assert pushed == make_tuples(schema, push, newest, len(tuples))
        assert encode(schema, pushed, push.format)
        tuples += pushed
        newest = max(micros(row[schema.event_time]) for row in tuples)  # type: ignore[arg-type]
    assert [row[SEQUENCE] for row in tuples] == list(range(len(tuples)))
    assert newest is not None
    life = Life(None, None, deleted=False)
    with Recompute(schema, tuples, ()) as recompute:
        for query in run.queries:
            assert query.sql("s", schema)
            rows = recompute.rows(query, life, dt.datetime(2030, 1, 1))
            for row in rows:
                decode_row(query.output(schema), row)


def test_windows_are_written_in_every_form_of_the_contract() -> None:
    second = 1_000_000
    assert Window(8 * second, 4 * second).sql("s", "time") == "s [RANGE 8 SECONDS SLIDE 4 SECONDS]"
    assert Window(8 * second, 8 * second).sql("s", "time") == "s [RANGE 8 SECONDS]"
    assert (
        Window(8 * second, 4 * second, 0, "function").sql("s", "time")
        == "HOP(TABLE s, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND)"
    )
    assert (
        Window(8 * second, 8 * second, second, "function").sql("s", "time")
        == "TUMBLE(TABLE s, DESCRIPTOR(time), INTERVAL '8' SECOND, INTERVAL '1' SECOND)"
    )
    assert Window(60 * second, 2 * second, 500_000, "named").sql("s", "time") == (
        "HOP(data => TABLE s, timecol => DESCRIPTOR(time), dur => INTERVAL '1' MINUTE, "
        "hopsize => INTERVAL '2' SECOND, offset => INTERVAL '0.5' SECOND)"
    )


def test_literals_and_intervals() -> None:
    assert [literal(value) for value in (None, True, -3, 2.5, "it's")] == [
        "NULL",
        "TRUE",
        "-3",
        "2.5",
        "'it''s'",
    ]
    assert literal(dt.datetime(2026, 1, 2, 3, 4, 5)) == "TIMESTAMP '2026-01-02 03:04:05.000000'"
    assert literal(dt.date(2026, 1, 2)) == "DATE '2026-01-02'"
    assert interval(0) == "INTERVAL '0' SECOND"
