"""Keys and tenants on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.session.access.principal import ADMIN, MONITOR, READ, RIGHTS, WRITE, Principal, Quotas
from braid.session.access.registry import PATH, AccessRegistry
from braid.sources.core.errors import Conflict, Forbidden, NotAllowed, Unauthorized, UnknownObject
from braid.sources.core.storage import Storage

ADMIN_KEY = "an admin key that is long"


@pytest.fixture
def registry(tmp_path: Path) -> AccessRegistry:
    """A registry with a tenant."""
    opened = AccessRegistry(Storage(str(tmp_path)), ADMIN_KEY)
    opened.put_tenant("shop", Quotas(running_queries=3))
    return opened


def reopened(tmp_path: Path) -> AccessRegistry:
    return AccessRegistry(Storage(str(tmp_path)), ADMIN_KEY)


def test_a_key_is_known_until_it_is_revoked_and_over_restarts(registry: AccessRegistry, tmp_path: Path) -> None:
    key, text = registry.create_key("shop", [WRITE], "dashboards")
    for opened in (registry, reopened(tmp_path)):
        assert opened.authenticate(text) == Principal("shop", frozenset({READ, WRITE}))
        assert opened.quotas("shop").running_queries == 3
        assert [api_key.describe()["name"] for api_key in opened.api_keys()] == ["dashboards"]
    registry.revoke_key(key.id)
    for opened in (registry, reopened(tmp_path)):
        with pytest.raises(Unauthorized):
            opened.authenticate(text)


def test_the_name_of_a_dropped_tenant_is_not_given_again(registry: AccessRegistry, tmp_path: Path) -> None:
    registry.drop_tenant("shop")
    for opened in (registry, reopened(tmp_path)):
        with pytest.raises(Conflict, match="Cannot create tenant 'shop'"):
            opened.put_tenant("shop", Quotas())
        opened.put_tenant("games", Quotas())


def test_nothing_on_disk_gives_a_key_back(registry: AccessRegistry, tmp_path: Path) -> None:
    _, text = registry.create_key("shop", [ADMIN])
    file_text = (tmp_path / PATH).read_text()
    assert text not in file_text
    assert text.removeprefix("braid_") not in file_text
    assert ADMIN_KEY not in file_text


def test_ids_of_keys_are_not_given_again(registry: AccessRegistry, tmp_path: Path) -> None:
    first, _ = registry.create_key("shop", [READ])
    registry.revoke_key(first.id)
    second, _ = reopened(tmp_path).create_key("shop", [READ])
    assert (first.id, second.id) == ("k-1", "k-2")


def test_the_admin_key_may_do_everything_and_belongs_to_no_tenant(registry: AccessRegistry) -> None:
    assert registry.authenticate(ADMIN_KEY) == Principal(None, frozenset(RIGHTS))


@pytest.mark.parametrize("key", [None, "", "braid_unknown", ADMIN_KEY + " ", "\ud800"])
def test_other_keys_are_refused(registry: AccessRegistry, key: str | None) -> None:
    with pytest.raises(Unauthorized):
        registry.authenticate(key)


def test_a_short_admin_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="BRAID_ADMIN_KEY"):
        AccessRegistry(Storage(str(tmp_path)), "short")


def test_what_does_not_fit_changes_nothing(registry: AccessRegistry) -> None:
    registry.create_key("shop", [READ])
    for wrong in (
        lambda: registry.create_key("nobody", [READ]),
        lambda: registry.create_key("shop", []),
        lambda: registry.create_key("shop", ["root"]),
        lambda: registry.create_key("shop", [READ], "\n"),
        lambda: registry.put_tenant("../x", Quotas()),
        lambda: registry.put_tenant("", Quotas()),
        lambda: registry.drop_tenant("shop"),
        lambda: registry.drop_tenant("nobody"),
        lambda: registry.revoke_key("k-9"),
    ):
        with pytest.raises((NotAllowed, UnknownObject, Conflict)):
            wrong()
    assert [tenant.name for tenant in registry.tenants()] == ["shop"]
    assert [key.id for key in registry.api_keys()] == ["k-1"]


@pytest.mark.parametrize(
    "quotas",
    [{"running_queries": -1}, {"running_queries": True}, {"creations_a_minute": 1.5}, {"cost_share": 0},
     {"cost_share": 1.1}, {"cost_share": float("nan")}, {"unknown": 1}, [], "many"],
)  # fmt: skip
def test_quotas_that_make_no_sense_are_refused(quotas: object) -> None:
    with pytest.raises(NotAllowed):
        Quotas.of(quotas)


@given(st.sets(st.sampled_from(RIGHTS), min_size=1), st.sampled_from(RIGHTS))
def test_a_right_is_there_when_it_or_one_that_implies_it_is(given_rights: set[str], needed: str) -> None:
    principal = Principal.of("shop", tuple(given_rights))
    is_there = needed in given_rights or ADMIN in given_rights or (needed == READ and WRITE in given_rights)
    if is_there:
        principal.need(needed)
    else:
        with pytest.raises(Forbidden):
            principal.need(needed)
    assert principal.sees("shop")
    assert principal.sees("other") == (ADMIN in given_rights)
    assert (MONITOR in principal.rights) == bool({MONITOR, ADMIN} & given_rights)
