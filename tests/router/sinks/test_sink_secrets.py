"""Secrets as sinks see them: what refers to one, and what never shows it."""

from __future__ import annotations

import pytest

from braid.sources.core.errors import NotReady
from braid.sources.core.secret import hide, reveal

PEM = "-----BEGIN KEY-----\nabc\n-----END KEY-----\n"


@pytest.mark.parametrize(
    ("variable", "revealed"), [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc"), (" ü ", " ü "), ("", "")]
)
def test_a_newline_at_the_end_is_not_part_of_a_secret(
    monkeypatch: pytest.MonkeyPatch, variable: str, revealed: str
) -> None:
    monkeypatch.setenv("BRAID_SECRET_X", variable)
    assert reveal("secret:x") == revealed


@pytest.mark.parametrize("variable", ["a\nb", "abc\n\n", "a\tb", "\x7fa", "a\x1b", "a\udcff"])
def test_control_characters_are_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("BRAID_SECRET_X", variable)
    with pytest.raises(NotReady, match="BRAID_SECRET_X") as raised:
        reveal("secret:x")
    assert variable not in str(raised.value)
    assert repr(variable) not in str(raised.value)


def test_keys_may_have_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_X", PEM)
    assert reveal("secret:x", lines=True) == PEM.removesuffix("\n")
    with pytest.raises(NotReady, match="control characters"):
        reveal("secret:x")


def test_what_is_hidden_is_hidden_whole() -> None:
    assert hide("a is abc, b is ab", ("ab", "abc", "")) == "a is ***, b is ***"
