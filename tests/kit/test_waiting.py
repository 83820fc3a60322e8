"""Waiting on conditions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kit.waiting import DeadlineExceededError, wait_until


def test_the_first_truthy_value_is_returned() -> None:
    answers: Iterator[object] = iter([None, 0, [], "there", "too late"])
    assert wait_until(lambda: next(answers), 5, "an answer comes") == "there"


def test_a_deadline_tells_what_must_hold_and_what_was_seen() -> None:
    looks: list[int] = []
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match=r"within 0\.2 s must hold: 5 looks, so far \d+; last got False"):
        wait_until(lambda: bool(looks.append(1)), 0.2, lambda: f"5 looks, so far {len(looks)}")  # type: ignore[func-returns-value]
    assert time.monotonic() - started < 2
    assert len(looks) > 1


def test_a_condition_is_looked_at_once_when_there_is_no_time() -> None:
    assert wait_until(lambda: True, 0, "at once")
    with pytest.raises(DeadlineExceededError):
        wait_until(lambda: False, 0, "never")
