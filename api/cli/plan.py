"""Show a plan: what is said of it, and the graph as a tree from the streams to the results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from braid.api.cli.output import print_fields, stdout
from braid.api.cli.table import cell_text

_TITLES = ("label", "name", "operator", "kind", "type")


def print_plan(graph: Mapping[str, Any]) -> None:
    """Print a graph of `nodes` and `edges` as a tree below what else there is, anything else as indented JSON."""
    tree = plan_tree(graph)
    if tree is None:
        click.echo(json.dumps(graph, indent=2, ensure_ascii=False))
        return
    facts = {name: value for name, value in graph.items() if name not in ("nodes", "edges", "links")}
    statistics = facts.pop("statistics", None)
    if isinstance(statistics, Mapping):
        facts.update(statistics)
    print_fields(facts, False)
    console = stdout()
    # a tree that is piped must not be broken at rich's 80 columns
    console.print(tree, width=console.width if console.is_terminal else 10_000, crop=False)


def plan_tree(graph: Mapping[str, Any]) -> Tree | None:
    """Build the tree from the nodes without an input on; a node with several inputs is spelt out once."""
    nodes, edges = graph.get("nodes"), graph.get("edges", graph.get("links"))
    if not isinstance(nodes, list) or not isinstance(edges, list):
        return None
    try:
        node_of_name = {str(node["id"]): node for node in nodes}
        targets: dict[str, list[str]] = {name: [] for name in node_of_name}
        names_with_input = set()
        for edge in edges:
            targets[str(edge["source"])].append(str(edge["target"]))
            names_with_input.add(str(edge["target"]))
    except (KeyError, TypeError):
        return None
    if not names_with_input <= node_of_name.keys():
        return None
    root = Tree("plan", hide_root=True)
    spelt_out: set[str] = set()
    branches_to_add = [(root, name) for name in reversed(node_of_name) if name not in names_with_input]
    while branches_to_add:
        branch, name = branches_to_add.pop()
        child = branch.add(_node_text(node_of_name[name], name in spelt_out and bool(targets[name])))
        if name not in spelt_out:
            spelt_out.add(name)
            branches_to_add.extend((child, target) for target in reversed(targets[name]))
    # what only a cycle reaches has no place in the tree: the JSON shows it
    return root if spelt_out == node_of_name.keys() else None


def _node_text(node: Mapping[str, Any], is_repeated: bool) -> Text:
    title = next((field for field in _TITLES if node.get(field)), "id")
    text = Text(cell_text(node[title]), style="bold")
    if is_repeated:
        return text.append("  (as above)", style="not bold")
    other_fields = {field: value for field, value in node.items() if field != title and value not in (None, [], {})}
    details = "  ".join(f"{field}={cell_text(value)}" for field, value in other_fields.items())
    return text.append("  " + details, style="not bold") if details else text
