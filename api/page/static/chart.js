// A live chart of a query's rows: a line for each group of a windowed query, points for single rows.

import { el, keyed, say, set, svg } from "./dom.js";
import { measure as shown } from "./format.js";
import { linear, roundTicks, timeText, timeTicks } from "./scale.js";

const HEIGHT = 190;
const PAD = { top: 10, right: 14, bottom: 22, left: 52 };
const MAX_SERIES = 10;
const PAUSE_MS = 400;

/** Return `{node, controls, draw()}`: a chart of `series` (see series.js), drawn at most a few times a second; `of` says of what. */
export function chart(series, of) {
  const picture = svg("svg", { role: "img", height: HEIGHT, "aria-label": "Chart: no rows yet" });
  const legend = el("ul", { class: "legend" });
  const [measure, by] = [el("select", { id: "chart-measure" }), el("select", { id: "chart-by" })];
  const controls = el(
    "div",
    { class: "choices", hidden: true },
    el("label", { for: "chart-measure" }, "Chart"),
    measure,
    el("label", { for: "chart-by" }, "by"),
    by,
  );
  const node = el("div", { class: "chart", hidden: true }, picture, legend, el("p", { class: "note newest" }, of));
  const colours = new Map();
  let timer = null;
  let hovered = null;
  let width = 600;

  measure.onchange = () => {
    series.measure = measure.value;
    render();
  };
  by.onchange = () => {
    series.by = by.value || null;
    render();
  };
  new ResizeObserver(([entry]) => {
    width = Math.max(260, entry.contentRect.width);
    render();
  }).observe(node);
  picture.addEventListener("pointermove", (event) => {
    hovered = event.clientX - picture.getBoundingClientRect().left;
    render();
  });
  picture.addEventListener("pointerleave", () => {
    hovered = null;
    render();
  });

  function draw() {
    timer ??= setTimeout(() => {
      timer = null;
      render();
    }, PAUSE_MS);
  }

  function render() {
    options(
      measure,
      series.numbers.map((name) => [name, name]),
      series.measure,
    );
    options(by, [["", "nothing"], ...series.others.map((name) => [name, name])], series.by ?? "");
    const all = series.measure === null ? [] : series.points();
    node.hidden = controls.hidden = all.length === 0;
    if (!all.length) return;
    const drawn = coloured(all);
    const x = scaleOfTimes(drawn, width);
    const y = scaleOfValues(drawn);
    const at = hovered === null ? null : nearest(drawn, x, hovered);
    picture.replaceChildren(
      ...grid(x, y, width),
      ...drawn.flatMap((each) => (series.windowed ? line(each, x.of, y.of) : dots(each, x.of, y.of))),
      ...(at === null
        ? []
        : [svg("line", { class: "cross", x1: x.of(at), x2: x.of(at), y1: PAD.top, y2: HEIGHT - PAD.bottom })]),
    );
    set(picture, "width", width);
    set(picture, "viewBox", `0 0 ${width} ${HEIGHT}`);
    set(picture, "aria-label", described(drawn, all.length));
    showLegend(drawn, all.length, at, x.span);
  }

  /** Return the series that are drawn, each with the colour it had before; the greatest ones take what is free. */
  function coloured(all) {
    const there = new Set(all.map((each) => each.name));
    for (const name of colours.keys()) if (!there.has(name)) colours.delete(name);
    const waiting = all.filter((each) => !colours.has(each.name)).sort((a, b) => b.points.at(-1).y - a.points.at(-1).y);
    const free = [...Array(MAX_SERIES).keys()].filter((colour) => ![...colours.values()].includes(colour));
    const chosen = waiting.slice(0, free.length).map((each) => each.name);
    for (const { name } of all) if (chosen.includes(name)) colours.set(name, free.shift());
    return all.filter((each) => colours.has(each.name)).map((each) => ({ ...each, colour: colours.get(each.name) }));
  }

  function described(drawn, total) {
    const values = drawn.map((each) => `${each.name} ${shown(each.points.at(-1).y)}`).join(", ");
    const grouped = series.by === null ? "" : ` by ${series.by}, ${total} groups`;
    return `Chart of ${series.measure}${grouped}; latest: ${values}`;
  }

  function showLegend(drawn, total, at, span) {
    const entries = drawn.map((each) => ({ ...each, value: valueAt(each, at) }));
    if (total > drawn.length) entries.push({ name: `and ${total - drawn.length} more`, colour: null, value: null });
    if (at !== null) entries.push({ name: `at ${timeText(at, span)}`, colour: null, value: null });
    const entry = () => el("li", {}, el("span", { class: "swatch" }), el("span", {}), el("b", {}));
    keyed(
      legend,
      entries,
      (each) => each.name,
      entry,
      (item, each) => {
        const [swatch, name, value] = item.children;
        set(swatch, "class", each.colour === null ? "hidden" : `swatch s${each.colour}`);
        say(name, each.name);
        say(value, each.value === null ? "" : shown(each.value));
      },
    );
  }

  return { node, controls, draw };
}

