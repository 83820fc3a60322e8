"""Who may do what: rights, tenants with their quotas, and the principal that a request comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from braid.sources.core.errors import Forbidden, NotAllowed

READ, WRITE, ADMIN, MONITOR = RIGHTS = ("read", "write", "admin", "monitor")
"""``read`` looks at the tenant's queries and their rows, ``write`` also creates and retires queries and pushes rows,
``monitor`` reads metrics; ``admin`` does all that, declares streams and tables, and sees every tenant."""
_IMPLIED = {WRITE: (READ,), ADMIN: RIGHTS}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True)
class Quotas:
    """What a tenant may use; None: as much as there is.

    ``running_queries`` counts all that are neither RETIRED nor FAILED. ``cost_share`` is a share, above 0 and up to 1,
    of the cores that queries may take. ``result_rows_a_second`` bounds what is read from ``/results``. ``query_levels``
    is how many queries may read one another in a chain, ``query_readers`` how many may read the same one.
    """

    running_queries: int | None = None
    creations_a_minute: int | None = None
    cost_share: float | None = None
    result_rows_a_second: int | None = None
    query_levels: int | None = None
    query_readers: int | None = None

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name != "cost_share"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise NotAllowed(f"The quota {name} must be a whole number, 0 or more, or null; got {value!r}.")
        share = self.cost_share
        if share is not None and (
            isinstance(share, bool)
            or not isinstance(share, (int, float))
            or not math.isfinite(share)
            or not 0 < share <= 1
        ):
            raise NotAllowed(f"The quota cost_share must be above 0 and at most 1, or null; got {share!r}.")

    @classmethod
    def of(cls, value: Any) -> Quotas:
        """Read an object with some of the quotas; NotAllowed when it has another shape."""
        names = [f.name for f in fields(cls)]
        if not isinstance(value, Mapping) or not value.keys() <= set(names):
            raise NotAllowed(f"Quotas are an object with some of {', '.join(names)}; got {value!r:.200}.")
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """Return all quotas by name."""
        return asdict(self)


@dataclass(frozen=True)
class Tenant:
    """A team that shares the service with others and sees none of their queries."""

    name: str
    quotas: Quotas = field(default_factory=Quotas)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise NotAllowed(
                "A tenant's name must be 1 to 63 lower-case letters, digits, '-' and '_', and begin with a letter or a"
                f" digit; got {self.name!r:.200}."
            )


@dataclass(frozen=True)
class Principal:
    """Who a request comes from. ``tenant`` None owns what nobody else does: all queries while access is off."""

    tenant: str | None
    rights: frozenset[str]

    @classmethod
    def of(cls, tenant: str | None, rights: tuple[str, ...]) -> Principal:
        """Return the principal with these rights and those that they imply."""
        return cls(tenant, frozenset(rights).union(*(_IMPLIED.get(right, ()) for right in rights)))

    def need(self, right: str) -> None:
        """Raise Forbidden without a right."""
        if right not in self.rights:
            raise Forbidden(
                f"This request needs an API key with the right {right!r}; yours has {', '.join(sorted(self.rights))}."
                " Ask an administrator for one."
            )

    def sees(self, tenant: str | None) -> bool:
        """Whether this principal may know of the queries of a tenant."""
        return ADMIN in self.rights or tenant == self.tenant


ANYONE = Principal.of(None, (ADMIN,))
"""Who everybody is while access is off."""
