// The static tables: what they have, and reading their files anew.

import { get, post, problemOrAway } from "./api.js";
import { byId, el, keyed, say, set } from "./dom.js";
import { clockTime, count, plural } from "./format.js";
import { listing } from "./listing.js";

const HEADINGS = [
  ["Table", null],
  ["Read", null],
  ["Queries", "number"],
  ["Action", "action"],
];

/** Return `{load()}`, which shows the tables there are; the panel is hidden while there are none. */
export function tablesPanel(announce) {
  const body = el("tbody");
  const table = listing("tables", HEADINGS, body);
  const trouble = el("p", { class: "problem", role: "alert", hidden: true });
  byId("tables").append(table, trouble);

  async function load() {
    const { tables } = await get("/tables");
    byId("tables-panel").hidden = tables.length === 0;
    table.hidden = tables.length === 0;
    say(byId("tables-note"), plural(tables.length, "table", "tables"));
    keyed(body, tables, (each) => each.id, row, update);
  }

  function row({ name }) {
    const refresh = el("button", { type: "button", class: "quiet", onclick: () => readAgain(name) }, "Refresh");
    set(refresh, "aria-label", `Refresh ${name}`);
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, el("span", { class: "over" }, name), " ", el("span", { class: "under columns" })),
      el("td"),
      el("td", { class: "number" }),
      el("td", { class: "action" }, refresh),
    );
  }

  async function readAgain(name) {
    trouble.hidden = true;
    try {
      await post(`/tables/${encodeURIComponent(name)}/refresh`);
      announce(`Table ${name} is read anew.`);
      await load();
    } catch (error) {
      const problem = problemOrAway(error);
      say(trouble, problem?.message ?? "Braid does not answer; try again.");
      trouble.hidden = false;
    }
  }

  return { load };
}

function update(node, { columns, refreshed_at: at, created_at: created, refreshing, queries }) {
  const [head, read, users] = node.children;
  const text = columns.map((column) => `${column.name} ${column.type}`).join(", ");
  say(head.lastElementChild, text);
  set(head.lastElementChild, "title", text);
  say(read, refreshing ? "reading" : clockTime((at ?? created).replace(/\.\d+/, "")));
  say(users, count(queries));
}
