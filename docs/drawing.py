"""Write docs/drawing.svg, the way of rows and of queries through Braid: ``make drawing``.

The same input gives the same bytes. Colours follow the reader's scheme, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

DRAWING = Path(__file__).with_name("drawing.svg")
WIDTH, HEIGHT = 1092, 448
TITLE = "How rows and queries go through Braid"
DESCRIPTION = (
    "Pushed events, Kafka topics and files go through one composite source into source tasks, which run the shared"
    " operators. Their buckets are shuffled to partitions, which write result blocks for readers and sinks. Above,"
    " POST /queries goes to the session, which cuts changelogs; each is an epoch, and a batch runs with one."
)
STYLE = """
    svg { --back: #ffffff; --panel: #f3f5f8; --box: #ffffff; --line: #6e7781; --text: #1f2328; --small: #4d5660;
          --rows: #0860c4; --queries: #7a3fd0; }
    @media (prefers-color-scheme: dark) {
      svg { --back: #0d1117; --panel: #161b22; --box: #22282f; --line: #848d97; --text: #e6edf3; --small: #aab4be;
            --rows: #5cadff; --queries: #c297ff; }
    }
    text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--text);
           text-anchor: middle; }
    .name { font-size: 16px; font-weight: 600; }
    .small { font-size: 13px; fill: var(--small); }
    .panel-name { font-size: 14px; fill: var(--small); text-anchor: start; }
    .back { fill: var(--back); }
    .panel { fill: var(--panel); }
    .box { fill: var(--box); stroke: var(--line); stroke-width: 1.2; }
    .rows, .queries { fill: none; stroke-width: 2; }
    .rows { stroke: var(--rows); marker-end: url(#rows-end); }
    .queries { stroke: var(--queries); marker-end: url(#queries-end); }
    .back-channel { stroke-dasharray: 5 4; }
    .rows-end { fill: var(--rows); }
    .queries-end { fill: var(--queries); }
"""
LINE = 18  # from one line of small text to the next


def box(left: int, top: int, width: int, height: int, name: str, *small: str) -> Iterator[str]:
    """Yield a box with a name and lines of small text in its middle."""
    yield f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}" rx="7"/>'
    middle = left + width // 2
    first = top + height // 2 + 5 - LINE * len(small) // 2
    yield f'<text class="name" x="{middle}" y="{first}">{escape(name)}</text>'
    for number, line in enumerate(small, 1):
        yield f'<text class="small" x="{middle}" y="{first + LINE * number + 1}">{escape(line)}</text>'


def panel(left: int, top: int, width: int, height: int, name: str) -> Iterator[str]:
    """Yield the ground that the boxes of one process stand on."""
    yield f'<rect class="panel" x="{left}" y="{top}" width="{width}" height="{height}" rx="10"/>'
    yield f'<text class="panel-name" x="{left + 16}" y="{top + 22}">{escape(name)}</text>'


def arrow(kind: str, *points: tuple[int, int]) -> Iterator[str]:
    """Yield an arrow through the points; its kind is a class of the style."""
    yield f'<polyline class="{kind}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def queries() -> Iterator[str]:
    """Yield the upper row: how a query gets into the job."""
    yield from box(36, 54, 150, 66, "POST /queries", "SQL")
    yield from box(226, 54, 160, 66, "session", "checks, logs, answers")
    yield from box(436, 54, 170, 66, "changelog", "100 requests or 0.1 s")
    yield from box(656, 54, 138, 66, "epoch", "a batch runs", "with one")
    for left, right in ((186, 226), (386, 436), (606, 656)):
        yield from arrow("queries", (left, 87), (right - 2, 87))
    yield from arrow("queries", (725, 120), (725, 156), (500, 156), (500, 224))


def rows() -> Iterator[str]:
    """Yield the lower row: how rows get through the job to whoever reads them."""
    tops = (226, 294, 362)
    for top, name in zip(tops, ("pushed events", "Kafka topics", "files"), strict=True):
        yield from box(20, top, 140, 50, name)
        yield from arrow("rows", (160, top + 25), (202, top + 25))
    yield from box(204, 226, 124, 186, "source", "all streams", "as one")
    yield from arrow("rows", (328, 319), (358, 319))
    small = ("run the shared operators:", "predicates, slices,", "joins, aggregates")
    yield from box(360, 226, 184, 186, "source tasks", *small)
    for number, top in enumerate(tops):
        yield from arrow("rows", (544, 319), (616, top + 25))
        yield from box(618, top, 148, 50, f"partition {number}", "fires windows")
    yield '<text class="small" x="579" y="402">shuffle</text>'
    for top in tops:
        yield from arrow("rows", (766, top + 25), (814, top + 25))
    yield from box(816, 226, 126, 186, "result blocks", "written", "once for all", "queries")
    for top, name, small in ((226, "readers", "REST, page"), (350, "sinks", "Kafka, SQL …")):
        yield from box(974, top, 104, 62, name, small)
        yield from arrow("rows", (942, top + 31), (972, top + 31))
    yield from arrow("queries back-channel", (879, 226), (879, 10), (306, 10), (306, 52))
    yield '<text class="small" x="892" y="118" style="text-anchor: start">batch record: clocks,</text>'
    yield '<text class="small" x="892" y="136" style="text-anchor: start">states of queries</text>'


def drawing() -> str:
    """Return the drawing as SVG."""
    heads = "".join(
        f'<marker id="{kind}-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}-end" d="M0,0 L8,4 L0,8 Z"/></marker>'
        for kind in ("rows", "queries")
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        ' aria-labelledby="title description">',
        f'<title id="title">{escape(TITLE)}</title>',
        f'<desc id="description">{escape(DESCRIPTION)}</desc>',
        f"<style>{STYLE}</style>",
        f"<defs>{heads}</defs>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
        *panel(20, 20, 790, 116, "braid serve: one Python process"),
        *panel(188, 182, 594, 246, "one Spark Structured Streaming job"),
        *queries(),
        *rows(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
    print(f"wrote {DRAWING}")
