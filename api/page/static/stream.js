// One stream: columns, clocks, its late and malformed rows, and its end.

import { get, post, problemOrAway } from "./api.js";
import { confirmed, deletedWithReaders } from "./confirm.js";
import { definitions } from "./definitions.js";
import { el, keyed, say } from "./dom.js";
import { clockTime, count, duration } from "./format.js";
import { every, refreshAll } from "./poll.js";

const LETTERS = 20;

/** Show a stream in `panel`; returns what ends that. */
export function showStream(panel, name, { announce }) {
  const path = `/streams/${encodeURIComponent(name)}`;
  const end = el("button", { type: "button", hidden: true, onclick: endStream }, "End");
  const drop = el("button", { type: "button", onclick: dropStream }, "Drop");
  const trouble = el("p", { class: "problem", role: "alert", hidden: true });
  const error = el("p", { class: "problem", hidden: true });
  const facts = el("dl", { class: "facts" });
  const sql = el("pre", { class: "sql-text", tabindex: "0", "aria-label": "SQL of the stream" });
  const columns = el("tbody");
  const letters = el("tbody");
  const none = el("p", { class: "empty" }, "None: no row came late or malformed.");
  let counted = null;
  const lettersTable = table("Dead letters", ["Received", "Why", "Detail", "Row"], letters, "letters");
  const known = el(
    "div",
    { hidden: true },
    sql,
    error,
    facts,
    el("h3", {}, "Columns"),
    table("Columns", ["Name", "Type", "Role"], columns),
    el("h3", {}, `Dead letters: queries that run do not see these rows; the newest ${LETTERS}`),
    none,
    el(
      "div",
      { class: "scroll rows-scroll", role: "group", "aria-label": "Dead letters", tabindex: "0", hidden: true },
      lettersTable,
    ),
  );
  panel.replaceChildren(
    el(
      "div",
      { class: "head" },
      el("h2", { id: "shown-title" }, name),
      el("span", { class: "tag" }, "stream"),
      el("div", { class: "actions" }, end, drop),
    ),
    trouble,
    known,
  );
  const poll = every(2, look);

  async function look() {
    try {
      const stream = await get(path);
      render(stream);
      const now = stream.late + stream.malformed;
      if (now === counted) return;
      const { rows } = await get(`${path}/dead-letters?tail=${5 * LETTERS}`);
      showLetters(unlike(rows).slice(-LETTERS));
      counted = now;
    } catch (error) {
      const problem = problemOrAway(error);
      if (problem === null) return;
      fail(problem.message);
      if (problem.status === 404) poll.stop();
    }
  }

  function fail(message) {
    say(trouble, message);
    trouble.hidden = false;
  }

  function render(stream) {
    known.hidden = false;
    end.hidden = stream.ended || stream.source.connector !== "push";
    say(sql, stream.sql.replace(/^(\s*--.*\n)+/, "")); // what was said of guesses hides the statement
    say(error, stream.error ?? "");
    error.hidden = !stream.error;
    definitions(facts, [
      ["Rows", count(stream.tuples)],
      ["Late", count(stream.late)],
      ["Malformed", count(stream.malformed)],
      ["Skipped", stream.skipped ? count(stream.skipped) : null],
      ["Clock", clockTime(stream.clock)],
      ["Watermark", stream.ended ? "ended" : `${clockTime(stream.watermark)}${stream.idle ? " (idle)" : ""}`],
      ["Lateness", duration(stream.lateness_seconds)],
      ["Queries", count(stream.queries)],
    ]);
    const row = () => el("tr", {}, el("td", { class: "mono" }), el("td", { class: "mono" }), el("td"));
    keyed(
      columns,
      stream.columns,
      (column) => column.name,
      row,
      (node, column) => {
        say(node.children[0], column.name);
        say(node.children[1], column.type);
        say(
          node.children[2],
          [column.event_time && "event time", column.metadata && `metadata ${column.metadata}`]
            .filter(Boolean)
            .join(", "),
        );
      },
    );
  }

  function showLetters(rows) {
    const row = () => el("tr", {}, el("td"), el("td"), el("td"), el("td", { class: "mono" }));
    keyed(
      letters,
      rows.map((letter, index) => ({ ...letter, index })).reverse(),
      (letter) => letter.index,
      row,
      (node, letter) => {
        say(node.children[0], clockTime(letter.received_at));
        say(node.children[1], letter.query ? `${letter.reason}, ${letter.query}` : letter.reason);
        say(node.children[2], letter.detail ?? "");
        say(node.children[3], letter.raw ?? JSON.stringify(letter.tuple));
      },
    );
    lettersTable.parentElement.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }

  async function endStream() {
    const detail = "It takes no more rows. Its last windows close, and queries that read no other stream are finished.";
    if (!(await confirmed(`End stream ${name}?`, detail, "Keep it open", "End it"))) return;
    trouble.hidden = true;
    try {
      await post(`${path}/watermark`, { end: true });
      announce(`Stream ${name} has ended.`);
      refreshAll();
    } catch (problem) {
      fail(problem.message);
    }
  }

  async function dropStream() {
    if (!(await confirmed(`Drop stream ${name}?`, "Its rows and counts are forgotten.", "Keep it", "Drop it")))
      return;
    trouble.hidden = true;
    try {
      if (!(await deletedWithReaders(path, "Drop it and retire them"))) return;
      announce(`Stream ${name} is dropped.`);
      location.hash = "#/";
      refreshAll();
    } catch (problem) {
      fail(problem.message);
    }
  }

  return () => poll.stop();
}

/** Return letters without inputs that reading the past found malformed once more. */
function unlike(letters) {
  const readers = new Map();
  return letters.filter(({ reason, received_at, query, tuple, raw }) => {
    const key = JSON.stringify([reason, received_at, tuple, raw]);
    if (!readers.has(key)) readers.set(key, query);
    return reason !== "malformed" || readers.get(key) === query;
  });
}

function table(caption, headings, body, kind = null) {
  return el(
    "table",
    { class: kind },
    el("caption", { class: "hidden" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        headings.map((title) => el("th", { scope: "col" }, title)),
      ),
    ),
    body,
  );
}
