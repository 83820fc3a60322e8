"""Secrets in every place where a user can give one: none is in an answer, a log or a file."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from braid.api.serve import open_storage
from tests.kit.fixtures import FreshService
from tests.kit.service import RunningService, free_port
from tests.kit.waiting import wait_until
from tests.kit.webhook import receiving

MARK = "hunter2"  # is in every secret
COLUMNS = "(n BIGINT, t TIMESTAMP LATENESS INTERVAL '0' SECOND)"
PUSH = f"CREATE STREAM taps {COLUMNS} WITH (connector = 'push', format = 'json')"
KAFKA = "connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = '127.0.0.1:1'"
SELECT = "SELECT n FROM taps"
NAMES = ("kafka", "registry", "hook", "url", "token", "database", "clickhouse")


@pytest.fixture(scope="module")
def nobody() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def service(fresh_service: FreshService) -> RunningService:
    secrets = {f"BRAID_SECRET_{name.upper()}": f"{MARK}-{name}" for name in NAMES}
    secrets["BRAID_SECRET_URL"] = f"http://{free_port()}.invalid/T0/{MARK}-url"
    return fresh_service(**secrets, BRAID_LOG_LEVEL="debug")


def streams() -> Iterator[str]:
    """Yield statements that refer to secrets."""
    yield (
        f"CREATE STREAM k1 {COLUMNS} WITH ({KAFKA}, 'properties.security.protocol' = 'SASL_PLAINTEXT',"
        " 'properties.sasl.mechanism' = 'PLAIN', 'properties.sasl.username' = 'me',"
        " 'properties.sasl.password' = 'secret:kafka')"
    )
    yield (
        f"CREATE STREAM k2 {COLUMNS} WITH ({KAFKA}, format = 'avro', 'avro.schema-registry.url' ="
        " 'http://127.0.0.1:1', 'avro.schema-registry.basic-auth.user-info' = 'secret:registry')"
    )


def sinks(nobody: str, hook: str) -> Iterator[dict[str, Any]]:
    """Yield sinks that refer to secrets; nobody answers but the hook, and that refuses."""
    yield {"connector": "webhook", "url": hook, "secret": "secret:hook", "header.Authorization": "Bearer secret:token"}
    yield {"connector": "webhook", "url": "secret:url"}
    yield {"connector": "clickhouse", "url": f"http://{nobody}", "table": "t", "password": "secret:clickhouse"}
    yield {
        "connector": "postgres",
        "url": f"postgresql://{nobody}/d",
        "table": "t",
        "password": "secret:database",
        "username": "me",
    }
    yield {
        "connector": "kafka",
        "topic": "t",
        "properties.bootstrap.servers": nobody,
        "properties.security.protocol": "SASL_PLAINTEXT",
        "properties.sasl.mechanism": "PLAIN",
        "properties.sasl.username": "me",
        "properties.sasl.password": "secret:kafka",
    }


def plain() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests with secrets that are no references."""
    for options in (
        f"{KAFKA}, 'properties.sasl.password' = '{MARK}'",
        f"{KAFKA}, 'properties.ssl.key.pem' = '{MARK}'",
        f"{KAFKA}, 'properties.sasl.oauthbearer.token.endpoint.url' = 'https://u:{MARK}@h/t'",
        f"{KAFKA}, format = 'avro', 'avro.schema-registry.url' = 'http://u:{MARK}@h'",
        f"{KAFKA}, format = 'avro', 'avro.schema-registry.url' = 'http://h',"
        f" 'avro.schema-registry.basic-auth.user-info' = 'u:{MARK}'",
        f"{KAFKA}, format = 'json', 'json.schema-registry.url' = 'http://h',"
        f" 'json.schema-registry.basic-auth.user-info' = 'u:{MARK}'",
        f"connector = 'file', path = 's3://AKID:{MARK}@bucket/x'",
    ):
        yield "/streams", {"sql": f"CREATE STREAM plain {COLUMNS} WITH ({options})"}
        yield "/sql", {"sql": f"CREATE STREAM plain {COLUMNS} WITH ({options})"}
    table = f"CREATE TABLE plain (n BIGINT) WITH (connector = 'file', path = 's3://AKID:{MARK}@b/x.csv')"
    yield "/tables", {"sql": table}
    for sink in (
        {"connector": "webhook", "url": f"https://u:{MARK}@h/"},
        {"connector": "webhook", "url": f"https://{MARK}@h/"},
        {"connector": "webhook", "url": "https://h/", "secret": MARK},
        {"connector": "webhook", "url": "https://h/", "header.Authorization": f"Bearer {MARK}"},
        {"connector": "webhook", "url": "https://h/", "header.X-Shop-Token": MARK},
        {"connector": "clickhouse", "url": f"http://u:{MARK}@h", "table": "t"},
        {"connector": "clickhouse", "url": "http://h", "table": "t", "password": MARK},
        {"connector": "postgres", "url": f"postgresql://u:{MARK}@h/d", "table": "t"},
        {"connector": "postgres", "url": f"postgresql://h/d?password={MARK}", "table": "t"},
        {"connector": "postgres", "url": "postgresql://h/d", "table": "t", "password": MARK},
        {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "h:1", "properties.sasl.password": MARK},
        {"connector": "file", "path": f"s3://AKID:{MARK}@bucket/x"},
    ):
        yield "/queries", {"sql": SELECT, "sink": sink}
        yield "/queries/validate", {"sql": SELECT, "sink": sink}


