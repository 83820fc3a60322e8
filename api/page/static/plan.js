// A plan as a graph: streams on the left, operators, the router, and who reads on the right.

import { el, say, svg } from "./dom.js";
import { count, plural, span } from "./format.js";
import { zoomable } from "./zoom.js";

const WIDTH = 170;
const GAP = { x: 26, y: 14 };
const LINE = 17;
const MARGIN = 8;
const MAX_OPERATORS = 60;
const MAX_WINDOWS = 3;
const LONGEST = 23;
const MAX_LINES = 3; // of one text
const TALL = 700;

/**
 * Return `{node, show(graph, label, words)}`: a plan that stays where somebody moved it to, and as large as somebody
 * wants it, while it changes. `words` stand above it.
 */
export function planView(label) {
  const why = el("div", {});
  const zoomed = zoomable(label);
  const rest = el("p", { class: "note newest", hidden: true });
  const list = el("ul", {});
  const node = el("div", {}, why, zoomed.node, rest, el("details", {}, el("summary", {}, "The same as a list"), list));

  function show(graph, now, words = []) {
    const { nodes, edges, left } = trimmed(graph);
    const boxes = layout(nodes, edges);
    why.replaceChildren(...words.map((text) => el("p", { class: "why" }, text)));
    zoomed.show(pictureOf(boxes, edges, now), now);
    say(rest, `And ${plural(left, "operator", "operators")} with fewer queries.`);
    rest.hidden = left === 0;
    const at = new Map(boxes.map((box) => [box.node.id, box]));
    const item = ({ node: each, texts }) => el("li", {}, [each.kind, ...texts].join(" · ") + leadsTo(each, edges, at));
    list.replaceChildren(...boxes.map(item));
  }

  return { node, show };
}

function pictureOf(boxes, edges, label) {
  const width = Math.max(...boxes.map((box) => box.x + WIDTH)) + MARGIN;
  const height = Math.max(...boxes.map((box) => box.y + box.height)) + MARGIN;
  const at = new Map(boxes.map((box) => [box.node.id, box]));
  return svg(
    "svg",
    { class: "plan", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height },
    svg(
      "g",
      { class: "links" },
      edges.map((edge) => link(at.get(edge.source), at.get(edge.target))),
    ),
    boxes.map(drawn),
  );
}

function leadsTo(node, edges, at) {
  const targets = edges.filter((edge) => edge.source === node.id).map((edge) => titleOf(at.get(edge.target).node));
  return targets.length ? ` → ${targets.join(", ")}` : "";
}

/** Keep the operators with the most queries where there are too many to draw. */
function trimmed({ nodes, edges }) {
  const operators = nodes.filter((node) => "queries" in node).sort((a, b) => b.queries - a.queries);
  const dropped = new Set(operators.slice(MAX_OPERATORS).map((node) => node.id));
  return {
    nodes: nodes.filter((node) => !dropped.has(node.id)),
    edges: edges.filter((edge) => !dropped.has(edge.source) && !dropped.has(edge.target)),
    left: dropped.size,
  };
}

function layout(nodes, edges) {
  const rank = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const { source, target } of edges) {
      if (rank.get(target) > rank.get(source)) continue;
      rank.set(target, rank.get(source) + 1);
      moved = true;
    }
    if (!moved) break;
  }
  const columns = [];
  for (const node of nodes) (columns[rank.get(node.id)] ??= []).push(boxOf(node));
  const used = columns.filter(Boolean);
  const place = new Map();
  for (const column of used) {
    const middle = ({ node }) => {
      const sources = edges.filter((edge) => edge.target === node.id).map((edge) => place.get(edge.source) ?? 0);
      return sources.length ? sources.reduce((sum, each) => sum + each, 0) / sources.length : 0;
    };
    column.sort((a, b) => middle(a) - middle(b) || (b.node.queries ?? 0) - (a.node.queries ?? 0));
    column.forEach((box, index) => place.set(box.node.id, index));
  }
  const tall = (column) => column.reduce((sum, box) => sum + heightOf(box) + GAP.y, -GAP.y);
  const height = Math.max(...used.map(tall));
  return used.flatMap((column, index) => {
    let y = MARGIN + (height > TALL ? 0 : (height - tall(column)) / 2); // what is tall is read from its top
    return column.map((box) => {
      const set = { ...box, x: MARGIN + index * (WIDTH + GAP.x), y, height: heightOf(box) };
      y += set.height + GAP.y;
      return set;
    });
  });
}

