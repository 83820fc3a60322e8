"""The audit of dependencies never says that all is well when it does not know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.security.audit import CLEAN, KNOWN_BAD, UNKNOWN, VULNERABLE, Audit, main

ADVISORY = {"id": "PYSEC-1", "fix_versions": ["2"]}
BAD = {"dependencies": [{"name": "a", "version": "1", "vulns": [ADVISORY]}]}
GOOD = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
SKIPPED = {"dependencies": [{"name": "a", "skip_reason": "not found"}, *GOOD["dependencies"]]}


def answering(probe: dict[str, object], lock: dict[str, object]) -> Callable[[str], Audit]:
    return lambda requirements: Audit.of(probe if requirements == KNOWN_BAD else lock)


@pytest.mark.parametrize(
    ("probe", "lock", "status", "said"),
    [
        (BAD, GOOD, CLEAN, "no advisory is known"),
        (BAD, BAD, VULNERABLE, "a 1: PYSEC-1, mended in 2"),
        (BAD, SKIPPED, UNKNOWN, "NOT AUDITED"),
        (GOOD, GOOD, UNKNOWN, "NOT AUDITED"),
        (SKIPPED, GOOD, UNKNOWN, "NOT AUDITED"),
    ],
)
def test_what_is_said(
    probe: dict[str, object],
    lock: dict[str, object],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = answering(probe, lock)
    assert main([], run) == status
    assert main(["--if-reachable"], run) == (CLEAN if status == UNKNOWN else status)
    told = capsys.readouterr()
    assert (told.out + told.err).count(said) == 2
    assert ("no advisory is known" in told.out) == (said == "no advisory is known")
