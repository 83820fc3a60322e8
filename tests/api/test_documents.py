"""The OpenAPI document: names, keys and schemas that code generators make a client of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from braid.api.app import ROUTERS
from braid.api.routes import operation
from tests.api.described import Description
from tests.api.rest import description, open_rest
from tests.api.test_access import OPEN


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Description]:
    with open_rest(tmp_path_factory.mktemp("data")) as rest:
        yield description(rest.service)


def calls(described: Description) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in described.document["paths"].items():
        for method, call in operations.items():
            yield f"{method} {path}", call


def bodies(described: Description) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each body that a call takes or gives: where, its media type, and its schema."""
    for name, call in calls(described):
        for status, answer in {"body": call.get("requestBody", {}), **call["responses"]}.items():
            for media_type, body in answer.get("content", {}).items():
                yield f"{name} {status}", media_type, body


def test_operations_are_named_once_and_belong_to_a_described_tag(described: Description) -> None:
    names = [call["operationId"] for _, call in calls(described)]
    assert len(set(names)) == len(names)
    assert {"create_stream", "push_events", "create_queries", "read_results"} <= set(names)
    assert all(name.isidentifier() for name in names)
    tags = {tag["name"] for tag in described.document["tags"]}
    assert {tag for _, call in calls(described) for tag in call["tags"]} == tags


def test_all_calls_but_the_probes_take_a_key(described: Description) -> None:
    schemes = described.document["components"]["securitySchemes"]
    assert [(scheme["type"], scheme["scheme"]) for scheme in schemes.values()] == [("http", "bearer")]
    open_calls = {name for name, call in calls(described) if call.get("security") != [{name: []} for name in schemes]}
    assert open_calls == {f"get {path}" for path in OPEN}


def test_json_has_named_schemas_with_descriptions(described: Description) -> None:
    for where, media_type, body in bodies(described):
        if media_type.endswith(("/json", "+json")):
            for schema in body["schema"].get("anyOf", [body["schema"]]):
                assert schema.get("items", schema).keys() == {"$ref"}, where
        else:
            assert body["schema"]["type"] == "string", where
    for name, schema in described.document["components"]["schemas"].items():
        assert name.isalpha(), name
        assert schema["description"], name


def test_refusals_are_problems(described: Description) -> None:
    for name, call in calls(described):
        for status, answer in call["responses"].items():
            problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
            assert (answer.get("content") == problem) == (int(status) >= 400), (name, status)


def test_examples_fit_their_schemas(described: Description) -> None:
    for router in (*(module.router for module in ROUTERS), operation.probes):  # the document leaves null out of them
        for route in router.routes:
            assert isinstance(route, APIRoute)
            request = (route.openapi_extra or {}).get("requestBody", {})
            for body in (request, *route.responses.values()):
                form = body.get("content", {}).get("application/json", {})
                assert "example" not in form or described.error(form["schema"], form["example"]) is None, route.name