def every_answer(client: httpx.Client) -> dict[str, str]:
    """Return what every GET of the OpenAPI document answers, for all that there is."""
    there = {
        "{name}": [each["name"] for kind in ("streams", "tables") for each in client.get(f"/{kind}").json()[kind]],
        "{id}": [each["id"] for each in client.get("/queries").json()["queries"]],
    }
    found = {}
    for path, calls in client.get("/openapi.json").json()["paths"].items():
        if "get" not in calls or path.endswith("/stream"):
            continue
        places = [path]
        for parameter, values in there.items():
            places = [place.replace(parameter, value) for place in places for value in values or [parameter]]
        for place in dict.fromkeys(places):
            found[place] = client.get(place).text
    return found


@pytest.mark.service
@pytest.mark.long
def test_no_secret_is_shown_or_kept(service: RunningService, nobody: str) -> None:
    with receiving() as hook, httpx.Client(base_url=service.url, timeout=60) as client:
        hook.answer = (400, {})
        assert client.post("/streams", json={"sql": PUSH}).status_code == 201
        for number, (path, body) in enumerate(plain()):
            answer = client.post(path, json=body, headers={"Idempotency-Key": f"k{number}"})
            assert answer.status_code == 422, (path, body, answer.text)
            assert MARK not in answer.text
        for statement in streams():
            assert client.post("/sql", json={"sql": statement}).status_code == 200
        queries = []
        for sink in sinks(nobody, hook.url):
            made = client.post("/queries?wait=30", json={"sql": SELECT, "sink": sink})
            assert made.status_code == 201, made.text
            queries.append(made.json()["id"])
        row = json.dumps({"n": 1, "t": "2026-01-01T00:00:00Z"})
        pushed = client.post("/streams/taps/events", content=row, headers={"Content-Type": "application/x-ndjson"})
        assert pushed.json()["accepted"] == 1
        bad = client.post("/streams/taps/events", content="{", headers={"Content-Type": "application/x-ndjson"})
        assert bad.json()["rejected"] == 1
        # every sink has tried, and says why it could not, or which rows were refused
        wait_until(lambda: all(has_failed(client, each) for each in queries), 90, "all sinks have failed")
        answers = every_answer(client)
    assert len(answers) > 20
    assert any("secret:kafka" in text for text in answers.values())
    assert [place for place, text in answers.items() if MARK in text] == []
    files = [path for path in Path(service.data_dir).rglob("*") if path.is_file()]
    assert [path for path in (service.log, *files) if MARK.encode() in path.read_bytes()] == []


def has_failed(client: httpx.Client, query: str) -> bool:
    delivery = client.get(f"/queries/{query}").json()["delivery"]
    return bool(delivery and (delivery["error"] or delivery["refused"]))


def test_a_new_data_directory_is_its_owners(tmp_path: Path) -> None:
    made = tmp_path / "a" / "data"
    open_storage(str(made))
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
