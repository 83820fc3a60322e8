// Rows as they come: the newest on top, a few hundred of them.

import { el, keyed } from "./dom.js";
import { cell, isTime } from "./format.js";

const SHOWN = 200;
const HARDLY_WIDER = 24; // pixels: no column is hidden by fewer

/** Return `{node, notes, add(rows), describe(layout), clear()}`: a table of the newest rows that can be moved sideways, and what to know of it. */
export function rowsTable(nothing) {
  let columns = [];
  let rows = [];
  let number = 0;
  let scales = new Map();
  const head = el("tr");
  const body = el("tbody");
  const table = el(
    "table",
    { class: "rows", hidden: true },
    el("caption", { class: "hidden" }, "The newest rows, the last one first; times are UTC"),
    el("thead", {}, head),
    body,
  );

  function line({ row }) {
    const partial = row._partial === true;
    return el(
      "tr",
      { "data-partial": partial, "data-op": row._op ?? null },
      columns.map((name) => {
        const value = row[name];
        return el("td", { class: kindOf(value), title: isTime(value) ? value : null }, cell(value, scales.get(name)));
      }),
    );
  }

  function show() {
    keyed(
      body,
      rows,
      (each) => each.key,
      line,
      () => {},
    );
  }

  const more = el("p", { class: "note newest", hidden: true }, `The newest ${SHOWN} rows; “braid results” has all that are kept.`);
  const wide = el("p", { class: "note newest", hidden: true }, "More columns on the right: scroll the table sideways.");
  const node = el(
    "div",
    { class: "scroll rows-scroll", role: "group", "aria-label": "Rows", tabindex: "0" },
    table,
    nothing,
  );
  const sizes = new ResizeObserver(() => {
    wide.hidden = node.scrollWidth - node.clientWidth < HARDLY_WIDER;
  });
  sizes.observe(node);
  sizes.observe(table);

  return {
    node,
    notes: [more, wide],
    add(came) {
      if (rows.length + came.length > SHOWN) more.hidden = false;
      table.hidden = false;
      const names = Object.keys(came.at(-1));
      if (names.join() !== columns.join()) {
        columns = names;
        const last = came.at(-1);
        head.replaceChildren(
          ...names.map((name) =>
            el("th", { scope: "col", class: kindOf(last[name]) === "number" ? "number" : null }, name),
          ),
        );
      }
      rows = [
        ...came
          .slice(-SHOWN)
          .map((row) => ({ row, key: ++number }))
          .reverse(),
        ...rows,
      ].slice(0, SHOWN);
      show();
    },
    /** Take what is known of the columns; rows that are shown already are written anew. */
    describe(layout) {
      const known = [...scales].join() === [...layout.scales].join();
      scales = layout.scales;
      if (known) return;
      body.replaceChildren();
      show();
    },
    clear() {
      rows = [];
      more.hidden = true;
      body.replaceChildren();
    },
  };
}

function kindOf(value) {
  if (value === null) return "null";
  if (typeof value === "number" || typeof value === "bigint") return "number";
  return value === false ? "no" : null;
}
