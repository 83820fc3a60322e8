"""EMIT: its forms, what they mean, and their JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from braid.operators.queries import query_from_json
from braid.operators.windows import EMIT_AFTER_WATERMARK, Emit
from braid.sources.core.errors import NotAllowed
from tests.session.sql.catalog import aggregation, selection

COUNTED = "SELECT COUNT(*) AS n FROM purchases [RANGE 8 SECONDS]"
SIX_MINUTES = 360_000_000
FORMS = [
    ("EMIT AFTER WATERMARK", Emit(False, True, None)),
    ("EMIT STREAM", Emit(True, False, None)),
    ("emit stream after watermark", Emit(True, True, None)),
    ("EMIT AFTER DELAY INTERVAL '6' MINUTES", Emit(False, False, SIX_MINUTES)),
    ("EMIT STREAM AFTER DELAY INTERVAL '6' MINUTES", Emit(True, False, SIX_MINUTES)),
    ("EMIT STREAM AFTER DELAY 6 MINUTES", Emit(True, False, SIX_MINUTES)),
    ("EMIT AFTER DELAY INTERVAL '6' MINUTE AND AFTER WATERMARK", Emit(False, True, SIX_MINUTES)),
    ("EMIT AFTER WATERMARK AND AFTER DELAY INTERVAL '6' MINUTE", Emit(False, True, SIX_MINUTES)),
    ("EMIT STREAM AFTER DELAY INTERVAL '6' MINUTE AND AFTER WATERMARK", Emit(True, True, SIX_MINUTES)),
]


SPELLINGS = (
    ("EMIT CHANGES", Emit(True, False, None)),
    ("EMIT FINAL", EMIT_AFTER_WATERMARK),
    ("EMIT ON WINDOW CLOSE", EMIT_AFTER_WATERMARK),
)


@pytest.mark.parametrize(("clause", "emit"), [*FORMS, *SPELLINGS])
def test_forms(clause: str, emit: Emit) -> None:
    query = aggregation(f"{COUNTED} HAVING COUNT(*) > 1 {clause}")
    assert query.emit == emit
    assert query.having is not None
    assert query_from_json(json.loads(json.dumps(query.to_json()))) == query


@pytest.mark.parametrize(("clause", "emit"), FORMS)
def test_a_form_reads_as_its_sql_without_the_interval(clause: str, emit: Emit) -> None:
    with_delay = emit.form.replace("DELAY", "DELAY 6 MINUTES")
    assert aggregation(f"{COUNTED} {with_delay}").emit == emit
    assert set(emit.form.split()) <= set(clause.upper().split())


def test_after_watermark_is_the_default_and_leaves_the_json_as_it_was() -> None:
    query = aggregation(COUNTED)
    assert query == aggregation(f"{COUNTED} EMIT AFTER WATERMARK")
    assert query.emit == EMIT_AFTER_WATERMARK == Emit(False, True, None)
    document = query.to_json()
    assert set(document) == {"kind", "stream", "window", "where", "keys", "measures", "outputs", "having"}
    assert document["window"] == [8_000_000, 8_000_000, 0]
    assert query_from_json(document) == query


def test_the_default_may_be_said_of_a_selection() -> None:
    query = selection("SELECT price FROM purchases WHERE ok EMIT AFTER WATERMARK")
    assert query == selection("SELECT price FROM purchases WHERE ok")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((False, False, None), "must say one of STREAM, AFTER WATERMARK and AFTER DELAY"),
        ((True, True, 0), "must be above zero; got 0 microseconds"),
        ((False, False, -1), "must be above zero; got -1 microseconds"),
    ],
)
def test_an_emit_that_means_nothing_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        Emit(*arguments)
