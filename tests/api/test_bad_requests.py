"""Whatever is asked wrongly is refused with the right status and a helpful detail, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.api.rest import ALL, NDJSON, SUMS, Rest, open_rest, tuple_at

BODY_LIMIT = 20_000
JSON = {"Content-Type": "application/json"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
S2 = "CREATE STREAM s2 (n BIGINT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push', format = 'json')"


@dataclass(frozen=True)
class Bad:
    """A bad request, the status it must get and what the detail must say."""

    method: str
    path: str
    status: int
    detail: str
    json: Any = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    position: bool = False

    def __str__(self) -> str:
        body = self.json if self.content is None else self.content[:30]
        return f"{self.method} {self.path} {str(body)[:60]}"


def sql(text: str, status: int, detail: str, path: str = "/queries", position: bool = True) -> Bad:
    """Return a POST of a bad statement."""
    return Bad("POST", path, status, detail, {"sql": text}, position=position)


def query(status: int, detail: str, **fields: Any) -> Bad:
    """Return a POST of a query with bad fields."""
    return Bad("POST", "/queries", status, detail, {"sql": ALL, **fields})


def events(content: bytes, status: int, detail: str, headers: dict[str, str], name: str = "purchases") -> Bad:
    """Return a bad push."""
    return Bad("POST", f"/streams/{name}/events", status, detail, content=content, headers=headers)


TABLE = [
    # bodies
    Bad("POST", "/queries", 400, "must be JSON; got none", content=b""),
    Bad("POST", "/queries", 400, "line 1, column 9", content=b'{"sql": }'),
    Bad("POST", "/queries", 400, "must be an object", "SELECT 1"),
    Bad("POST", "/queries", 400, "must be an object", 5),
    Bad("POST", "/queries", 400, "At least one query", []),
    Bad("POST", "/queries", 400, "Query 2 of 2: A query must be an object", [{"sql": ALL}, 7]),
    Bad("POST", "/queries", 400, 'must have its text in "sql"; it is missing.', {"name": "x"}),
    Bad("POST", "/queries", 400, 'must have its text in "sql"; it is missing.', {}),
    Bad("POST", "/queries", 400, 'must have its text in "sql"; it is null.', {"sql": None}),
    Bad("POST", "/queries", 400, 'must have its text in "sql"; got 5.', {"sql": 5}),
    Bad("POST", "/queries", 400, "'sqk' too", {"sql": ALL, "sqk": 1}),
    Bad("POST", "/queries", 413, "at most 20000 bytes", content=b" " * (BODY_LIMIT + 1)),
    Bad("POST", "/streams", 413, "at most 20000 bytes", {"sql": S2 + " " * BODY_LIMIT}),
    Bad("POST", "/streams", 400, '{"sql": "CREATE STREAM', {"stream": S2}),
    Bad("POST", "/streams", 400, '{"sql": "CREATE STREAM', [S2]),
    Bad("POST", "/streams", 400, "'connector' too", {"sql": S2, "connector": "push"}),
    Bad("POST", "/sql", 400, '{"sql": "SHOW STREAMS"}', {"statement": "SHOW STREAMS"}),
    Bad("POST", "/sql", 400, "must be JSON", content=b"SHOW STREAMS"),
    # fields of a query
    query(422, "name must be 1 to 200", name=""),
    query(422, "name must be 1 to 200", name=5),
    query(422, "no '/'", name="a/b"),
    query(422, "look like an id", name="q-7"),
    query(422, "stand in an address", name=" .. "),
    query(409, "has this name", name="taken"),
    query(422, "ttl_seconds must be a number", ttl_seconds=-1),
    query(422, "ttl_seconds must be a number", ttl_seconds="soon"),
    query(422, "labels must be an object", labels=["a"]),
    query(422, "labels must be an object", labels={"a": 1}),
    query(422, "sink", sink={"kafka": "topic"}),
    Bad("POST", "/queries", 409, "has this name", [{"sql": ALL, "name": "two"}, {"sql": SUMS, "name": "two"}]),
    # statements
    sql("SELEKT * FROM purchases", 400, "SELEKT"),
    sql("", 400, "", position=False),
    sql("SELECT * FROM", 400, ""),
    sql("SELECT * FROM purchases;\n  SELECT 1", 400, ""),
    sql("SELECT * FROM nothing", 422, "purchases"),
    sql("SELECT prize FROM purchases", 422, "price"),
    sql("SELECT note + 1 FROM purchases", 422, ""),
    sql("SELECT FROBNICATE(price) FROM purchases", 422, ""),
    sql("SELECT user_id FROM purchases WHERE price", 422, ""),
    sql("SELECT SUM(price) FROM purchases", 422, "", position=False),
    sql("SELECT SUM(price) FROM purchases [RANGE 0 SECONDS]", 422, "", position=False),
    sql("DROP STREAM purchases", 422, "POST /sql (braid sql) takes every statement", position=False),
    sql("SELECT 1 FROM purchases", 422, "CREATE STREAM", path="/streams", position=False),
    sql("CREATE STREAM purchases (t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector='push', format='json')",
        409, "a stream has this name", path="/streams", position=False),
    sql("CREATE STREAM s2 (n BIGINT) WITH (connector = 'push', format = 'json')", 422, "LATENESS", "/streams", False),
    sql(S2.replace("n BIGINT", "_n BIGINT"), 422, "_n", "/streams", False),
    sql(S2.replace("n BIGINT", "t INT"), 422, "", "/streams", False),
    sql(S2.replace("BIGINT", "GEOMETRY"), 422, "", "/streams", False),
    sql(S2.replace("'push'", "'pigeon'"), 422, "pigeon", "/streams", False),
    sql("DROP QUERY nothing", 404, "nothing", "/sql", False),
    sql("EXPLAIN SELECT nothing FROM purchases", 422, "user_id", "/sql"),
    sql("SELECT nothing FROM purchases", 422, "user_id", "/queries/validate"),
    Bad("POST", "/queries", 422, "Query 2 of 3", [{"sql": ALL}, {"sql": "SELECT x FROM purchases"}, {"sql": ALL}]),
    # things that are not there
    Bad("GET", "/streams/nothing", 404, "purchases"),
    Bad("DELETE", "/streams/nothing", 404, "purchases"),
    Bad("DELETE", "/streams/purchases", 409, "q-1"),
    Bad("DELETE", "/tables/nothing", 404, "nothing"),
    Bad("GET", "/queries/q-99", 404, "q-99"),
    Bad("GET", "/queries/nothing/results", 404, "nothing"),
    Bad("GET", "/queries/q-99/results/stream", 404, "q-99"),
    Bad("GET", "/queries/q-99/plan", 404, "q-99"),
    Bad("DELETE", "/queries/q-99", 404, "q-99"),
    Bad("GET", "/nothing", 404, "/docs lists all calls"),
    Bad("PUT", "/queries", 405, "does not take PUT; it takes GET, POST."),
    Bad("POST", "/queries/q-1", 405, "does not take POST; it takes GET, PUT, DELETE."),
    Bad("PUT", "/streams/purchases", 405, "does not take PUT; it takes GET, DELETE."),
    Bad("PUT", "/streams/purchases/events", 405, "does not take PUT; it takes POST."),
    Bad("PUT", "/healthz", 405, "does not take PUT; it takes GET"),
    Bad("PUT", "/", 405, "does not take PUT; it takes GET"),
    # parameters
    Bad("GET", "/queries/q-1/results?after=garbage", 400, "taken unchanged"),
    Bad("GET", "/queries/q-1/results?limit=0", 400, "'limit'"),
    Bad("GET", "/queries/q-1/results?limit=many", 400, "'many'"),
    Bad("GET", "/queries/q-1/results?wait=-1", 400, "'wait'"),
    Bad("GET", "/queries/q-1/results?wait=nan", 400, "'wait'"),
    Bad("GET", "/queries/q-1/results", 406, "text/html", headers={"Accept": "text/html"}),
    Bad("GET", "/queries/q-1/results/stream", 400, "taken unchanged", headers={"Last-Event-ID": "garbage"}),
    Bad("GET", "/queries?state=ASLEEP", 400, "PENDING"),
    Bad("GET", "/queries?limit=0", 400, "'limit'"),
    Bad("GET", "/queries?cursor=nonsense", 400, "cursor"),
    Bad("GET", "/changelogs?after=-1", 400, "'after'"),
    Bad("GET", "/plan?format=png", 400, "'format'"),
    Bad("GET", "/streams/purchases/dead-letters?after=%00", 400, "taken unchanged"),
    Bad("DELETE", "/queries/q-1?drain=maybe", 400, "parameter 'drain': must be true or false; got 'maybe'."),
    Bad("DELETE", "/queries/q-1?drain=", 400, "parameter 'drain': must be true or false; got ''."),
    Bad("POST", "/queries?wait=soon", 400, "'wait'", {"sql": ALL}),
    Bad("POST", "/queries", 400, "Idempotency-Key", {"sql": ALL}, headers={"Idempotency-Key": "k" * 256}),
    Bad("POST", "/queries", 400, "Idempotency-Key", {"sql": ALL}, headers={"Idempotency-Key": ""}),
    Bad("POST", "/queries", 422, "Idempotency-Key", {"sql": SUMS}, headers={"Idempotency-Key": "used"}),
    # pushes
    events(b"{}", 404, "purchases", JSON, "nothing"),
    events(b"{}", 422, "connector = 'push'", JSON, "ticks"),
    events(b"[1, 2", 400, "", JSON),
    events(b'"text"', 400, "", JSON),
    events(b"\xff\xfe", 400, "UTF-8", JSON),
    events(b"\x1f\x8b", 400, "must be whole and packed so", JSON | {"Content-Encoding": "gzip"}),
    events(b"{}", 400, "must be whole and packed so", JSON | {"Content-Encoding": "ZSTD"}),
    events(b"{}", 400, "with gzip, x-gzip, zstd or without Content-Encoding", JSON | {"Content-Encoding": "br"}),
    Bad("POST", "/queries", 400, "without Content-Encoding", {"sql": ALL}, headers={"Content-Encoding": "gzip"}),
    events(b"not arrow", 400, "", ARROW),
    events(b"{}", 400, "The first line lacks column 'time'; it has '{}'. It must", {"Content-Type": "text/csv"}),
    events(b"1,2", 400, "header=absent is not taken", {"Content-Type": "text/csv;header=absent"}),
    events(b"{}", 400, "content type", {"Content-Type": "text/plain"}),
    events(b"{}", 400, "content type", {}),
    events(b"{}\n" * BODY_LIMIT, 413, "at most 20000 bytes", {"Content-Type": NDJSON}),
]  # fmt: skip


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """A service with streams, a running query with a row, and a used key."""
    with open_rest(tmp_path_factory.mktemp("bad"), max_body_bytes=BODY_LIMIT) as running:
        running.stream()
        running.stream(
            "CREATE STREAM ticks (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP"
            " LATENESS INTERVAL '0' SECOND) WITH (connector = 'generator', dataset = 'purchases', rate = 1)"
        )
        content = b'{"user_id": 1, "time": "2026-01-01T00:00:00Z"}'
        push_response = running.client.post("/streams/purchases/events", content=content, headers=JSON)
        assert running.read(push_response, 200)["accepted"] == 1
        query = running.query(name="taken")
        assert query["id"] == "q-1"
        running.client.post("/queries", json={"sql": ALL}, headers={"Idempotency-Key": "used"})
        running.run("q-2")
        running.select([tuple_at(1, user_id=1)], [query["slot"]])
        yield running


def test_there_are_at_least_forty() -> None:
    assert len(TABLE) >= 40


@pytest.mark.parametrize("bad", TABLE, ids=str)
def test_a_bad_request_is_refused_and_changes_nothing(rest: Rest, bad: Bad) -> None:
    before = rest.everything()
    body = {"json": bad.json} if bad.content is None and bad.json is not None else {"content": bad.content}
    response = rest.client.request(bad.method, bad.path, headers=bad.headers, **body)
    problem = rest.read(response, bad.status)
    assert response.headers["content-type"] == "application/problem+json"
    assert problem["status"] == bad.status
    assert problem["type"].startswith("urn:braid:problem:")
    assert problem["title"]
    assert bad.detail in problem["detail"]
    assert len(problem["detail"]) > 10
    if bad.position:
        assert problem["position"]["line"] >= 1
        assert problem["position"]["column"] >= 1
    if bad.status == 405:
        assert problem["detail"].endswith(f"; it takes {response.headers['allow']}.")
    assert rest.everything() == before


def test_too_many_queries_are_told_when_to_come_again(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_queries=2) as rest:
        rest.stream()
        rest.query()  # running, so that nothing changes by itself
        before = rest.everything()
        response = rest.client.post("/queries", json=[{"sql": ALL}, {"sql": ALL}])
        assert rest.read(response, 429)["title"] == "Limit reached"
        assert int(response.headers["retry-after"]) >= 1
        assert rest.post("/queries", [{"sql": ALL}] * 3, 413)["status"] == 413
        assert rest.everything() == before


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(rest: Rest) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(BODY_LIMIT):
            yield b"{}\n" * 10

    response = rest.client.post("/streams/purchases/events", content=endless(), headers={"Content-Type": NDJSON})
    assert rest.read(response, 413)["title"] == "Too large"
