"""Bytes of others, mutated: none ends the process that decodes them, or takes its memory, or is half accepted.

``BRAID_FORMAT_MUTATIONS`` is how many of each format the test makes; ``BRAID_FUZZ_SEED`` does a run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from tests.security.fuzz_formats import FORMATS, PLACE

MANY = int(os.environ.get("BRAID_FORMAT_MUTATIONS", "20000"))
SEED = os.environ.get("BRAID_FUZZ_SEED")
AT_ONCE = 20_000  # of one process
MEMORY = 700 << 20
SECONDS = 3600
REPOSITORY = Path(__file__).resolve().parents[2]


def fuzz(name: str, seed: str, first: int, end: int, folder: Path) -> dict[str, int]:
    """Decode mutations in another process, and return what it counted; AssertionError says which one it died of."""
    place = folder / "number"
    command = [sys.executable, "-m", "tests.security.fuzz_formats", name, seed, str(first), str(end), str(place)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    form, number = PLACE.unpack(place.read_bytes()) if place.exists() else (b"", -1)
    where = f"{form.rstrip(bytes(1)).decode()}, seed {seed}, mutation {number}"
    assert done.returncode == 0, f"{where}: {done.returncode} {done.stderr[-3000:]}"
    result = orjson.loads(done.stdout)
    assert result["memory"] < MEMORY, f"{name}, seed {seed}, mutations {first} to {end}: {result}"
    counts: dict[str, int] = result["counts"][name]
    return counts


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_mutations_are_refused_or_read(form: str, tmp_path: Path) -> None:
    seed = SEED or str(time.time_ns())
    print(f"{form}: seed {seed}")
    for first in range(0, MANY, AT_ONCE):
        end = min(first + AT_ONCE, MANY)
        assert sum(fuzz(form, seed, first, end, tmp_path).values()) == end - first
