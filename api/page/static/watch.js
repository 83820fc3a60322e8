// A query's rows as they come: in a table and a chart, until they end or are held.

import { parse } from "./api.js";
import { chart } from "./chart.js";
import { el, say, set } from "./dom.js";
import { follow } from "./events.js";
import { rowsTable } from "./rows.js";
import { Series } from "./series.js";

const TAIL = 400;
const MAX_ROWS_PER_SECOND = 3000;
const RENDER_MS = 300;
const TEXTS = {
  open: "Live, times in UTC.",
  away: "The connection is lost; trying again.",
  sampled: "More rows than one can watch: the newest of every few seconds.",
  end: "The query has ended: no more rows will come.",
};

/** Return `{node, group(columns), waits(why), ended(), stop()}`; `onRows` is called when rows have come. */
export function watch(id, onRows) {
  const waiting = el("p", { class: "empty" }, "No row yet.");
  const table = rowsTable(waiting);
  const series = new Series();
  const picture = chart(series, `Chart of the last ${TAIL} rows, and of those that came since.`);
  const note = el("p", { class: "note" });
  const hold = el("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: toggle }, "Hold");
  const node = el(
    "div",
    {},
    el("div", { class: "controls" }, picture.controls, note, hold),
    picture.node,
    ...table.notes,
    table.node,
  );
  let pending = [];
  let timer = null;
  let feed = begin();

  function begin() {
    return follow(id, { tail: TAIL, maxPerSecond: MAX_ROWS_PER_SECOND, onRows: came, onState: showState });
  }

  function came(texts) {
    pending.push(...texts.slice(-TAIL).map(parse));
    timer ??= setTimeout(show, RENDER_MS);
  }

  function show() {
    timer = null;
    if (!pending.length) return;
    table.add(pending);
    series.add(pending);
    pending = [];
    picture.draw();
    waiting.hidden = true;
    onRows();
  }

  function showState(what) {
    if (what === "open" && note.dataset.kind === "sampled") return;
    say(note, TEXTS[what] ?? what);
    set(note, "data-kind", what in TEXTS ? what : "failed");
    if (what === "end") say(waiting, "It has no rows.");
  }

  function toggle() {
    const held = hold.getAttribute("aria-pressed") === "false";
    set(hold, "aria-pressed", String(held));
    say(hold, held ? "Go on" : "Hold");
    feed.stop();
    if (held) return say(note, "Held. Go on to see the newest rows.");
    pending = [];
    table.clear();
    series.clear();
    feed = begin();
  }

  return {
    node,
    /** Learn by which columns the query groups: the chart has a line for each group. */
    group(columns) {
      series.group(columns);
      picture.draw();
    },
    /** Say why there is no row yet, if anything is known of that. */
    waits(why) {
      say(waiting, why ? `No row yet. ${why}` : "No row yet.");
    },
    ended() {
      hold.hidden = true;
      say(waiting, "It has no rows.");
    },
    stop() {
      feed.stop();
      clearTimeout(timer);
    },
  };
}
