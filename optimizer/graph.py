"""Graphs of plans as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHAPES = {"stream": "cylinder", "table": "tab", "router": "diamond", "query": "note"}


def to_dot(graph: Mapping[str, Any]) -> str:
    """Return a graph in Graphviz' language: ``nodes`` have ``id`` and ``kind``, ``edges`` ``source`` and ``target``."""
    lines = ["digraph plan {", "  rankdir=LR;"]
    for node in graph["nodes"]:
        label_lines = [node.get("name") or node["id"]]
        if "queries" in node:
            label_lines = [f"{node['kind']} of {' and '.join(node['streams'])}"]
            if node["partitioned_by"]:
                label_lines.append(f"by {', '.join(node['partitioned_by'])}")
            label_lines.append(f"{node['queries']} quer{'y' if node['queries'] == 1 else 'ies'}")
        if len(node.get("groups", ())) > 1:
            label_lines.append(f"{len(node['groups'])} query groups")
        if "split" in node:
            label_lines.append(f"{node['split']['keys']} key{'s' * (node['split']['keys'] > 1)} in all partitions")
        shape = _SHAPES.get(node["kind"], "box")
        label = "\\n".join(_escaped(part) for part in label_lines)
        lines.append(f'  "{_escaped(node["id"])}" [shape={shape}, label="{label}"];')
    lines += [f'  "{_escaped(edge["source"])}" -> "{_escaped(edge["target"])}";' for edge in graph["edges"]]
    return "\n".join([*lines, "}", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
