"""Keys, tenants and quotas, by REST."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from httpx import Response

from braid.session.access.access import Access
from braid.session.settings import Settings
from braid.sources.core.errors import NotAllowed
from tests.api.rest import ALL, STREAM, SUMS, Rest, open_rest, tuple_at
from tests.kit.waiting import wait_until

ADMIN_KEY = "the admin key of the tests"
PUSHED = b'{"user_id": 1, "time": "2026-01-01T00:00:00Z"}'
OPEN = {"/healthz", "/readyz"}


class Team:
    """Calls with the key of a tenant."""

    def __init__(self, rest: Rest, key: str) -> None:
        self.rest = rest
        self.headers = {"Authorization": f"Bearer {key}"}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """Send a request with a JSON body, or with bytes."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        return self.rest.client.request(method, path, headers={**self.headers, **headers}, **content)

    def get(self, path: str) -> Any:
        """GET JSON."""
        return self.rest.read(self.send("GET", path), 200)

    def query(self, sql: str = ALL, **fields: Any) -> Any:
        """Register a query."""
        return self.rest.read(self.send("POST", "/queries", {"sql": sql, **fields}), 201)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with access control, whose client has the admin key."""
    with open_rest(tmp_path, access="on", admin_key=ADMIN_KEY) as running:
        running.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        running.stream()
        yield running


def team(rest: Rest, tenant: str, *rights: str, **quotas: Any) -> Team:
    """Return a tenant's calls with a new key."""
    rest.read(rest.client.put(f"/tenants/{tenant}", json={"quotas": quotas}), 200)
    api_key = rest.post("/keys", {"tenant": tenant, "rights": list(rights or ("write",))})
    return Team(rest, api_key["key"])


def calls(rest: Rest) -> list[tuple[str, str, Any]]:
    """Return every call of the service with a body that it can read."""
    bodies = {
        "/streams": {"sql": STREAM},
        "/tables": {"sql": "CREATE TABLE t (a INT) WITH (connector = 'file', path = 't.csv', format = 'csv')"},
        "/sql": {"sql": "SHOW QUERIES"},
        "/queries": {"sql": ALL},
        "/queries/{id}": {"sql": ALL},
        "/queries/validate": {"sql": ALL},
        "/queries/retire": {"ids": ["q-1"]},
        "/keys": {"tenant": "shop", "rights": ["read"]},
        "/tenants/{name}": {"quotas": {}},
        "/streams/{name}/events": PUSHED,
    }
    all_calls = []
    for path, operations in rest.get("/openapi.json")["paths"].items():
        for method in operations:
            place = path.replace("{name}", "purchases").replace("{id}", "q-1")
            all_calls.append((method.upper(), place, bodies.get(path) if method in ("post", "put") else None))
    return all_calls


def test_every_call_needs_a_key_and_its_right(rest: Rest) -> None:
    rest.query()
    monitor, reader = team(rest, "watch", "monitor"), team(rest, "look", "read")
    before = rest.everything()
    json = {"content-type": "application/json"}
    refused, forbidden, forbidden_to_readers = set(), set(), set()
    for method, path, body in calls(rest):
        anonymous = rest.client.request(method, path, headers={"Authorization": "Bearer braid_wrong"})
        if anonymous.status_code == 401:
            assert anonymous.headers["WWW-Authenticate"] == "Bearer"
            assert anonymous.headers["Content-Type"] == "application/problem+json"
            refused.add(path)
        if monitor.send(method, path, body, **json).status_code == 403:
            forbidden.add((method, path))
        if method != "GET" and reader.send(method, path, body, **json).status_code == 403:
            forbidden_to_readers.add((method, path))
    everything = {(method, path) for method, path, _ in calls(rest)}
    assert refused == {path for _, path in everything} - OPEN
    assert everything - forbidden == {("GET", path) for path in (*OPEN, "/metrics", "/whoami")}
    readable = {("POST", "/sql"), ("POST", "/queries/validate")}
    assert {call for call in everything if call[0] != "GET"} - forbidden_to_readers == readable
    assert rest.everything() == before


