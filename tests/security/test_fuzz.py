"""Requests that schemathesis makes from the OpenAPI document: none gets a 5xx, or an answer that is not described.

``BRAID_FUZZ_SECONDS`` is how long it goes on; ``BRAID_FUZZ_SEED`` does it again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.rest import STREAM, open_rest
from tests.api.test_access import ADMIN_KEY

SECONDS = int(os.environ.get("BRAID_FUZZ_SECONDS", "20"))
SEED = os.environ.get("BRAID_FUZZ_SEED")
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
    "ignored_auth",
)
ENDLESS = "/queries/{id}/results/stream"
REPOSITORY = Path(__file__).resolve().parents[2]


def test_no_request_gets_an_answer_that_is_not_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.api.routes.documents.LONGEST_WAIT_SECONDS", 0.05)
    # the files that statements may name are ours
    settings = {
        "access": "on",
        "admin_key": ADMIN_KEY,
        "table_folder": str(tmp_path / "tables"),
        "sink_folder": str(tmp_path / "rows"),
    }
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "packs.csv").write_text("gem_pack,name\n1,a\n")
    with open_rest(tmp_path / "data", **settings) as rest:
        rest.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        rest.stream(STREAM)
        table = "CREATE TABLE packs (gem_pack INT, name VARCHAR) WITH (connector = 'file', path = 'packs.csv')"
        rest.post("/tables", {"sql": table})
        rest.query(name="mine")
        rest.retire(rest.query()["id"])
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{rest.client.base_url}/openapi.json"),
            *("--header", f"Authorization: Bearer {ADMIN_KEY}"),
            *("--checks", ",".join(CHECKS), "--exclude-path", ENDLESS),
            *("--phases", "examples,coverage,fuzzing", "--max-time", str(SECONDS), "--request-timeout", "60"),
            *("--continue-on-failure", "--warnings", "off", "--no-color"),
            *(("--seed", SEED) if SEED else ()),
        ]
        environment = {
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.security.fuzz_hooks",
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONWARNINGS": "default",
        }
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS + 120, check=False
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
        operations = re.search(r"(\d+) selected / (\d+) total", done.stdout)
        assert operations is not None
        assert int(operations[1]) == int(operations[2]) - 1 >= 24
        assert rest.get("/healthz") == {"alive": True}
