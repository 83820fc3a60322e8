"""The caret under the offending place, and plans as trees."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console

from braid.api.cli.output import caret_lines
from braid.api.cli.plan import plan_tree
from tests.api.cli.playback import PLAN


def test_the_caret_stands_under_the_place() -> None:
    assert caret_lines("SELECT pric FROM p", 1, 8) == ["  SELECT pric FROM p", "         ^"]


def test_the_line_is_named_where_there_are_several() -> None:
    assert caret_lines("SELECT a\n\tFROM 漢 q", 2, 8) == [
        "  at line 2, column 8:",
        "   FROM 漢 q",
        "          ^",
    ]


def test_the_end_of_the_text_is_a_place() -> None:
    assert caret_lines("SELECT", 1, 7) == ["  SELECT", "        ^"]


def test_a_place_outside_of_the_text_is_only_named() -> None:
    for place in ((2, 1), (1, 8), (0, 1), (1, 0)):
        assert caret_lines("SELECT", *place) == [f"  at line {place[0]}, column {place[1]}"]
    assert caret_lines("", 1, 1) == ["  at line 1, column 1"]


def test_a_narrow_terminal_gets_the_stretch_around_the_place() -> None:
    sql = "SELECT " + "a, " * 40 + "BAD" + ", z" * 40
    for width in range(24, 300):
        quoted, caret = caret_lines(sql, 1, sql.index("BAD") + 1, width)
        assert cell_len(quoted) < width
        assert quoted[cell_len(caret) - 1 :].startswith("BAD")


def test_a_plan_is_a_tree_from_the_stream_on() -> None:
    tree = plan_tree(PLAN)
    assert tree is not None
    file = io.StringIO()
    Console(file=file, width=80).print(tree)
    lines = file.getvalue().splitlines()
    assert [line.strip("│├└─ ").split("  ")[0].strip() for line in lines] == [
        "purchases",
        "aggregate by gem_pack",
        "q-1",
        "q-2",
    ]
    assert "queries=2" in lines[1]


def test_a_node_with_two_inputs_is_spelt_out_once() -> None:
    nodes = [{"id": name} for name in "abjq"]
    edges = [{"source": s, "target": t} for s, t in ("aj", "bj", "jq")]
    tree = plan_tree({"nodes": nodes, "edges": edges})
    assert tree is not None
    file = io.StringIO()
    Console(file=file, width=80).print(tree)
    assert file.getvalue().count("q") == 1
    assert file.getvalue().count("(as above)") == 1


def test_what_is_no_tree_is_left_to_json() -> None:
    loop = [{"source": "a", "target": "a"}]
    assert plan_tree({"nodes": [{"id": "a"}], "edges": loop}) is None
    assert plan_tree({"nodes": [{"id": "a"}], "edges": [{"source": "a", "target": "?"}]}) is None
    assert plan_tree({"nodes": [{}], "edges": []}) is None
    assert plan_tree({"operators": 3}) is None
