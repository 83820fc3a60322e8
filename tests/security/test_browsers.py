"""What a browser may do with the service: headers of every answer, hosts, origins, and a page without foreign parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from braid.api.http.origins import hosts_of
from braid.session.settings import Settings
from tests.api.rest import STREAM, Rest, open_rest


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with open_rest(tmp_path_factory.mktemp("browser")) as running:
        running.stream(STREAM)
        yield running


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/streams", 200),
        ("GET", "/docs", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/streams", 405),
        ("POST", "/queries", 400),
        ("GET", "/queries?limit=x", 400),
        ("GET", "/metrics", 200),
    ],
)
def test_every_answer_has_safe_headers(rest: Rest, method: str, path: str, status: int) -> None:
    answer = rest.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in answer.headers
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_answers_about_a_defect_have_them_too(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[object]:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(rest.service.session.streams, "describe_all", broken)
    answer = rest.client.get("/streams")
    assert answer.status_code == 500
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "hunter2" not in answer.text
    # the connection is as good as after any other answer
    again = rest.client.get("/healthz")
    ports = [each.extensions["network_stream"].get_extra_info("client_addr")[1] for each in (answer, again)]
    assert ports[0] == ports[1]


def test_the_page_of_calls_loads_nothing_from_elsewhere(rest: Rest) -> None:
    page = rest.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    found = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert len(found) == 3
    for name in found:
        assert "//" not in name
        asset = rest.client.get(f"/{name}")
        assert asset.status_code == 200
        assert asset.headers["content-type"].split(";")[0] in ("text/css", "text/javascript")
        assert not re.search(r"@import|url\((?!\"?'?data:)", asset.text) or not name.endswith(".css")
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert "validatorUrl: null" in rest.client.get("/docs/start.js").text  # else a page of another host is asked
    assert rest.client.get("/docs/redoc.standalone.js").status_code == 404
    assert rest.client.get("/docs/..%2f__init__.py").status_code == 404


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "LOCALHOST", "[::1]:8080", "10.1.2.3:80"])
def test_requests_may_name_this_machine(rest: Rest, host: str) -> None:
    assert rest.client.get("/streams", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::1", "", "@"]
)
def test_requests_that_name_another_host_are_refused(rest: Rest, host: str) -> None:
    for method, path in (("GET", "/streams"), ("GET", "/docs"), ("POST", "/queries"), ("GET", "/healthz")):
        answer = rest.client.request(method, path, headers={"Host": host})
        assert answer.status_code == 403
        assert "setting allowed_hosts" in answer.json()["detail"]


def test_hosts_follow_the_settings() -> None:
    assert hosts_of(Settings(host="10.0.0.1")) == {"localhost", "10.0.0.1"}
    assert hosts_of(Settings(host="0.0.0.0")) == {"*"}
    assert hosts_of(Settings(host="0.0.0.0", allowed_hosts=("Braid.example",))) == {"braid.example"}


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1.evil.example"]
)
def test_pages_of_others_change_nothing(rest: Rest, origin: str) -> None:
    before = rest.everything()
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    for method, path, body in (
        ("POST", "/queries", '{"sql": "SELECT * FROM purchases"}'),
        ("POST", "/sql", '{"sql": "DROP STREAM purchases"}'),
        ("POST", "/streams/purchases/events", "{}"),
        ("DELETE", "/streams/purchases", None),
    ):
        answer = rest.client.request(method, path, content=body, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:braid:problem:foreign-request"
    assert rest.everything() == before
    assert "access-control-allow-origin" not in rest.client.get("/streams", headers=headers).headers
    asked = rest.client.options("/queries", headers={**headers, "Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in asked.headers


def test_our_own_pages_do(rest: Rest) -> None:
    host = f"localhost:{rest.client.base_url.port}"
    for origin in (f"http://{host}", f"https://{host}"):  # a proxy before us may have ended TLS
        answer = rest.client.post("/queries/validate", headers={"Host": host, "Origin": origin}, json={"sql": "SELECT"})
        assert answer.status_code == 400


def test_pages_that_are_allowed_do_and_others_do_not(tmp_path: Path) -> None:
    with open_rest(tmp_path, allowed_origins=("https://board.example",), allowed_hosts=("braid.example",)) as allowing:
        allowing.client.headers["Host"] = "braid.example"
        allowing.stream(STREAM)
        board, evil = ({"Origin": f"https://{name}.example"} for name in ("board", "evil"))
        made = allowing.client.post("/queries", json={"sql": "SELECT * FROM purchases"}, headers=board)
        assert (made.status_code, made.headers["access-control-allow-origin"]) == (201, "https://board.example")
        assert "Location" in made.headers["access-control-expose-headers"]
        asked = {**board, "Access-Control-Request-Method": "DELETE"}
        assert allowing.client.options("/queries/q-1", headers=asked).status_code == 200
        assert allowing.client.delete("/queries/q-1", headers=evil).status_code == 403
        assert "access-control-allow-origin" not in allowing.client.get("/streams", headers=evil).headers
        assert allowing.client.get("/streams", headers={"Host": "localhost"}).status_code == 403