function options(select, entries, chosen) {
  if (select.dataset.of !== entries.join("\n")) {
    select.dataset.of = entries.join("\n");
    select.replaceChildren(...entries.map(([value, title]) => el("option", { value }, title)));
  }
  if (select.value !== chosen && chosen !== null) select.value = chosen;
}

function scaleOfTimes(drawn, width) {
  const xs = drawn.flatMap((each) => each.points.map((point) => point.x));
  let [low, high] = [Math.min(...xs), Math.max(...xs)];
  if (low === high) [low, high] = [low - 5000, high + 5000];
  const ticks = timeTicks(low, high, Math.floor(width / 110));
  return { of: linear(low, high, PAD.left, width - PAD.right), ticks, span: high - low };
}

function scaleOfValues(drawn) {
  const ys = drawn.flatMap((each) => each.points.map((point) => point.y));
  const [least, most] = [Math.min(...ys), Math.max(...ys)];
  const low = least >= 0 && least < most * 0.75 ? 0 : least;
  const ticks = roundTicks(low, most, 4);
  return { of: linear(ticks[0], ticks.at(-1), HEIGHT - PAD.bottom, PAD.top), ticks };
}

function grid(x, y, width) {
  return [
    ...y.ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y.of(tick), y2: y.of(tick) }),
      svg("text", { class: "tick", x: PAD.left - 8, y: y.of(tick) + 4, "text-anchor": "end" }, shown(tick)),
    ]),
    ...x.ticks.map((tick) => {
      const anchor = x.of(tick) > width - PAD.right - 20 ? "end" : "middle"; // the last one must not be cut off
      return svg("text", { class: "tick", x: x.of(tick), y: HEIGHT - 5, "text-anchor": anchor }, timeText(tick, x.span));
    }),
  ];
}

function line({ points, colour }, x, y) {
  const path = points.map((point) => `${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("L");
  const ends = points.filter((point, place) => point.partial || place === points.length - 1);
  return [
    svg("path", { class: `line s${colour}`, d: `M${path}` }),
    ...ends.map((point) =>
      svg("circle", { class: `${point.partial ? "partial" : "end"} s${colour}`, cx: x(point.x), cy: y(point.y), r: 3 }),
    ),
  ];
}

function dots({ points, colour }, x, y) {
  return points
    .slice(-600)
    .map((point) =>
      svg("circle", { class: `dot s${colour}`, cx: x(point.x).toFixed(1), cy: y(point.y).toFixed(1), r: 2.2 }),
    );
}

function nearest(drawn, x, place) {
  const xs = drawn.flatMap((each) => each.points.map((point) => point.x));
  return xs.reduce((best, each) => (Math.abs(x.of(each) - place) < Math.abs(x.of(best) - place) ? each : best));
}

function valueAt({ points }, at) {
  return (at === null ? points.at(-1) : points.find((point) => point.x === at))?.y ?? null;
}
