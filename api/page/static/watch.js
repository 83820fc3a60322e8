// A query's rows as they come: in a table and a chart, until they end or are held.

import { get, parse, problemOrAway } from "./api.js";
import { chart } from "./chart.js";
import { el, say, set } from "./dom.js";
import { follow } from "./events.js";
import { count } from "./format.js";
import { rowsTable } from "./rows.js";
import { Series } from "./series.js";

const TAIL = 10_000;
const MAX_ROWS_PER_SECOND = 3000;
const RENDER_MS = 300;
const QUIET_MS = 10_000;
const TEXTS = {
  open: "Live, times in UTC.",
  away: "The connection is lost; trying again.",
  sampled: "More rows than one can watch: the newest of every few seconds.",
  end: "The query has ended: no more rows will come.",
};

/** Return `{node, describe(layout), looked(query), ended(query), stop()}`; `onRows` is called when rows have come. */
export function watch(id, choice, onRows) {
  const waiting = el("p", { class: "empty" }, "Loading…");
  const table = rowsTable(waiting);
  const series = new Series();
  const picture = chart(series, choice, ofWhich);
  const note = el("p", { class: "note" });
  const later = el("p", { class: "note newest", hidden: true });
  const hold = el("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: toggle }, "Hold");
  const node = el(
    "div",
    {},
    el("div", { class: "controls" }, picture.controls, note, hold),
    picture.node,
    ...table.notes,
    later,
    table.node,
  );
  let total = null; // of its rows, once it is over
  let soFar = 0;
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

  /** Say of which rows the chart is; nothing where that is all of them. */
  function ofWhich() {
    if (total === null ? soFar <= TAIL : total <= TAIL && series.length >= total) return "";
    return `Out of the last ${count(TAIL)} rows and all that came since.`;
  }

  function showState(what) {
    if (what === "open" && note.dataset.kind === "sampled") return;
    say(note, TEXTS[what] ?? what);
    set(note, "data-kind", what in TEXTS ? what : "failed");
    if (!(what in TEXTS)) say(waiting, "Its rows cannot be read.");
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

  /** Say whether rows are still loaded or none is kept, where the query has had some. */
  async function lookForRows(rows) {
    try {
      const page = await get(`/queries/${encodeURIComponent(id)}/results?limit=1`);
      if (!page.rows.length) say(waiting, `None of its ${count(rows)} rows is kept any more.`);
    } catch (error) {
      problemOrAway(error); // the figures tell what is wrong
    }
  }

  return {
    node,
    describe(layout) {
      picture.describe(layout);
      table.describe(layout);
    },
    /** Say why there is no row, or where none has come for a while, for what those of the next window wait. */
    async looked({ rows_out: rows, waiting_for: why, open_window: open, last_result_at: last }, ended) {
      soFar = rows;
      later.hidden = !open || !last || Date.now() - Date.parse(last) < QUIET_MS;
      if (!later.hidden) say(later, open.detail);
      if (waiting.hidden || note.dataset.kind === "failed") return;
      if (rows > 0) return lookForRows(rows);
      say(waiting, [ended ? "It has no rows." : "No row yet.", why?.detail].filter(Boolean).join(" "));
    },
    ended({ state, rows_out: rows }) {
      hold.hidden = true;
      if (state !== "FAILED") total = rows;
      picture.draw();
    },
    stop() {
      feed.stop();
      clearTimeout(timer);
      picture.stop();
    },
  };
}
