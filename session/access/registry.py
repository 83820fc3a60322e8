"""Tenants and API keys, kept in one file of the data directory; of a key only a hash is kept.

A key is 256 random bits, so one round of SHA-256 keeps it: there is nothing to guess, and a request is authenticated
in microseconds.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from braid.session.access.principal import ADMIN, RIGHTS, Principal, Quotas, Tenant
from braid.session.state.times import rfc3339
from braid.sources.core.errors import Conflict, NotAllowed, Unauthorized, UnknownObject
from braid.sources.core.storage import Storage

PATH = "access.json"
PREFIX = "braid_"
KEY_BYTES = 32
LONGEST_LABEL = 200
SHORTEST_ADMIN_KEY = 16


@dataclass(frozen=True)
class ApiKey:
    """An API key as it is kept: ``digest`` identifies it, and its text cannot be had again."""

    id: str
    tenant: str
    rights: tuple[str, ...]
    name: str | None
    created_us: int
    digest: str

    def describe(self) -> dict[str, Any]:
        """Return what GET /keys shows."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "rights": list(self.rights),
            "name": self.name,
            "created_at": rfc3339(self.created_us),
        }


class AccessRegistry:
    """All tenants and keys; changes are durable when a call returns, and any thread may make one.

    ``admin_key`` is a key with all rights that is configured and kept nowhere: the first one.
    """

    def __init__(self, storage: Storage, admin_key: str) -> None:
        if len(admin_key) < SHORTEST_ADMIN_KEY:
            raise NotAllowed(
                "A service that requires API keys, as one does that listens on other addresses than loopback, needs an"
                f" admin_key of {SHORTEST_ADMIN_KEY} characters or more. Set BRAID_ADMIN_KEY, for example to the output"
                " of `openssl rand -hex 32`."
            )
        self._storage = storage
        self._lock = threading.Lock()
        self._admin_digest = _digest(admin_key)
        self._tenants: dict[str, Tenant] = {}
        self._keys: dict[str, ApiKey] = {}
        self._dropped: list[str] = []
        self._next = 1
        self._load()
        self._keys_by_digest = {key.digest: key for key in self._keys.values()}

    def authenticate(self, key: str | None) -> Principal:
        """Return who a key belongs to; Unauthorized for none and for one that is not known (any more)."""
        if key is None:
            raise Unauthorized(
                "This service requires an API key. Send it in the header `Authorization: Bearer KEY`; on the command"
                " line, set BRAID_API_KEY."
            )
        digest = _digest(key)
        if secrets.compare_digest(digest, self._admin_digest):
            return Principal.of(None, (ADMIN,))
        api_key = self._keys_by_digest.get(digest)
        if api_key is None:
            raise Unauthorized("This API key is unknown, or it was revoked. Ask an administrator for another.")
        return Principal.of(api_key.tenant, api_key.rights)

    # tenants

    def tenants(self) -> list[Tenant]:
        """Return all tenants, by name."""
        return [self._tenants[name] for name in sorted(self._tenants)]

    def tenant(self, name: str) -> Tenant:
        """Return a tenant; UnknownObject when there is none of the name."""
        tenant = self._tenants.get(name)
        if tenant is None:
            raise UnknownObject(f"A tenant must exist; got {name!r:.200}. PUT /tenants/{{name}} makes one.")
        return tenant

    def quotas(self, tenant: str | None) -> Quotas:
        """Return the quotas of a tenant; none where there is no such tenant."""
        registered = None if tenant is None else self._tenants.get(tenant)
        return Quotas() if registered is None else registered.quotas

    def put_tenant(self, name: str, quotas: Quotas) -> Tenant:
        """Make a tenant, or give one other quotas; Conflict for the name of a dropped one, which has its queries."""
        tenant = Tenant(name, quotas)
        with self._lock:
            if name in self._dropped:
                raise Conflict(
                    f"Cannot create tenant {name!r}: a tenant of this name was dropped, and its queries are still"
                    " there. Choose another name."
                )
            self._save({**self._tenants, name: tenant}, self._keys)
        return tenant

    def drop_tenant(self, name: str) -> None:
        """Forget a tenant but for its name; Conflict while it has keys."""
        with self._lock:
            self.tenant(name)
            keys = [key.id for key in self._keys.values() if key.tenant == name]
            if keys:
                shown = ", ".join(keys[:20])
                raise Conflict(f"Cannot drop tenant {name!r}: it has the keys {shown}. Revoke them first.")
            remaining = {other: tenant for other, tenant in self._tenants.items() if other != name}
            self._save(remaining, self._keys, [*self._dropped, name])

    # keys

    def api_keys(self) -> list[ApiKey]:
        """Return all keys, oldest first."""
        return list(self._keys.values())

    def create_key(self, tenant: str, rights: Sequence[str], name: str | None = None) -> tuple[ApiKey, str]:
        """Make a key and return it with its text, which is kept nowhere."""
        if not rights or not set(rights) <= set(RIGHTS):
            raise NotAllowed(f"The rights of a key must be some of {', '.join(RIGHTS)}; got {list(rights)!r:.200}.")
        if name is not None and not (0 < len(name) <= LONGEST_LABEL and name.isprintable()):
            raise NotAllowed(f"The name of a key must be 1 to {LONGEST_LABEL} printable characters; got {name!r:.300}.")
        text = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        with self._lock:
            self.tenant(tenant)
            ordered_rights = tuple(right for right in RIGHTS if right in rights)
            key = ApiKey(f"k-{self._next}", tenant, ordered_rights, name, time.time_ns() // 1000, _digest(text))
            self._next += 1
            self._save(self._tenants, {**self._keys, key.id: key})
        return key, text

    def revoke_key(self, key_id: str) -> None:
        """Forget a key: requests with it are refused from now on. UnknownObject when there is none of the id."""
        with self._lock:
            if key_id not in self._keys:
                raise UnknownObject(
                    f"A key must exist to be revoked; got {key_id!r:.200}. GET /keys (braid keys list) lists them."
                )
            self._save(self._tenants, {other: key for other, key in self._keys.items() if other != key_id})

    # on disk

    def _save(self, tenants: dict[str, Tenant], keys: dict[str, ApiKey], dropped: list[str] | None = None) -> None:
        """Write the new tenants and keys, then use them; under the lock."""
        dropped = self._dropped if dropped is None else dropped
        document = {
            "next": self._next,
            "dropped": dropped,
            "tenants": {tenant.name: tenant.quotas.to_json() for tenant in tenants.values()},
            "keys": [asdict(key) for key in keys.values()],
        }
        self._storage.put_json(PATH, document)
        self._tenants, self._keys, self._dropped = tenants, keys, dropped
        self._keys_by_digest = {key.digest: key for key in keys.values()}

    def _load(self) -> None:
        try:
            document = self._storage.get_json(PATH)
        except FileNotFoundError:
            return
        self._next = document["next"]
        self._dropped = document.get("dropped", [])  # older files have none
        self._tenants = {name: Tenant(name, Quotas.of(quotas)) for name, quotas in document["tenants"].items()}
        keys = [ApiKey(**{**key, "rights": tuple(key["rights"])}) for key in document["keys"]]
        self._keys = {key.id: key for key in keys}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
