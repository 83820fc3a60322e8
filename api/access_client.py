"""The part of the client that administers a service: tenants and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from braid.api.client import BraidClient
from braid.api.transport import Object, items, segment


class AccessClient(BraidClient):
    """Call a Braid service with a key that has the right `admin`."""

    def whoami(self) -> Object:
        """Read the tenant, rights and quotas of the client's key."""
        return self._object("GET", "/whoami")

    def tenants(self) -> list[Object]:
        """List the tenants with their quotas."""
        return items(self._json("GET", "/tenants"), "tenants", self.url)

    def put_tenant(self, name: str, quotas: Mapping[str, Any]) -> Object:
        """Make a tenant, or give one other quotas; a quota that is left out is none."""
        return self._object("PUT", f"/tenants/{segment(name)}", body={"quotas": dict(quotas)})

    def drop_tenant(self, name: str) -> None:
        """Forget a tenant; refused (409) while it has keys."""
        self._send("DELETE", f"/tenants/{segment(name)}")

    def keys(self) -> list[Object]:
        """List the keys, without their texts."""
        return items(self._json("GET", "/keys"), "keys", self.url)

    def create_key(self, tenant: str, rights: Sequence[str], name: str | None = None) -> Object:
        """Make a key; its text, `key`, is shown this once only."""
        return self._object("POST", "/keys", body={"tenant": tenant, "rights": list(rights), "name": name})

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""
        self._send("DELETE", f"/keys/{segment(key_id)}")
