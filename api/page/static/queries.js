// The list of queries, the newest first or sorted by a column: paged, filtered by state and by text of name and SQL.

import { get, withParameters } from "./api.js";
import { byId, el, keyed, say, set } from "./dom.js";
import { count, duration, inWords, stateOf } from "./format.js";
import { listing, nameCell, numberCell, trendCell } from "./listing.js";
import { sorting } from "./sorting.js";
import { draw, History } from "./sparkline.js";

const SELDOM = ["CATCHING_UP", "PAUSED", "FINISHED"];
const STATES = ["RUNNING", "CATCHING_UP", "PENDING", "PAUSED", "DRAINING", "FAILED", "FINISHED", "RETIRED"];
const PAGE = 50;
const TYPING_MS = 300;
const GREATEST_FIRST = ["rows", "latency"];

/**
 * Return `{load(sharers), showCounts(numbers), reveal(query), opened(query), select(id)}`; on another filter or page
 * `changed` is called.
 */
export function queriesPanel(changed) {
  let state = "RUNNING";
  let text = "";
  let cursors = [null];
  let selected = null;
  const history = new History();
  const body = el("tbody");
  const sorted = sorting(GREATEST_FIRST, restart);
  const headings = [
    [sorted.heading("Query", "name"), null],
    [sorted.heading("State", "state"), null],
    [sorted.heading("Rows", "rows"), "number"],
    [sorted.heading("Latency", "latency"), "number"],
    ["", "trend"],
    ["Shares with", "number"],
  ];
  const table = listing("queries", headings, body);
  const empty = el("p", { class: "empty", hidden: true });
  byId("queries").append(table, empty);
  const choices = new Map(["", ...STATES].map((each) => [each, choice(each)]));
  byId("query-states").append(...choices.values());
  let typing = null;
  byId("query-text").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      text = event.target.value.trim();
      restart();
    }, TYPING_MS);
  });
  byId("page-before").addEventListener("click", () => turn(() => cursors.pop()));
  let next = null;
  byId("page-after").addEventListener("click", () => turn(() => cursors.push(next)));

  function choice(value) {
    const input = el("input", {
      type: "radio",
      name: "state",
      value,
      onchange: () => {
        state = value;
        restart();
      },
    });
    input.checked = value === state;
    const title = value ? value[0] + inWords(value).slice(1) : "All";
    return el(
      "label",
      { hidden: SELDOM.includes(value) }, // shown where there is such a state
      input,
      el("span", {}, title),
      el("span", { class: "count" }),
    );
  }

  function restart() {
    cursors = [null];
    changed();
  }

  function turn(how) {
    how();
    byId("queries").scrollTop = 0;
    changed();
  }

  /** Show how many queries are in each state; states that this service does not know are left out. */
  function showCounts(numbers) {
    for (const [value, label] of choices) {
      if (!value) continue;
      label.hidden = SELDOM.includes(value) && !numbers.has(value);
      say(label.lastElementChild, numbers.has(value) ? count(numbers.get(value)) : "");
    }
  }

  /** Load the page of the list that is looked at; `sharers` is how many queries each operator has. */
  async function load(sharers) {
    const order = sorted.order() ?? "newest";
    const looked = () => JSON.stringify([state, text, cursors, sorted.order()]);
    const asked = looked();
    const page = await get(withParameters("/queries", { state, text, order, limit: PAGE, cursor: cursors.at(-1) }));
    if (asked !== looked()) return; // another one is looked at by now
    next = page.cursor;
    const { queries } = page;
    history.keep(queries.map((query) => query.id));
    keyed(
      body,
      queries,
      (query) => query.id,
      row,
      (node, query) => {
        update(node, query, sharers, history.add(query.id, query.event_time_latency_seconds));
        mark(node);
      },
    );
    table.hidden = queries.length === 0;
    empty.hidden = queries.length > 0;
    say(empty, nothing());
    byId("query-pager").hidden = cursors.length === 1 && next === null;
    byId("page-before").disabled = cursors.length === 1;
    byId("page-after").disabled = next === null;
    say(byId("page-before"), order === "newest" ? "Newer" : "Before");
    say(byId("page-after"), order === "newest" ? "Older" : "After");
    const ids = order === "newest" && queries.length ? `: ${queries[0].id} to ${queries.at(-1).id}` : "";
    say(byId("page-place"), `Page ${cursors.length}${ids}`);
  }

  /** List queries of all states where a query would be hidden by the filters. */
  function reveal(query) {
    if ((!state || state === query.state) && !text) return;
    if (state !== query.state) state = "";
    choices.get(state).firstElementChild.checked = true;
    text = byId("query-text").value = "";
    cursors = [null];
  }

  /** Mark the query that is shown; one of a state that is not listed is revealed, so call this once for each. */
  function opened(query) {
    select(query.id);
    const isListed = [...body.children].some((node) => node.dataset.key === query.id);
    if (isListed || !state || state === query.state) return;
    reveal(query);
    changed();
  }

  function nothing() {
    const others = state && othersAreThere() ? " “All” looks at the others." : "";
    const where = next ? " on this page" : "";
    if (text) return `No query ${state ? `that is ${state} ` : ""}has “${text}” in its name or SQL${where}.${others}`;
    if (!state) return "No query yet. Write one in the SQL editor.";
    return `No query is ${state}.${others}`;
  }

  function othersAreThere() {
    return [...choices.values()].some((label) => !["", "0"].includes(label.lastElementChild.textContent));
  }

  function mark(node) {
    const here = node.dataset.key === selected;
    set(node, "data-selected", here);
    set(node.querySelector("a"), "aria-current", here ? "true" : null);
  }

  function select(id) {
    selected = id;
    for (const node of body.children) mark(node);
  }

  return { load, showCounts, reveal, opened, select };
}

function row(query) {
  return el(
    "tr",
    {},
    nameCell(`#/queries/${query.id}`, query.name, query.name ?? query.id, el("span", { class: "under sql" })),
    el("td", {}, el("span", { class: "state" })),
    numberCell(),
    numberCell(),
    trendCell(),
    numberCell(),
  );
}

function update(node, query, sharers, trend) {
  const [head, state, rows, latency, line, sharing] = node.children;
  const [over, sql] = head.children;
  const tag = over.lastElementChild;
  say(
    tag,
    [query.name ? query.id : null, query.subquery ? "subquery" : null, query.tenant].filter(Boolean).join(" · "),
  );
  tag.hidden = tag.textContent === "";
  say(sql, query.sql.replace(/\s+/g, " "));
  set(sql, "title", query.sql);
  say(state.firstElementChild, stateOf(query));
  set(state.firstElementChild, "data-state", query.state.toLowerCase());
  set(state.firstElementChild, "title", query.error);
  set(state.firstElementChild, "data-warn", Boolean(query.error));
  say(rows, count(query.rows_out));
  say(latency, duration(query.event_time_latency_seconds));
  draw(line.firstElementChild, trend);
  const together = ["RUNNING", "CATCHING_UP", "DRAINING"].includes(query.state)
    ? sharers.get(query.operator)
    : undefined;
  say(sharing, together === undefined ? "–" : count(Math.max(0, together - 1)));
}
