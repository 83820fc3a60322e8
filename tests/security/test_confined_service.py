"""A service that is confined: what its processes opened before they do not open any more, and all of them say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until
from tests.kit.webhook import receiving

COLUMNS = "(n BIGINT, t TIMESTAMP LATENESS INTERVAL '0' SECOND)"
LONG = 150.0


def row(n: int) -> str:
    return json.dumps({"n": n, "t": f"2026-01-01T00:00:{n:02d}Z"}) + "\n"


@pytest.mark.service
@pytest.mark.long
def test_what_was_declared_before_is_confined_too(fresh_service: FreshService, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "a.json").write_text(row(1))
    config = tmp_path / "braid.toml"
    config.write_text("")
    service = fresh_service(BRAID_CONFIG=str(config))
    with receiving() as hook, httpx.Client(base_url=service.url, timeout=60) as client:

        def get(path: str) -> Any:
            return client.get(path).json()

        def make(sql: str, sink: dict[str, str] | None = None) -> httpx.Response:
            return client.post("/queries?wait=60", json={"sql": sql, "sink": sink})

        for sql in (
            f"CREATE STREAM taps {COLUMNS} WITH (connector = 'push', format = 'json')",
            f"CREATE STREAM files {COLUMNS} WITH (connector = 'file', path = '{folder}', format = 'json')",
        ):
            assert client.post("/streams", json={"sql": sql}).status_code == 201
        make("SELECT n FROM files")  # a stream of files is not read before somebody asks for it
        made = make("SELECT n FROM taps", {"connector": "webhook", "url": hook.url})
        query = made.json()["id"]

        def push(n: int) -> None:
            kind = {"Content-Type": "application/x-ndjson"}
            assert client.post("/streams/taps/events", content=row(n), headers=kind).json()["accepted"] == 1

        push(1)
        wait_until(lambda: len(hook.rows) == 1, LONG, "the hook has the row")
        wait_until(lambda: get("/streams/files")["tuples"] == 1, LONG, "the file is read")

        config.write_text('table_folder = "none"\nsink_folder = "none"\noutgoing_allow = ["public"]\n')
        service.restart()
        (folder / "b.json").write_text(row(2))
        push(2)
        error = wait_until(lambda: get("/streams/files").get("error"), LONG, "the stream says what is wrong")
        assert "setting table_folder" in error
        problem = wait_until(lambda: get(f"/queries/{query}")["delivery"]["error"], LONG, "the sink says so")
        assert "setting outgoing_allow" in problem
        assert (len(hook.rows), get("/streams/files")["tuples"]) == (1, 1)
        for sink, setting in (
            ({"connector": "webhook", "url": hook.url}, "outgoing_allow"),
            ({"connector": "file", "path": str(tmp_path / "rows")}, "sink_folder"),
        ):
            refused = make("SELECT n FROM taps", sink)
            assert refused.status_code == 422
            assert setting in refused.json()["detail"]
        table = f"CREATE TABLE packs (n BIGINT) WITH (connector = 'file', path = '{folder}/a.json', format = 'json')"
        refused = client.post("/tables", json={"sql": table})
        assert (refused.status_code, "setting table_folder" in refused.json()["detail"]) == (422, True)

        config.write_text(f'table_folder = "{tmp_path}"\noutgoing_allow = ["127.0.0.0/8"]\n')
        service.restart()
        wait_until(lambda: len(hook.rows) == 2, LONG, "the hook has the other row")
        wait_until(lambda: get("/streams/files")["tuples"] == 2, LONG, "the other file is read")
