"""The drawing of the documents is the one that its script draws."""

from __future__ import annotations

from xml.etree import ElementTree

from docs.drawing import DRAWING, HEIGHT, WIDTH, drawing


def test_the_drawing_is_current() -> None:
    assert DRAWING.read_text(encoding="utf-8") == drawing(), "draw it anew with `make drawing`"


def test_nothing_is_drawn_outside_the_frame() -> None:
    for element in ElementTree.fromstring(drawing()).iter():
        place = {name: float(element.get(name, "0")) for name in ("x", "y", "width", "height")}
        assert 0 <= place["x"] <= place["x"] + place["width"] <= WIDTH
        assert 0 <= place["y"] <= place["y"] + place["height"] <= HEIGHT
