"""A client that is generated from the OpenAPI document, as docs/rest.md says, works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.api.rest import ALL, STREAM, open_rest
from tests.api.test_access import ADMIN_KEY
from tests.docs.pages import TOP, fences, printed_commands
from tests.kit.service import RunningService

PAGE = (TOP / "docs" / "rest.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Generate the package ``braid_rest`` with the commands of the page, and let it be imported."""
    folder = tmp_path_factory.mktemp("generated")
    commands = [c.text for c in printed_commands(PAGE) if c.text.startswith(("curl -sS", "openapi-python-client "))]
    assert len(commands) == 2
    with open_rest(folder / "data") as rest:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "BRAID_URL": str(rest.client.base_url).rstrip("/"),
        }
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(commands)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    warnings = [line for line in output.splitlines() if line.startswith(("Unsupported", "ERROR", "Skipping"))]
    assert warnings, output
    assert all(line.startswith("Unsupported content type") for line in warnings), output
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.mark.long
@pytest.mark.service
@pytest.mark.usefixtures("generated")
def test_the_program_of_the_page_reads_rows(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRAID_URL", service.url)
    monkeypatch.setenv("BRAID_API_KEY", "ignored")
    names: dict[str, Any] = {}
    [program] = [block for language, block in fences(PAGE) if language == "python"]
    exec(program, names)
    assert f"It prints `{capsys.readouterr().out.strip()}`" in PAGE
    assert (names["query"].state, names["query"].waiting_for.reason) == ("RUNNING", "no_tuple")
    drop_stream = import_module("braid_rest.api.streams.drop_stream")
    with names["AuthenticatedClient"](base_url=service.url, token="ignored") as client:
        assert drop_stream.sync_detailed("rides", client=client, cascade=True).status_code == 204


@pytest.mark.usefixtures("generated")
def test_keys_and_problems_are_typed(tmp_path: Path) -> None:
    braid_rest, models = import_module("braid_rest"), import_module("braid_rest.models")
    create_stream = import_module("braid_rest.api.streams.create_stream")
    execute_sql = import_module("braid_rest.api.sql.execute_sql")
    create_queries = import_module("braid_rest.api.queries.create_queries")
    with open_rest(tmp_path, access="on", admin_key=ADMIN_KEY) as rest:
        url = str(rest.client.base_url)
        with braid_rest.AuthenticatedClient(base_url=url, token="wrong") as client:
            refused = create_stream.sync(client=client, body=models.Statement(STREAM))
            assert isinstance(refused, models.Problem)
            assert refused.status == 401
        with braid_rest.AuthenticatedClient(base_url=url, token=ADMIN_KEY) as client:
            stream = create_stream.sync(client=client, body=models.Statement(STREAM))
            assert [column.name for column in stream.columns if column.event_time] == ["time"]
            shown = execute_sql.sync(client=client, body=models.Statement("SHOW STREAMS"))
            assert [each.id for each in shown.streams] == [stream.id]
            both = create_queries.sync(client=client, body=[models.NewQuery(ALL), models.NewQuery(ALL, name="b")])
            assert [query.name for query in both] == [None, "b"]
            wrong = execute_sql.sync(client=client, body=models.Statement("SHOW\nSTREAM"))
            assert (wrong.status, wrong.position.line) == (400, 2)