const heightOf = ({ lines }) => 24 + lines.length * LINE + 4;

const titleOf = (node) =>
  node.name ??
  (node.kind === "router"
    ? "result log"
    : node.kind === "query"
      ? node.id
      : (node.streams ?? []).join(" ⋈ ") || node.id);

/** Return which rows an operator takes, and how it divides them. */
export function operatorText({ kind, streams, partitioned_by: by }) {
  return `${kind} of ${streams.join(", ")}${by.length ? ` by ${by.join(", ")}` : ""}`;
}

/** Return a node with what is written in it: `texts`, and the `lines` that these take. */
function boxOf(node) {
  const texts = textsOf(node);
  return { node, texts, lines: texts.flatMap(wrapped) };
}

/** Break a text into lines that fit. */
function wrapped(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (longer.length <= LONGEST || !lines.at(-1)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  const shown = lines.slice(0, MAX_LINES);
  if (lines.length > MAX_LINES) shown[MAX_LINES - 1] += " …";
  return shown.map(short);
}

function textsOf(node) {
  const lines = [titleOf(node)];
  if (node.partitioned_by?.length) lines.push(`by ${node.partitioned_by.join(", ")}`);
  if (node.windows?.length > MAX_WINDOWS) lines.push(`${count(node.windows.length)} kinds of windows`);
  else lines.push(...(node.windows ?? []).map(windowText));
  if ("queries" in node) lines.push(plural(node.queries, "query", "queries"));
  const groups = Object.keys(node.groups ?? {}).length;
  if (groups > 1) lines.push(`${groups} query groups`);
  if (node.split) lines.push(`${plural(node.split.keys, "key", "keys")} in all partitions`);
  if (node.statistics) {
    const cores = (node.statistics.source_cores ?? 0) + (node.statistics.partition_cores ?? 0);
    lines.push(`${cores < 0.01 ? "<0.01" : cores.toFixed(2)} cores`);
  }
  if (node.tables?.length) lines.push(`with ${node.tables.map((table) => table.split("@")[0]).join(", ")}`);
  return [...lines, ...(node.notes ?? [])];
}

/** A window in a few words. */
function windowText(window) {
  if (window.kind === "session") return `sessions, gap ${span(window.gap_seconds)}`;
  const size = span(window.size_seconds);
  return window.slide_seconds === window.size_seconds
    ? `windows of ${size}`
    : `${size} every ${span(window.slide_seconds)}`;
}

function drawn({ node, texts, lines, x, y, height }) {
  return svg(
    "g",
    { class: `node ${node.kind}`, transform: `translate(${x} ${y})` },
    svg("title", {}, [node.kind, ...texts].join("\n")),
    svg("rect", { width: WIDTH, height, rx: 6 }),
    svg("rect", { class: "edge", width: 4, height, rx: 2 }),
    svg("text", { class: "kind", x: 14, y: 17 }, node.kind === "router" ? "router" : node.kind),
    lines.map((text, index) =>
      svg("text", { class: index === 0 ? "name" : "detail", x: 14, y: 34 + index * LINE }, text),
    ),
  );
}

const short = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

/** Return the line between two nodes: it keeps its height up to the gap before its target, so that it crosses no other. */
function link(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + from.height / 2, to.x, to.y + to.height / 2];
  const [begin, middle] = [Math.max(x1, x2 - GAP.x), Math.max(x1, x2 - GAP.x / 2)];
  return svg("path", { d: `M${x1} ${y1}H${begin}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
}
