"""Named schemas of the OpenAPI document: how calls refer to them, problems, rows and dead letters.

A class or named type says what JSON looks like; its name and docstring are those of the schema. No request and no
answer passes through one: the tests of the calls compare each answer with the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

Json = dict[str, Any]
FORBID = ConfigDict(extra="forbid")
"""For bodies of requests, in which unknown fields are refused."""
_PLACE = "#/components/schemas/"


class Position(TypedDict):
    """A place in SQL text."""

    line: Annotated[int, Field(ge=1)]
    column: Annotated[int, Field(ge=1)]


class Problem(TypedDict):
    """Why a request was refused (RFC 9457). Nothing has changed."""

    type: Annotated[str, Field(description="The kind of problem: `urn:braid:problem:unknown-object`")]
    title: str
    status: Annotated[int, Field(description="The HTTP status")]
    detail: Annotated[str, Field(description="What must hold, what was got, and what to do next")]
    position: NotRequired[Annotated[Position, Field(description="Where in the SQL text the problem is")]]
    query_id: NotRequired[Annotated[str, Field(description="The query that the problem is about")]]
    stream: NotRequired[Annotated[str, Field(description="The stream that the problem is about")]]


@with_config(ConfigDict(extra="allow"))
class Row(TypedDict):
    """A row: values by the names of columns."""


class Gap(TypedDict):
    """Rows that cannot be read any more and are passed over."""

    rows: int
    batches: Annotated[list[int], Field(description="The first and the last batch that had some")]
    detail: str


class DeadLetter(TypedDict):
    """A row that came late or malformed, or that the sink of a query refused for good."""

    reason: Literal["late", "malformed", "refused"]
    detail: str
    received_at: datetime
    query: Annotated[str | None, Field(description="The query whose replay or sink met the row")]
    tuple: Annotated[Row | None, Field(description="The row, where it fits the schema")]
    raw: Annotated[str | None, Field(description="The input, where it does not")]


class DeadLetters(TypedDict):
    """A page of dead letters."""

    rows: list[DeadLetter]
    cursor: Annotated[str, Field(description="The place after the rows, for `after`")]
    gap: NotRequired[Gap]


def ref(schema: type) -> Json:
    """Return what refers to a named schema."""
    return {"$ref": _PLACE + schema.__name__}


def array(schema: type) -> Json:
    """Return the schema of an array."""
    return {"type": "array", "items": ref(schema)}


def any_of(*schemas: type | Json) -> Json:
    """Return the schema of what fits one of some."""
    return {"anyOf": [schema if isinstance(schema, dict) else ref(schema) for schema in schemas]}


def one_or_many(schema: type) -> Json:
    """Return the schema of a value, or an array of such values."""
    return any_of(schema, array(schema))


def components(paths: Json, named: Mapping[str, Any]) -> Json:
    """Return the schemas that ``paths`` of an OpenAPI document refer to, and those that they do, out of ``named``."""
    names = sorted(set(re.findall(rf'"{_PLACE}(\w+)"', orjson.dumps(paths).decode())))
    _, document = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(named[name])) for name in names],
        ref_template=_PLACE + "{model}",
        schema_generator=_Schemas,
    )
    schemas: Json = document["$defs"]
    return schemas


class _Schemas(GenerateJsonSchema):
    """Schemas without titles of fields, which repeat their names."""

    def field_title_should_be_set(self, _: Any) -> bool:
        return False
