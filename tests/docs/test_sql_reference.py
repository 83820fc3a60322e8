"""The SQL reference says what a service answers, and knows every function."""

from __future__ import annotations

import re

import pytest

from braid.client import Client
from braid.session.sql.parsing.function_names import FIELD_NAMES, FUNCTION_NAMES
from docs.reference.build import PAGE, TEMPLATE, build, examples
from tests.kit.service import RunningService


@pytest.mark.service
def test_the_page_is_what_a_service_answers_to_its_examples(service: RunningService) -> None:
    with Client(service.url, timeout=120) as braid:
        page = build(braid, TEMPLATE.read_text(encoding="utf-8"))
    assert page.splitlines() == PAGE.read_text(encoding="utf-8").splitlines(), (
        "write it anew with `python docs/reference/build.py`, with a service running"
    )


def test_every_function_has_an_example() -> None:
    shown = " ".join(examples(TEMPLATE.read_text(encoding="utf-8")))
    called = {name.lower() for name in re.findall(r"([A-Z_0-9]+)\(", shown)}
    assert called >= {known for name, known in FUNCTION_NAMES.items() if known not in FIELD_NAMES or name == known}
