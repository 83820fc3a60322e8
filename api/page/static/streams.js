// The streams and their clocks.

import { byId, el, keyed, say, set } from "./dom.js";
import { ago, count, plural, secondsBehind } from "./format.js";
import { listing, nameCell, numberCell, trendCell } from "./listing.js";
import { draw, History } from "./sparkline.js";

const HEADINGS = [
  ["Stream", null],
  ["Rows/s", "number"],
  ["", "trend"],
  ["Watermark", "number"],
  ["Late", "number"],
  ["Malformed", "number"],
];

/** How many rows a second came between the last two looks at a stream. */
class Rates {
  #seen = new Map();

  of(stream, now) {
    const before = this.#seen.get(stream.id);
    if (before && now - before.at < 500) return before.rate;
    const rate = before ? Math.max(0, ((stream.tuples - before.tuples) * 1000) / (now - before.at)) : null;
    this.#seen.set(stream.id, { tuples: stream.tuples, at: now, rate });
    return rate;
  }
}

/** Return `{show(streams, now)}`, which gives the rates by stream, their sum and how far the last watermark is behind. */
export function streamsPanel() {
  const rates = new Rates();
  const history = new History();
  const body = el("tbody");
  const table = listing("streams", HEADINGS, body);
  const empty = el("p", { class: "empty", hidden: true });
  byId("streams").append(table, empty);

  function show(streams, now) {
    table.hidden = streams.length === 0;
    empty.hidden = streams.length > 0;
    say(empty, "No stream is declared yet. The examples beside the SQL editor make one.");
    say(byId("streams-note"), streams.length ? plural(streams.length, "stream", "streams") : "");
    const rateOf = new Map();
    keyed(
      body,
      unreadFirst(streams),
      (stream) => stream.id,
      row,
      (node, stream) => {
        const rate = rates.of(stream, now);
        rateOf.set(stream.id, rate);
        update(node, stream, rate, history.add(stream.id, rate));
      },
    );
    history.keep(streams.map((stream) => stream.id));
    const behind = streams
      .filter((s) => !s.idle)
      .map((s) => secondsBehind(s.watermark))
      .filter((s) => s !== null);
    const known = [...rateOf.values()].filter((rate) => rate !== null);
    return {
      rates: rateOf,
      rate: known.length ? known.reduce((sum, rate) => sum + rate, 0) : null,
      behind: behind.length ? Math.max(...behind) : null,
    };
  }

  return { show };
}

/** Return streams with those first that cannot be read: the list may be longer than what is seen of it. */
function unreadFirst(streams) {
  return [...streams].sort((a, b) => Boolean(b.error) - Boolean(a.error));
}

function row(stream) {
  return el(
    "tr",
    {},
    nameCell(
      `#/streams/${encodeURIComponent(stream.name)}`,
      stream.name,
      stream.name,
      el("span", { class: "under columns" }),
      el("span", { class: "under error", hidden: true }),
    ),
    numberCell(),
    trendCell(),
    numberCell(),
    numberCell(),
    numberCell(),
  );
}

function update(node, stream, rate, trend) {
  const [name, tuples, line, watermark, late, malformed] = node.children;
  const [over, columns, error] = name.children;
  say(over.lastElementChild, stream.source.connector);
  say(columns, stream.columns.map((column) => `${column.name} ${column.type}`).join(", "));
  set(columns, "title", columns.textContent);
  say(error, stream.error ?? "");
  error.hidden = !stream.error;
  set(node, "data-state", stream.error ? "failed" : null);
  say(tuples, count(rate));
  draw(line.firstElementChild, trend);
  const behind = secondsBehind(stream.watermark);
  const reached = behind === null && stream.watermark ? stream.watermark.slice(0, 10) : ago(behind); // of recorded rows
  say(watermark, stream.ended ? "ended" : stream.idle ? "idle" : reached);
  set(watermark, "title", stream.watermark ? `watermark ${stream.watermark}, clock ${stream.clock}` : "no row yet");
  warn(late, stream.late);
  warn(malformed, stream.malformed);
}

function warn(node, number) {
  say(node, count(number));
  set(node, "data-warn", number > 0);
}
