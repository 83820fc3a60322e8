"""Bytes of others, mutated: none ends the process that decodes them, or takes its memory, or is half accepted.

``BRAID_FORMAT_MUTATIONS`` is how many of each format the long test makes; ``BRAID_FUZZ_SEED`` does a run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from tests.security.fuzz_formats import FORMATS

FEW = 400
MANY = int(os.environ.get("BRAID_FORMAT_MUTATIONS", "20000"))
SEED = os.environ.get("BRAID_FUZZ_SEED")
AT_ONCE = 20_000  # of one process
MEMORY = 700 << 20
SECONDS = 3600
REPOSITORY = Path(__file__).resolve().parents[2]


def fuzz(form: str, seed: str, first: int, end: int, folder: Path) -> dict[str, int]:
    """Decode mutations in another process, and return what it counted; AssertionError says which one it died of."""
    told = folder / "number"
    command = [sys.executable, "-m", "tests.security.fuzz_formats", form, seed, str(first), str(end), str(told)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    number = int.from_bytes(told.read_bytes(), "little") if told.exists() else -1
    assert done.returncode == 0, f"{form}, seed {seed}, mutation {number}: {done.returncode} {done.stderr[-3000:]}"
    counts: dict[str, int] = orjson.loads(done.stdout)
    assert counts["memory"] < MEMORY, f"{form}, seed {seed}, mutations {first} to {end}: {counts}"
    return counts


@pytest.mark.parametrize("form", FORMATS)
def test_mutations_are_refused_or_read(form: str, tmp_path: Path) -> None:
    counts = fuzz(form, SEED or "0", 0, FEW, tmp_path)
    assert counts.get("refused", 0) + counts.get("accepted", 0) == FEW


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_many_mutations_are_refused_or_read(form: str, tmp_path: Path) -> None:
    seed = SEED or str(time.time_ns())
    print(f"{form}: seed {seed}")
    for first in range(0, MANY, AT_ONCE):
        fuzz(form, seed, first, min(first + AT_ONCE, MANY), tmp_path)
