"""Who calls: the key of a request, and ``/keys``, ``/tenants`` and ``/whoami``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from braid.api.http.bodies import idempotency_key, outcome, parse_json, read_body, response_of
from braid.api.routes import documents
from braid.api.routes.documents import answers, json_body, refused
from braid.api.schemas import access as schemas
from braid.api.service import ServiceDep
from braid.session.access.principal import ADMIN, MONITOR, READ, RIGHTS, WRITE, Quotas, Tenant
from braid.session.access.registry import AccessRegistry
from braid.session.access.tenant_session import TenantSession
from braid.sources.core.errors import MalformedRequest, NotAllowed, Unauthorized

router = APIRouter(tags=["access"])
SCHEME = "bearer"
_KEY_FIELDS = {"tenant", "rights", "name"}


async def caller_of(request: Request, service: ServiceDep) -> TenantSession:
    """Return the session as whoever sent the request may use it; Unauthorized when nobody knows them."""
    header = request.headers.get("authorization")
    key = None
    if header is not None:
        scheme, _, key = header.partition(" ")
        if scheme.lower() != SCHEME or not key:
            raise Unauthorized("The header Authorization must be `Bearer KEY`; got another scheme, or no key.")
    return service.access.caller(key)


CallerDep = Annotated[TenantSession, Depends(caller_of)]


def with_right(right: str) -> Callable[[TenantSession], Awaitable[TenantSession]]:
    """Return a dependency: the session for callers that have a right; Forbidden for others."""

    async def caller_with_right(caller: CallerDep) -> TenantSession:
        caller.principal.need(right)
        return caller

    return caller_with_right


ReaderDep = Annotated[TenantSession, Depends(with_right(READ))]
WriterDep = Annotated[TenantSession, Depends(with_right(WRITE))]
AdminDep = Annotated[TenantSession, Depends(with_right(ADMIN))]
MonitorDep = Annotated[TenantSession, Depends(with_right(MONITOR))]


async def registry_of(_: AdminDep, service: ServiceDep) -> AccessRegistry:
    """Return the tenants and keys to somebody who may change them."""
    return service.access.registry


RegistryDep = Annotated[AccessRegistry, Depends(registry_of)]


@router.get(
    "/whoami", responses=answers(200, "Who the key of the request belongs to.", schemas.Caller, documents.WHOAMI)
)
async def whoami(caller: CallerDep) -> dict[str, Any]:
    """Tell the tenant, rights and quotas of the key that the request came with."""
    return {
        "tenant": caller.principal.tenant,
        "rights": sorted(caller.principal.rights),
        "quotas": caller.meters.quotas.to_json(),
    }


@router.get("/tenants", responses=answers(200, "All tenants.", schemas.Tenants, {"tenants": [documents.TENANT]}, 422))
async def list_tenants(registry: RegistryDep) -> dict[str, Any]:
    """List the tenants."""
    return {"tenants": [_tenant_json(tenant) for tenant in registry.tenants()]}


@router.get("/tenants/{name}", responses=answers(200, "The tenant.", schemas.Tenant, documents.TENANT, 404, 422))
async def get_tenant(name: str, registry: RegistryDep) -> dict[str, Any]:
    """Look at one tenant and its quotas."""
    return _tenant_json(registry.tenant(name))


@router.put(
    "/tenants/{name}",
    responses=answers(
        200, "The tenant is there, with these quotas.", schemas.Tenant, documents.TENANT, 400, 409, 413, 422
    ),
    openapi_extra=json_body(schemas.NewTenant, {"quotas": {"running_queries": 100}}),
)
async def put_tenant(name: str, request: Request, registry: RegistryDep, service: ServiceDep) -> dict[str, Any]:
    """Make a tenant, or give one other quotas; a quota that is left out is none.

    The name of a dropped tenant is refused: whoever had it next would get its queries.
    """
    value = parse_json(await read_body(request, service.settings.max_body_bytes))
    if not isinstance(value, dict) or not value.keys() <= {"quotas"}:
        raise MalformedRequest(f'A tenant must be an object such as {{"quotas": {{…}}}}; got {value!r:.80}.')
    quotas = Quotas.of(value.get("quotas") or {})
    return _tenant_json(await run_in_threadpool(registry.put_tenant, name, quotas))


@router.delete("/tenants/{name}", status_code=204, responses=refused(404, 409, 422))
async def drop_tenant(name: str, registry: RegistryDep) -> Response:
    """Forget a tenant; refused while it has keys. Its queries stay, for administrators."""
    await run_in_threadpool(registry.drop_tenant, name)
    return Response(status_code=204)


@router.get(
    "/keys",
    responses=answers(200, "All keys, without their texts.", schemas.ApiKeys, {"keys": [documents.API_KEY]}, 422),
)
async def list_keys(registry: RegistryDep) -> dict[str, Any]:
    """List the keys."""
    return {"keys": [key.describe() for key in registry.api_keys()]}


@router.post(
    "/keys",
    status_code=201,
    responses=answers(
        201,
        "The key, which is shown this once only.",
        schemas.CreatedKey,
        {**documents.API_KEY, "key": "braid_…"},
        *(400, 404, 413, 422),
    ),
    openapi_extra=json_body(schemas.NewKey, {"tenant": "shop", "rights": ["read", "write"]}, repeatable=False),
)
async def create_key(request: Request, registry: RegistryDep, service: ServiceDep) -> Response:
    """Make a key for a tenant. Only a hash of it is kept: note it down."""
    if idempotency_key(request) is not None:
        raise NotAllowed("A new key is shown once and kept nowhere: leave the header Idempotency-Key out.")
    value = parse_json(await read_body(request, service.settings.max_body_bytes))
    example = '{"tenant": "shop", "rights": ["read"]}'
    if not isinstance(value, dict) or not {"tenant", "rights"} <= value.keys() <= _KEY_FIELDS:
        raise MalformedRequest(f"A key must be an object such as {example}; got {value!r:.80}.")
    tenant, rights, name = value["tenant"], value["rights"], value.get("name")
    if (
        not isinstance(tenant, str)
        or not isinstance(rights, list)
        or not all(isinstance(right, str) for right in rights)
        or not isinstance(name, str | None)
    ):
        raise MalformedRequest(f"Tenant and name of a key are texts, its rights some of {', '.join(RIGHTS)}.")
    key, text = await run_in_threadpool(registry.create_key, tenant, rights, name)
    return response_of(outcome(201, {**key.describe(), "key": text}, **{"Cache-Control": "no-store"}))


@router.delete("/keys/{id}", status_code=204, responses=refused(404, 422))
async def revoke_key(id: str, registry: RegistryDep) -> Response:
    """Revoke a key: from now on requests with it are refused, and those that still run end."""
    await run_in_threadpool(registry.revoke_key, id)
    return Response(status_code=204)


def _tenant_json(tenant: Tenant) -> dict[str, Any]:
    return {"name": tenant.name, "quotas": tenant.quotas.to_json()}