def test_who_replaces_a_query_leaves_it_to_its_tenant(rest: Rest) -> None:
    shop, games = team(rest, "shop", running_queries=1), team(rest, "games")
    shop_query, games_query = shop.query(name="whole"), games.query(name="whole")
    rest.run(shop_query["id"])
    rest.run(games_query["id"])
    assert rest.read(shop.send("POST", "/queries/whole/pause"), 202)["id"] == shop_query["id"]
    assert rest.read(shop.send("POST", "/queries/whole/resume"), 202)["state"] == "PENDING"
    by_sql = {"sql": f"CREATE OR REPLACE QUERY whole AS {SUMS}"}
    first = rest.read(shop.send("POST", "/sql", by_sql), 200)
    assert (first["tenant"], first["replaces"], first["name"]) == ("shop", shop_query["id"], "whole")
    refused = rest.read(shop.send("PUT", "/queries/whole", {"sql": ALL}), 429)
    assert "quota running_queries" in refused["detail"], "the one before still drains"
    by_admin = rest.read(rest.client.put(f"/queries/{first['id']}", json={"sql": ALL}), 201)
    assert (by_admin["tenant"], by_admin["name"]) == ("shop", "whole")
    assert rest.read(shop.send("DELETE", "/queries/whole"), 202)["id"] == by_admin["id"]
    assert games.get("/queries")["queries"][0]["id"] == games_query["id"]
    assert games.get(f"/queries/{games_query['id']}")["state"] == "RUNNING"


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "the admin key of the tests", "bearer\twrong"])
def test_headers_that_are_no_key_are_refused(rest: Rest, header: str) -> None:
    answer = rest.client.get("/streams", headers={"Authorization": header})
    assert answer.status_code == 401


def test_a_tenant_sees_its_own_queries_only(rest: Rest) -> None:
    shop, games = team(rest, "shop"), team(rest, "games")
    shop_query = shop.query(SUMS, name="sums")
    games_query = games.query(SUMS, name="sums")  # a name is taken for its own tenant only
    assert (shop_query["tenant"], games_query["tenant"]) == ("shop", "games")
    rest.run(games_query["id"])
    rest.select([tuple_at(1, user_id=1, pack=1)], [0, 1])
    for asking, own_query in ((shop, shop_query), (games, games_query)):
        assert [query["id"] for query in asking.get("/queries")["queries"]] == [own_query["id"]]
        assert [query["id"] for query in asking.get("/queries?state=RUNNING&limit=1")["queries"]] == [own_query["id"]]
        sql = asking.rest.read(asking.send("POST", "/sql", {"sql": "SHOW QUERIES"}), 200)
        assert [query["id"] for query in sql["queries"]] == [own_query["id"]]
        explained = asking.rest.read(asking.send("POST", "/queries/validate", {"sql": SUMS}), 200)
        assert explained["shares_with"] == {"count": 2, "ids": [own_query["id"]]}
        operators = [node for node in asking.get("/plan")["nodes"] if "query_ids" in node]
        assert [node["query_ids"] for node in operators] == [[own_query["id"]]]
    unknown = shop.send("GET", "/queries/q-99").json()["detail"]
    for method, path, body in (
        ("GET", "/queries/{}", None),
        ("GET", "/queries/{}/plan", None),
        ("GET", "/queries/{}/results", None),
        ("GET", "/queries/{}/results/stream", None),
        ("PUT", "/queries/{}", {"sql": ALL}),
        ("POST", "/queries/{}/pause", None),
        ("POST", "/queries/{}/resume", None),
        ("DELETE", "/queries/{}", None),
        ("POST", "/queries/retire", {"ids": [shop_query["id"], games_query["id"]]}),
    ):
        answer = shop.send(method, path.format(games_query["id"]), body)
        assert answer.status_code == 404
        assert answer.json()["detail"] == unknown.replace("q-99", games_query["id"])
    assert {query["id"]: query["state"] for query in rest.get("/queries")["queries"]} == {
        shop_query["id"]: "RUNNING",
        games_query["id"]: "RUNNING",
    }
    assert shop.send("DELETE", "/queries/sums").json()["id"] == shop_query["id"]
    assert rest.get(f"/queries/{games_query['id']}")["state"] == "RUNNING"


