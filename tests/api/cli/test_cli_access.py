"""`braid tenants` and `braid keys`, on a running REST interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cli.playback import Braid
from tests.api.rest import Rest, open_rest

ADMIN_KEY = "the admin key of the tests"


@pytest.fixture
def rest(tmp_path: Path, braid: Braid, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:  # noqa: ARG001 - after it
    """A service with access control, whose admin key is in the environment."""
    with open_rest(tmp_path, access="on", admin_key=ADMIN_KEY) as running:
        monkeypatch.setenv("BRAID_URL", str(running.client.base_url))
        monkeypatch.setenv("BRAID_API_KEY", ADMIN_KEY)
        yield running


@pytest.mark.usefixtures("rest")
def test_a_tenant_and_its_keys_from_beginning_to_end(braid: Braid, monkeypatch: pytest.MonkeyPatch) -> None:
    assert braid("tenants", "list").stdout == "there is no tenant yet\n"
    tenant = braid("tenants", "set", "shop", "--running-queries", "3", "--cost-share", "0.5")
    assert tenant.exit_code == 0
    assert "running_queries       3" in tenant.stdout
    key = json.loads(braid("keys", "create", "shop", "--right", "read", "--name", "boards", "--json").stdout)
    assert "boards" in braid("keys", "list").stdout
    assert key["key"] not in braid("keys", "list").stdout
    monkeypatch.setenv("BRAID_API_KEY", key["key"])
    assert braid("queries").exit_code == 0
    refused = braid("sql", "CREATE STREAM s (a INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector='push')")
    assert refused.exit_code == 1
    assert "'admin'" in refused.stderr
    monkeypatch.setenv("BRAID_API_KEY", ADMIN_KEY)
    assert braid("tenants", "drop", "shop").exit_code == 1
    assert braid("keys", "revoke", key["id"]).stdout == f"revoked the key {key['id']}\n"
    assert braid("tenants", "drop", "shop").stdout == "dropped the tenant shop\n"


@pytest.mark.usefixtures("rest")
@pytest.mark.parametrize(
    ("key", "status", "words"), [(None, 1, "BRAID_API_KEY"), ("wrong", 1, "This API key is unknown"), ("ü", 2, "ASCII")]
)
def test_a_wrong_key_is_said(
    braid: Braid, monkeypatch: pytest.MonkeyPatch, key: str | None, status: int, words: str
) -> None:
    if key is None:
        monkeypatch.delenv("BRAID_API_KEY")
    else:
        monkeypatch.setenv("BRAID_API_KEY", key)
    refused = braid("streams")
    assert refused.exit_code == status
    assert words in refused.stderr
