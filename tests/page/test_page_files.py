"""The files of the page: who gets them, with which headers, and that they need nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from braid.api.page.files import FILES, INDEX
from tests.api.rest import Rest, open_rest

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SCRIPTS = sorted(name for name in FILES if name.endswith(".js"))


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service without Spark."""
    with open_rest(tmp_path) as running:
        yield running


def text(name: str) -> str:
    return FILES[name].content.decode()


def test_a_browser_gets_the_page_and_others_what_they_always_got(rest: Rest) -> None:
    page = rest.client.get("/", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["vary"] == "Accept"
    for accept in ("*/*", "application/json"):
        refused = rest.client.get("/", headers={"Accept": accept})
        assert (refused.status_code, refused.headers["content-type"]) == (404, "application/problem+json")
    assert rest.client.head("/", headers=HTML).headers["content-length"] == str(len(page.content))


def test_its_headers_allow_nothing_but_what_the_service_serves(rest: Rest) -> None:
    for path in ("/", "/page/style.css", "/page/main.js", "/page/icon.svg"):
        headers = rest.client.get(path, headers=HTML).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
        assert not {"script-src", "style-src"} & policy.keys(), "no exception to default-src"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_what_a_browser_has_is_not_sent_again(rest: Rest) -> None:
    for path in ("/", "/page/style.css"):
        first = rest.client.get(path, headers=HTML)
        assert first.headers["cache-control"] == "no-cache"
        again = rest.client.get(path, headers={**HTML, "If-None-Match": f'"other", W/{first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert rest.client.get(path, headers={**HTML, "If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/page/", "/page/none.js", "/page/files.py", "/page/..%2Ffiles.py", "/page/a/b"])
def test_there_is_nothing_else(rest: Rest, path: str) -> None:
    assert rest.client.get(path, headers=HTML).status_code == 404


def test_the_files_name_each_other_and_nobody_else() -> None:
    index = text(INDEX)
    named = set(re.findall(r'(?:src|href)="page/([^"]+)"', index))
    for name in SCRIPTS:
        imports = set(re.findall(r'from "\./([^"]+)"', text(name)))
        assert imports <= FILES.keys(), name
        named |= imports
    assert named | {INDEX} == FILES.keys(), "every file is used"
    for name in FILES:
        elsewhere = set(re.findall(r"https?://[^\s\"'`)]+", text(name))) - {"http://www.w3.org/2000/svg"}
        assert not elsewhere, name
    assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", index), "nothing inline"


@pytest.mark.skipif(shutil.which("node") is None, reason="`node` must be there to check the syntax of scripts")
@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_modules_without_a_syntax_error(name: str) -> None:
    command = ["node", "--input-type=module", "--check"]
    checked = subprocess.run(command, input=text(name), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
