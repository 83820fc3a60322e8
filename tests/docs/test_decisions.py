"""Each decision says when it was made, and whether it holds."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import TOP

DECISIONS = sorted((TOP / "docs" / "decisions").glob("[0-9]*.md"))


@pytest.mark.parametrize("number", range(1, len(DECISIONS) + 1))
def test_a_decision_has_its_number_its_date_and_its_status(number: int) -> None:
    page = DECISIONS[number - 1]
    title, _, status = page.read_text(encoding="utf-8").splitlines()[:3]
    assert page.name.startswith(f"{number:04d}-")
    assert title.startswith(f"# {number}. ")
    assert re.match(r"\d{4}-\d{2}-\d{2} · (accepted|replaced by \[|rejected)", status)
