// A line as small as a word: how a figure went lately.

import { set, svg } from "./dom.js";

const WIDTH = 72;
const HEIGHT = 18;
const POINTS = 30;

/** Keeps the last values by key. */
export class History {
  #values = new Map();

  /** Add a value, null for none, and return the last ones. */
  add(key, value) {
    const values = this.#values.get(key) ?? [];
    if (value !== null && value !== undefined) values.push(value);
    if (values.length > POINTS) values.shift();
    this.#values.set(key, values);
    return values;
  }

  /** Forget all keys but these. */
  keep(keys) {
    const wanted = new Set(keys);
    for (const key of this.#values.keys()) if (!wanted.has(key)) this.#values.delete(key);
  }
}

/** Return an empty sparkline; `draw` fills it. It is decoration: the figure stands beside it as text. */
export function sparkline() {
  return svg(
    "svg",
    { class: "sparkline", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    svg("path", { class: "area" }),
    svg("path", { class: "line" }),
  );
}

/** Draw values, the oldest first; from zero up. */
export function draw(sparkline, values) {
  const [area, line] = sparkline.children;
  if (values.length < 2) {
    set(area, "d", null);
    set(line, "d", null);
    return;
  }
  const top = Math.max(...values) || 1;
  const step = WIDTH / (POINTS - 1);
  const left = WIDTH - step * (values.length - 1);
  const points = values.map(
    (v, i) => `${(left + i * step).toFixed(1)} ${(HEIGHT - 1 - (v / top) * (HEIGHT - 3)).toFixed(1)}`,
  );
  set(line, "d", `M${points.join("L")}`);
  set(area, "d", `M${left.toFixed(1)} ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z`);
}
