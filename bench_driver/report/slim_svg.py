"""Cut what a page does not need from the SVG that matplotlib writes: half of it. Pure text."""

from __future__ import annotations

import re

_CUTS: tuple[tuple[str, str], ...] = (
    (r"^.*?(?=<svg)", ""),  # the prologue
    (r"<!--.*?-->", ""),
    (r"<metadata>.*?</metadata>", ""),
    (r"<style.*?</style>", ""),  # would hold for the whole page
    (r' xmlns(:xlink)?="[^"]*"', ""),
    (r"xlink:href", "href"),
    (r'<g id="[^"]*"', "<g"),  # "figure_1" in every figure
    (r"font: ([0-9.]+)px [^;\"]*", r"font-size: \1px"),  # the page's font, and its size but for titles
    (r" font-family: [^;\"]*;", ""),
    (r"font-size: 9\.5px; ", ""),
    (r' transform="rotate\(-0 [^)]*\)"', ""),
    (r"^\s+", ""),
    # a tenth of a point along a line, a hundredth elsewhere
    (r"^L (-?\d+)(\.\d)?\d* (-?\d+)(\.\d)?\d*", r"L \1\2 \3\4"),
    (r"(\.\d\d)\d+", r"\1"),
    (r" ?\nL ", "L"),
    (r"<defs>\s*</defs>", ""),
    (r"\n+", "\n"),
)
_GROUP = re.compile(r"<g( [^>]*)?>|</g>")


def slim(text: str) -> str:
    """Return the SVG element alone, with no ids but those it refers to and no more digits than can be seen."""
    for pattern, replacement in _CUTS:
        flags = re.DOTALL if ".*?" in pattern else re.MULTILINE
        text = re.sub(pattern, replacement, text, flags=flags)
    return _without_bare_groups(text).strip()


def _without_bare_groups(text: str) -> str:
    """Drop `<g>` elements without attributes, which group nothing that anybody asks for."""
    bare: list[bool] = []

    def keep_or_drop(match: re.Match[str]) -> str:
        if match[0] == "</g>":
            return "" if bare.pop() else match[0]
        bare.append(match[1] is None)
        return "" if bare[-1] else match[0]

    return re.sub(r"\n+", "\n", _GROUP.sub(keep_or_drop, text))
