"""The page of settings says what the code does, and has every setting."""

from __future__ import annotations

from braid.session.settings import Settings
from docs.reference.settings import PAGE, page, sections


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew with `make settings`"


def test_every_setting_stands_in_one_section() -> None:
    names = [entry.name for _, entries in sections() for entry in entries]
    assert sorted(names) == sorted(Settings.__dataclass_fields__)
    assert all(title for title, _ in sections())