def test_a_plan_has_no_operator_of_others(rest: Rest) -> None:
    shop, games = team(rest, "shop"), team(rest, "games")
    shop.query(ALL)
    rest.run(games.query("SELECT COUNT(*) AS n FROM purchases [RANGE 8 SECONDS] GROUP BY note")["id"])
    plan = shop.get("/plan")
    assert [node["kind"] for node in plan["nodes"]] == ["stream", "selection", "router"]
    assert "note" not in str(plan)
    assert len(plan["edges"]) == 2
    assert not {"executors", "partitions", "changes"} & plan.keys()
    assert rest.get("/plan")["executors"]["wanted"] is None


def test_queries_that_are_over_stay_their_tenants(rest: Rest) -> None:
    shop, games = team(rest, "shop"), team(rest, "games")
    ended = games.query(name="old")
    rest.run(ended["id"])
    rest.retire(ended["id"])
    rest.service.session.write_snapshot()  # it is in the archive now
    assert shop.send("GET", f"/queries/{ended['id']}").status_code == 404
    assert shop.get("/queries")["queries"] == []
    assert games.get(f"/queries/{ended['id']}")["state"] == "RETIRED"
    assert games.send("DELETE", "/queries/old").json()["id"] == ended["id"]
    assert shop.send("DELETE", "/queries/old").status_code == 404


def test_idempotency_keys_are_of_a_tenant(rest: Rest) -> None:
    shop, games = team(rest, "shop"), team(rest, "games")
    key = {"Idempotency-Key": "the same"}
    first_answers = [asking.send("POST", "/queries", {"sql": ALL}, **key).json() for asking in (shop, games)]
    second_answers = [asking.send("POST", "/queries", {"sql": ALL}, **key).json() for asking in (shop, games)]
    assert first_answers == second_answers
    assert [query["tenant"] for query in first_answers] == ["shop", "games"]
    push = {**key, "content-type": "application/json"}
    for asking in (shop, games):
        for _ in range(2):
            asking.rest.read(asking.send("POST", "/streams/purchases/events", PUSHED, **push), 200)
    waiting = rest.client.get("/metrics").text
    assert 'braid_stream_lag_tuples{stream="purchases"} 2.0' in waiting  # one of each tenant
    refused = shop.send("DELETE", "/streams/purchases", **key)
    assert refused.status_code == 403


def test_a_right_that_is_given_later_counts_for_a_repeated_request(rest: Rest) -> None:
    reader = team(rest, "shop", "read")
    writer = team(rest, "shop", "write")
    for asking, status in ((reader, 403), (writer, 201)):
        assert asking.send("POST", "/queries", {"sql": ALL}, **{"Idempotency-Key": "k"}).status_code == status


def test_a_tenant_runs_as_many_queries_as_its_quota_says(rest: Rest) -> None:
    shop, games = team(rest, "shop", running_queries=2), team(rest, "games")
    first = shop.query()
    shop.query()
    refused = shop.send("POST", "/queries", {"sql": ALL})
    assert refused.status_code == 429
    assert "running_queries" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert shop.send("POST", "/queries/validate", {"sql": ALL}).status_code == 429
    games.query()
    shop.send("DELETE", f"/queries/{first['id']}?drain=false")
    wait_until(lambda: rest.get(f"/queries/{first['id']}")["epoch"] is None or _retired(rest, first["id"]), 10, "over")
    shop.query()
    rest.read(rest.client.put("/tenants/shop", json={"quotas": {"running_queries": 3}}), 200)
    shop.query()


def _retired(rest: Rest, query_id: str) -> bool:
    rest.commit()
    return bool(rest.get(f"/queries/{query_id}")["state"] == "RETIRED")


