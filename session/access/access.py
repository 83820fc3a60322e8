"""Access control of one service: from the key of a request to the session as its owner may use it."""

from __future__ import annotations

import os
import threading
from functools import partial

from braid.engine.data_layout import read_partitions
from braid.session.access.capacity import Capacity
from braid.session.access.meters import Meters
from braid.session.access.principal import ANYONE, Quotas
from braid.session.access.registry import AccessRegistry
from braid.session.access.tenant_session import TenantSession
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.sources.core.errors import NotAllowed
from braid.sources.core.storage import Storage

BUSY_SHARE = 0.9
"""Which share of the job's partitions operators may keep busy where ``admission_cores`` does not say."""


class Access:
    """Who may use the service. Off, everybody may do everything, and nothing is metered."""

    def __init__(self, session: SharedSession, storage: Storage, settings: Settings) -> None:
        self._session = session
        self._registry = AccessRegistry(storage, settings.admin_key) if settings.needs_keys else None
        self._storage = storage
        self._cores = settings.admission_cores
        self._capacity = Capacity(session.plans, self._max_cores)
        self._anyone = TenantSession(session, ANYONE, Meters(Quotas()))
        self._meters: dict[str | None, Meters] = {}
        self._lock = threading.Lock()

    @property
    def registry(self) -> AccessRegistry:
        """The tenants and keys; NotAllowed while access is off."""
        if self._registry is None:
            raise NotAllowed(
                "Keys and tenants are for services with access control; this one is open to everybody who reaches it."
                ' Start it with the setting access = "on" and an admin_key.'
            )
        return self._registry

    def caller(self, key: str | None) -> TenantSession:
        """Return the session as the owner of a key may use it; Unauthorized for a key that is not known."""
        registry = self._registry
        if registry is None:
            return self._anyone
        principal = registry.authenticate(key)
        meters = self._meters_of(principal.tenant)
        return TenantSession(self._session, principal, meters, self._capacity, partial(registry.authenticate, key))

    def _meters_of(self, tenant: str | None) -> Meters:
        assert self._registry is not None
        quotas = self._registry.quotas(tenant)
        with self._lock:
            meters = self._meters.get(tenant)
            if meters is None or meters.quotas != quotas:
                meters = self._meters[tenant] = Meters(quotas)
            return meters

    def _max_cores(self) -> float:
        """Return how many cores operators may keep busy; the first start decides how many partitions there are."""
        return self._cores or BUSY_SHARE * (read_partitions(self._storage) or os.cpu_count() or 1)
