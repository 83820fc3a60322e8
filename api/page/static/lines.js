// Groups over time on a canvas: a line for each group of windows, dots for single rows, and a cursor between them.

import { canvas } from "./canvas.js";
import { el, set } from "./dom.js";
import { measure as shown } from "./format.js";
import { linear, roundTicks, timeText, timeTicks } from "./scale.js";
import { thinnedDots, thinnedLine } from "./thinning.js";

const HEIGHT = 210;
const PAD = { top: 10, right: 14, bottom: 22 }; // .cursor in style.css has top and bottom, too
const TICK_GAP = 8;
const PIXELS_A_TIME = 110;
const LONELY_MS = 5000; // on both sides of a single time
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

/**
 * Return `{node, draw(groups, joined), describe(text), at(), stop()}`; groups are `{name, colour, points}`, points that are
 * `joined` are of windows.
 *
 * A pointer or the arrow keys choose a time, which `at()` returns, null for none; `moved(byKey)` is called when it changes.
 */
export function linesChart(moved) {
  let groups = [];
  let joined = true;
  let picture = null; // of the width that it was made for
  let times = [];
  let cursor = null; // an index of times
  const surface = canvas(HEIGHT, (context, width, colour) => {
    if (!groups.length) return;
    if (picture?.width !== width) picture = pictureOf(context, groups, joined, width);
    paintGrid(context, picture, colour);
    for (const group of picture.groups) paintGroup(context, group, colour);
    placeCursor();
  });
  const line = el("div", { class: "cursor", hidden: true });
  const node = el("div", { class: "plot" }, surface.node, line);
  set(surface.node, "role", "img");
  set(surface.node, "tabindex", "0");

  /** Show where the cursor is; it lies above the canvas, which need not be painted for it. */
  function placeCursor() {
    line.hidden = cursor === null || picture === null;
    if (!line.hidden) line.style.left = `${picture.x.of(times[cursor])}px`;
  }

  function move(to, byKey) {
    if (to === cursor) return;
    cursor = to;
    placeCursor();
    moved(byKey);
  }

  node.addEventListener("pointermove", (event) => {
    if (picture) move(nearest(times, picture.x.of, event.clientX - node.getBoundingClientRect().left), false);
  });
  node.addEventListener("pointerleave", () => move(null, false));
  surface.node.addEventListener("blur", () => move(null, false));
  surface.node.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return move(null, true);
    const step = STEPS[event.key];
    if (step === undefined || !times.length) return;
    event.preventDefault();
    const last = times.length - 1;
    move(Math.min(last, Math.max(0, (cursor ?? (step > 0 && step !== Infinity ? -1 : last + 1)) + step)), true);
  });

  return {
    node,
    draw(newGroups, areJoined) {
      const at = cursor === null ? null : times[cursor];
      [groups, joined, picture] = [newGroups, areJoined, null];
      times = [...new Set(groups.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
      const place = times.indexOf(at);
      cursor = place < 0 ? null : place;
      surface.paint();
    },
    /** Say what it shows, to those who cannot see it. */
    describe: (text) => set(surface.node, "aria-label", text),
    at: () => (cursor === null ? null : times[cursor]),
    stop: surface.stop,
  };
}

/** Return where everything is in a picture of a width. */
function pictureOf(context, groups, joined, width) {
  const points = groups.flatMap((group) => group.points);
  const [least, most] = boundsOf(points, "y");
  const low = least >= 0 && least < most * 0.75 ? 0 : least;
  const ticks = roundTicks(low, most, 4);
  const left = Math.max(...ticks.map((tick) => context.measureText(shown(tick)).width)) + 2 * TICK_GAP;
  const y = { ticks, of: linear(ticks[0], ticks.at(-1), HEIGHT - PAD.bottom, PAD.top) };
  let [from, to] = boundsOf(points, "x");
  if (from === to) [from, to] = [from - LONELY_MS, to + LONELY_MS];
  const step = joined ? stepOf(points) : null;
  const x = {
    ticks: timeTicks(from, to, Math.floor((width - left) / PIXELS_A_TIME)),
    of: linear(from, to, left, width - PAD.right),
    span: to - from,
  };
  return {
    x,
    y,
    left,
    width,
    groups: groups.map((group) => ({ ...group, ...shapeOf(group.points, x.of, y.of, joined, step) })),
  };
}

function boundsOf(points, axis) {
  let [least, most] = [Infinity, -Infinity];
  for (const point of points) {
    if (point[axis] < least) least = point[axis];
    if (point[axis] > most) most = point[axis];
  }
  return [least, most];
}

/** Return how far windows are apart that all points lie on, Infinity where they are of no fixed length. */
function stepOf(points) {
  const times = [...new Set(points.map(({ x }) => x))].sort((a, b) => a - b);
  let step = Infinity;
  for (let at = 1; at < times.length; at += 1) step = Math.min(step, times[at] - times[at - 1]);
  return times.every((time) => (time - times[0]) % step === 0) ? step : Infinity;
}

/** Return points in runs without a window in between that has no row. */
export function runsOf(points, step) {
  const runs = [];
  for (const point of points) {
    const run = runs.at(-1);
    if (run && point.x - run.at(-1).x <= step) run.push(point);
    else runs.push([point]);
  }
  return runs;
}

/** Return `{line, ends, dots}` of one group, in pixels. */
function shapeOf(points, x, y, joined, step) {
  const [column, row] = [(time) => Math.round(x(time)), (value) => Math.round(y(value))];
  const place = (point) => ({ x: x(point.x), y: y(point.y), partial: point.partial });
  if (!joined) return { line: null, ends: [], dots: thinnedDots(points, column, row).map(place) };
  const line = new Path2D();
  const runs = runsOf(points, step);
  for (const run of runs) {
    line.moveTo(x(run[0].x), y(run[0].y));
    for (const point of thinnedLine(run, column)) line.lineTo(x(point.x), y(point.y));
  }
  const lonely = new Set(runs.filter((run) => run.length === 1).flat());
  const partial = points.filter((point, at) => point.partial || at === points.length - 1 || lonely.has(point));
  return { line, ends: thinnedDots(partial, column, row).map(place), dots: [] };
}

function paintGrid(context, { x, y, left, width }, colour) {
  context.lineWidth = 1;
  context.strokeStyle = colour("--line");
  context.fillStyle = colour("--muted");
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of y.ticks) {
    const at = Math.round(y.of(tick)) + 0.5;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width - PAD.right, at);
    context.stroke();
    context.fillText(shown(tick), left - TICK_GAP, at);
  }
  context.textBaseline = "alphabetic";
  for (const tick of x.ticks) {
    const text = timeText(tick, x.span);
    const half = context.measureText(text).width / 2;
    context.textAlign = "center"; // within the picture, at both ends
    context.fillText(text, Math.min(width - half, Math.max(half, x.of(tick))), HEIGHT - 5);
  }
}