def test_quotas_of_many_at_once_are_all_or_nothing(rest: Rest) -> None:
    shop = team(rest, "shop", creations_a_minute=3)
    assert shop.send("POST", "/queries", [{"sql": ALL}] * 4).status_code == 429
    assert shop.get("/queries")["queries"] == []
    assert shop.send("POST", "/queries", [{"sql": ALL}] * 3).status_code == 201
    refused = shop.send("POST", "/queries", {"sql": ALL})
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) in range(1, 21)


def test_a_request_that_is_refused_anyway_does_not_count_against_a_quota(rest: Rest) -> None:
    shop = team(rest, "shop", creations_a_minute=2)
    shop.query(name="one")
    for _ in range(5):
        assert shop.send("POST", "/queries", {"sql": ALL, "name": "one"}).status_code == 409
        assert shop.send("POST", "/queries", {"sql": "SELECT nothing FROM purchases"}).status_code == 422
        assert shop.send("POST", "/queries/validate", {"sql": ALL}).status_code == 200
    shop.query()
    assert shop.send("POST", "/queries", {"sql": ALL}).status_code == 429


def test_rows_are_read_no_faster_than_the_quota_says(rest: Rest) -> None:
    shop = team(rest, "shop", result_rows_a_second=10)
    query = shop.query()
    rest.run(query["id"])
    rest.select([tuple_at(second, user_id=second) for second in range(25)], [0])
    page = shop.get(f"/queries/{query['id']}/results?limit=1000")
    assert [row["user_id"] for row in page["rows"]] == list(range(10))
    refused = shop.send("GET", f"/queries/{query['id']}/results?after={page['cursor']}")
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    path = f"/queries/{query['id']}/results/stream?after={page['cursor']}"
    data_lines: list[str] = []

    def stream_opens() -> bool:
        with rest.client.stream("GET", path, headers=shop.headers) as answer:
            if answer.status_code == 429:
                return False
            for line in answer.iter_lines():
                data_lines.extend([line] * line.startswith("data:"))
                if len(data_lines) == 15:  # 5 of them above what a second allows: the stream waits and goes on
                    return True
        return False

    wait_until(stream_opens, 30, "all rows come by the stream")
    assert len(set(data_lines)) == 15


def test_requests_that_still_run_end_once_their_key_is_revoked(rest: Rest) -> None:
    shop = team(rest, "shop")
    query = shop.query()
    rest.run(query["id"])
    (key,) = rest.get("/keys")["keys"]
    path = f"/queries/{query['id']}/results"
    with ThreadPoolExecutor(1) as threads:
        with rest.client.stream("GET", f"{path}/stream", headers=shop.headers) as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": keep-alive"
            waiting = threads.submit(shop.send, "GET", f"{path}?wait=50")
            rest.read(rest.client.delete(f"/keys/{key['id']}"), 204)
            rest.select([tuple_at(1, user_id=1)], [0])
            later_lines = list(lines)
        assert waiting.result().status_code == 401
    assert "event: failed" in later_lines
    assert not [line for line in later_lines if "user_id" in line]


def test_a_read_that_waits_ends_with_its_key_though_no_row_comes(rest: Rest) -> None:
    shop = team(rest, "shop")
    query = shop.query()
    rest.run(query["id"])
    (key,) = rest.get("/keys")["keys"]
    calls_made: list[object] = []
    lookup = rest.service.session.lookup
    deployed = lookup.deployed
    lookup.deployed = lambda *arguments: calls_made.append(arguments) or deployed(*arguments)  # type: ignore[method-assign, func-returns-value]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(shop.send, "GET", f"/queries/{query['id']}/results?wait=8")
        wait_until(lambda: len(calls_made) >= 2, 10, "the read waits")
        rest.read(rest.client.delete(f"/keys/{key['id']}"), 204)
        assert waiting.result().status_code == 401


