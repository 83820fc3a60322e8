"""Schemas of tenants and keys, and of the probes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypeAliasType, TypedDict

from braid.api.schemas.model import FORBID
from braid.session.access.principal import RIGHTS

_Limit = Annotated[int, Field(ge=0)]


Right = TypeAliasType(
    "Right", Annotated[str, Field(description="What a key may do.", json_schema_extra={"enum": list(RIGHTS)})]
)


@with_config(FORBID)
class Quotas(TypedDict):
    """What a tenant may use at most; null is no limit."""

    running_queries: NotRequired[_Limit | None]
    creations_a_minute: NotRequired[_Limit | None]
    cost_share: NotRequired[Annotated[float, Field(gt=0, le=1)] | None]
    result_rows_a_second: NotRequired[_Limit | None]
    query_levels: NotRequired[_Limit | None]
    query_readers: NotRequired[_Limit | None]


@with_config(FORBID)
class NewTenant(TypedDict):
    """The quotas of a tenant."""

    quotas: NotRequired[Quotas | None]


class Tenant(TypedDict):
    """A tenant."""

    name: str
    quotas: Quotas


class Tenants(TypedDict):
    """All tenants."""

    tenants: list[Tenant]


@with_config(FORBID)
class NewKey(TypedDict):
    """A key to make."""

    tenant: str
    rights: Annotated[list[Right], Field(min_length=1)]
    name: NotRequired[str | None]


class ApiKey(TypedDict):
    """A key without its text."""

    id: str
    tenant: str
    rights: list[Right]
    name: str | None
    created_at: datetime


class CreatedKey(ApiKey):
    """A key with its text, which is shown this once only."""

    key: str


class ApiKeys(TypedDict):
    """All keys, without their texts."""

    keys: list[ApiKey]


class Caller(TypedDict):
    """Whom the key of a request belongs to."""

    tenant: str | None
    rights: list[Right]
    quotas: Quotas


class Alive(TypedDict):
    """The service answers."""

    alive: bool


class Ready(TypedDict):
    """Queries run at full speed."""

    ready: bool