function paintGroup(context, { colour: number, line, ends, dots }, colour) {
  context.strokeStyle = context.fillStyle = colour(`--s${number}`);
  context.lineJoin = "round";
  if (line) {
    context.lineWidth = 1.8;
    context.stroke(line);
  }
  context.globalAlpha = 0.6;
  for (const { x, y } of dots) circle(context, x, y, 2.2).fill();
  context.globalAlpha = 1;
  for (const { x, y, partial } of ends) {
    circle(context, x, y, 3);
    if (partial) context.fillStyle = colour("--surface");
    context.fill();
    context.lineWidth = 1.5;
    if (partial) context.stroke();
    context.fillStyle = context.strokeStyle;
  }
}

function circle(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  return context;
}

/** Return the index of the time that lies nearest to a pixel; times are ascending. */
function nearest(times, x, pixel) {
  let [low, high] = [0, times.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x(times[middle]) < pixel) low = middle;
    else high = middle;
  }
  return Math.abs(x(times[low]) - pixel) <= Math.abs(x(times[high]) - pixel) ? low : high;
}

/** Return the value of a group at a time, the newest for null; null where it has none. */
export function valueAt({ points }, time) {
  if (time === null) return points.at(-1)?.y ?? null;
  return points.findLast(({ x }) => x === time)?.y ?? null;
}