def test_a_query_beyond_the_cores_is_refused_with_its_estimate(tmp_path: Path) -> None:
    with open_rest(tmp_path, access="on", admin_key=ADMIN_KEY, admission_cores=1000.0) as rest:
        rest.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        rest.stream()
        shop = team(rest, "shop", cost_share=1e-6)
        operator = rest.run(shop.query()["id"])["operator"]
        for busy_us in (0, 200_000):  # the first report has no length yet
            partitions = {"busy_us": {operator: busy_us}}
            rest.commit(report={"sources": {"busy_us": {}, "keys": {}}, "samples": {}, "partitions": partitions})
        shop_cores = rest.service.session.plans.cores_by_tenant()["shop"]
        assert shop_cores > 0
        refused = shop.send("POST", "/queries", {"sql": ALL})
        assert refused.status_code == 429
        assert "cost_share" in refused.json()["detail"]
        assert f"{shop_cores:.3g}" in refused.json()["detail"]
        for _ in range(2):
            partitions = {"busy_us": {operator: 60_000_000_000}}
            rest.commit(report={"sources": {"busy_us": {}, "keys": {}}, "samples": {}, "partitions": partitions})
        refused = rest.client.post("/queries", json={"sql": ALL})
        assert refused.status_code == 429
        assert "admission_cores" in refused.json()["detail"]
        assert int(refused.headers["Retry-After"]) > 0


def test_keys_and_tenants_by_rest(rest: Rest) -> None:
    shop = team(rest, "shop", "read", running_queries=7)
    assert shop.get("/whoami") == {
        "tenant": "shop",
        "rights": ["read"],
        "quotas": {
            "running_queries": 7,
            "creations_a_minute": None,
            "cost_share": None,
            "result_rows_a_second": None,
            "query_levels": None,
            "query_readers": None,
        },
    }
    (key,) = rest.get("/keys")["keys"]
    assert key.keys() == {"id", "tenant", "rights", "name", "created_at"}
    rest.read(rest.client.delete("/tenants/shop"), 409)
    rest.read(rest.client.delete(f"/keys/{key['id']}"), 204)
    assert shop.send("GET", "/streams").status_code == 401
    rest.read(rest.client.delete("/tenants/shop"), 204)
    assert rest.get("/tenants") == {"tenants": []}
    rest.read(rest.client.put("/tenants/shop", json={}), 409)
    for path, body, status in (
        ("/keys", {"tenant": "nobody", "rights": ["read"]}, 404),
        ("/keys", {"tenant": 1, "rights": ["read"]}, 400),
        ("/keys", {"tenant": "shop"}, 400),
        ("/keys", [], 400),
    ):
        rest.post(path, body, status)
    repeated = {"Idempotency-Key": "k"}  # the answer would have to be kept, and the key with it
    rest.post("/keys", {"tenant": "shop", "rights": ["read"]}, 422, headers=repeated)
    rest.read(rest.client.put("/tenants/UPPER", json={}), 422)
    rest.read(rest.client.put("/tenants/shop", json={"quotas": {"queries": 1}}), 422)
    rest.read(rest.client.put("/tenants/shop", json={"quota": {}}), 400)


def test_without_access_control_nobody_needs_a_key(tmp_path: Path) -> None:
    with open_rest(tmp_path) as rest:
        rest.stream()
        assert rest.query()["tenant"] is None
        assert rest.get("/whoami")["rights"] == ["admin", "monitor", "read", "write"]
        assert "access" in rest.get("/keys", 422)["detail"]


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [({}, False), ({"host": "::1"}, False), ({"host": "localhost"}, False), ({"host": "0.0.0.0"}, True),
     ({"host": "::"}, True), ({"host": "braid.internal"}, True), ({"host": "0.0.0.0", "access": "off"}, False),
     ({"access": "on"}, True)],
)  # fmt: skip
def test_access_is_on_as_soon_as_others_reach_the_service(rest: Rest, settings: Any, is_on: bool) -> None:
    session, storage = rest.service.session, rest.service.storage
    if is_on:
        with pytest.raises(NotAllowed, match="BRAID_ADMIN_KEY"):
            Access(session, storage, Settings(**settings))
        assert Access(session, storage, Settings(**settings, admin_key=ADMIN_KEY)).registry.tenants() == []
    else:
        assert Access(session, storage, Settings(**settings)).caller(None).principal.tenant is None
