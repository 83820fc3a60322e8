// The live chart of a query's rows: its form, its controls, and what it shows in words.

import { barsChart } from "./bars.js";
import { FORMS, formsOf, groupingOf, likelyForm } from "./choice.js";
import { el, say, set } from "./dom.js";
import { clockTime, count, measure as shown, plural } from "./format.js";
import { legend } from "./legend.js";
import { linesChart, valueAt } from "./lines.js";

const MAX_LINES = 10;
const MAX_BARS = 25;
const PAUSE_MS = 400;

/**
 * Return `{node, controls, describe(layout), draw(), stop()}`: a chart of `series` (see series.js), drawn at most a few
 * times a second once the layout of its columns is known; `choice` is how it is looked at, `of()` says of which rows.
 */
export function chart(series, choice, of) {
  const lines = linesChart(pointed);
  const bars = barsChart();
  const groups = legend(MAX_LINES, (names) => choose({ groups: names }));
  const spoken = el("p", { class: "hidden", role: "status" });
  const caption = el("p", { class: "note newest" });
  const forms = el(
    "fieldset",
    { class: "forms" },
    el("legend", { class: "hidden" }, "Form of the chart"),
    FORMS.map(formChoice),
  );
  const [measure, by] = [chooser("measure", "Measure"), chooser("by", "by")];
  const controls = el("div", { class: "choices", hidden: true }, forms, measure.node, by.node);
  const node = el("div", { class: "chart", hidden: true }, lines.node, bars.node, groups.node, caption, spoken);
  const colours = new Map();
  let layout = null;
  let timer = null;
  let seen = null; // what is drawn

  function formChoice([value, title]) {
    const input = el("input", { type: "radio", name: "form", value, onchange: () => choose({ form: value }) });
    return el("label", {}, input, el("span", {}, title));
  }

  function chooser(name, title) {
    const select = el("select", {
      id: `chart-${name}`,
      onchange: () => choose({ [name]: select.value, ...cleared(name) }),
    });
    return { node: el("span", {}, el("label", { for: `chart-${name}` }, title), select), select };
  }

  /** Another grouping has other groups; another measure keeps them. */
  const cleared = (name) => (name === "by" ? { groups: [] } : {});

  function choose(changes) {
    choice.choose(changes);
    render();
  }

  function draw() {
    timer ??= setTimeout(() => {
      timer = null;
      render();
    }, PAUSE_MS);
  }

  function render() {
    seen = layout && series.length ? lookedAt() : null;
    controls.hidden = seen === null || seen.forms.length === 1;
    node.hidden = seen === null || seen.form === "table";
    if (seen === null) return;
    showControls();
    if (seen.form === "table") return;
    lines.node.hidden = seen.form !== "lines";
    bars.node.hidden = seen.form !== "bars";
    if (seen.form === "lines") showLines();
    else showBars();
  }

  /** Return what is looked at: what was chosen, where rows have it, else what suits them. */
  function lookedAt() {
    const measured = layout.measures.includes(choice.measure) ? choice.measure : (layout.measures[0] ?? null);
    const grouping = groupingOf(layout, measured, choice.by);
    const shape = { ...layout, groups: grouping };
    const data = measured === null ? { groups: [], windows: [] } : series.of(layout, measured, grouping);
    const possible = data.groups.length && data.isUnique ? formsOf(shape) : ["table"];
    const form = possible.includes(choice.form)
      ? choice.form
      : likelyForm(shape, data.groups.length, data.windows.length);
    return {
      ...data,
      measure: measured,
      by: grouping,
      forms: possible,
      form: possible.includes(form) ? form : "table",
    };
  }

  function showControls() {
    for (const label of forms.querySelectorAll("label")) {
      const input = label.firstElementChild;
      label.hidden = !seen.forms.includes(input.value);
      input.checked = input.value === seen.form;
    }
    const isChart = seen.form !== "table";
    options(measure, isChart ? layout.measures.map((name) => [name, name]) : [], seen.measure);
    const groupings = isChart ? layout.groupings(seen.measure).map((columns) => columns.join(", ")) : [];
    options(
      by,
      groupings.map((text) => [text, text || "nothing"]),
      seen.by.join(", "),
    );
  }

  function showLines() {
    const drawn = coloured(chosenOf(seen.groups, totalOf, MAX_LINES));
    seen.drawn = drawn;
    lines.draw(drawn, layout.end !== null);
    lines.describe(`Chart of ${subject()}; latest: ${listed(drawn)}${restOf(drawn, "; ")}`);
    tell(`${periodOf(drawn)}${of()}`.trim());
    showLegend(drawn);
  }

  function showLegend(drawn) {
    const at = lines.at();
    const isGrouped = seen.by.length > 0 && seen.groups.length > 1;
    const entries = drawn.map((group) => ({ ...group, value: valueAt(group, at), isGroup: isGrouped }));
    if (at !== null) entries.unshift({ name: `at ${timeOf(at)}`, colour: null, value: null, isGroup: false });
    groups.draw({ entries, others: othersThan(drawn), picked: picked(), words: restOf(drawn) });
  }

  function showBars() {
    const newest = seen.windows.at(-1);
    const present = seen.groups.filter(({ points }) => layout.isSession || points.at(-1).x === newest);
    const drawn = chosenOf(present, valueOf, MAX_BARS).sort((a, b) => valueOf(b) - valueOf(a));
    bars.draw(drawn.map((group) => ({ name: group.name, value: valueOf(group) })));
    const partial = drawn.some(({ points }) => points.at(-1).partial) ? ", which began before the query did" : "";
    const which = layout.isSession ? "newest sessions" : `window until ${timeOf(newest)}${partial}`;
    set(bars.node, "aria-label", `${subject(present.length)}, ${which}`);
    tell(`${subject(present.length)}: ${which}${restOf(drawn, "; ", present)}.`);
    const entries = picked().map((name) => ({ name, colour: null, value: null, isGroup: true }));
    groups.draw({ entries, others: othersThan(drawn, present), picked: picked(), words: "" });
  }

  function tell(text) {
    say(caption, text);
    caption.hidden = text === "";
  }

  const totalOf = ({ points }) => points.reduce((sum, { y }) => sum + y, 0);
  const valueOf = ({ points }) => points.at(-1).y;
  const picked = () => choice.groups.filter((name) => seen.groups.some((group) => group.name === name));

  /** Return the groups that were picked, else as many as can be drawn of those with the greatest values. */
  function chosenOf(all, value, most) {
    const names = picked();
    if (names.length) return all.filter(({ name }) => names.includes(name));
    if (all.length <= most) return all;
    const values = new Map(all.map((group) => [group, value(group)]));
    const greatest = new Set([...all].sort((a, b) => values.get(b) - values.get(a)).slice(0, most));
    return all.filter((group) => greatest.has(group));
  }

  /** Return groups with the colours that they had before, or free ones. */
  function coloured(drawn) {
    const there = new Set(drawn.map(({ name }) => name));
    for (const name of colours.keys()) if (!there.has(name)) colours.delete(name);
    const used = new Set(colours.values());
    const free = [...Array(MAX_LINES).keys()].filter((colour) => !used.has(colour));
    for (const { name } of drawn) if (!colours.has(name)) colours.set(name, free.shift() ?? 0);
    return drawn.map((group) => ({ ...group, colour: colours.get(group.name) }));
  }

  // in words

  function subject(number = seen.groups.length) {
    return seen.by.length
      ? `${seen.measure} by ${seen.by.join(", ")}, ${plural(number, "group", "groups")}`
      : seen.measure;
  }

  const listed = (drawn) => drawn.map((group) => `${group.name} ${shown(valueOf(group))}`).join(", ");

  const othersThan = (drawn, all = seen.groups) => {
    const names = new Set(drawn.map(({ name }) => name));
    return all.filter(({ name }) => !names.has(name)).map(({ name }) => name);
  };

  function restOf(drawn, before = "", all = seen.groups) {
    const names = new Set(othersThan(drawn, all));
    if (!names.size) return "";
    const values = all.filter(({ name }) => names.has(name)).map(valueOf);
    const [least, most] = values.reduce(
      ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
      [Infinity, -Infinity],
    );
    return `${before}and ${count(names.size)} more, from ${shown(least)} to ${shown(most)}`;
  }

  function periodOf(drawn) {
    const points = drawn.flatMap((group) => (group.points.length ? [group.points[0].x, group.points.at(-1).x] : []));
    const [first, last] = [Math.min(...points), Math.max(...points)];
    if (layout.end === null) return "";
    return first === last
      ? `Window until ${timeOf(first)}. `
      : `Windows that end from ${timeOf(first)} to ${timeOf(last)}. `;
  }

  const timeOf = (ms) => clockTime(new Date(ms).toISOString());

  function pointed(byKey) {
    if (seen?.form !== "lines") return;
    showLegend(seen.drawn);
    const at = lines.at();
    if (!byKey || at === null) return;
    const values = seen.drawn.map((group) => [group.name, valueAt(group, at)]).filter(([, value]) => value !== null);
    say(spoken, `${timeOf(at)}: ${values.map(([name, value]) => `${name} ${shown(value)}`).join(", ")}`);
  }

  return {
    node,
    controls,
    draw,
    /** Learn what the columns of the rows are (see columns.js). */
    describe(columns) {
      layout = columns;
      render();
    },
    stop() {
      clearTimeout(timer);
      lines.stop();
    },
  };
}

function options({ node, select }, entries, chosen) {
  node.hidden = entries.length < 2;
  const text = entries.flat().join("\n");
  if (select.dataset.of !== text) {
    select.dataset.of = text;
    select.replaceChildren(...entries.map(([value, title]) => el("option", { value }, title)));
  }
  if (chosen !== null && select.value !== chosen) select.value = chosen;
}
