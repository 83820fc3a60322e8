// What the lists of streams and of queries have in common: headings, and a first cell with a link and lines below it.

import { el } from "./dom.js";
import { sparkline } from "./sparkline.js";

/** Return the table of a list; `headings` are `[title, kind]`, titles texts or elements; one without a title is of a trend. */
export function listing(name, headings, body) {
  const cells = headings.map(([title, kind]) =>
    el("th", { scope: "col", class: kind }, title || el("span", { class: "hidden" }, "Trend")),
  );
  return el("table", { class: name, hidden: true }, el("thead", {}, el("tr", {}, cells)), body);
}

/** Return the first cell of a row: a link with a tag beside it, and `lines` below. */
export function nameCell(href, name, text, ...lines) {
  const link = el("a", { href, title: name }, text);
  return el("th", { scope: "row" }, el("span", { class: "over" }, link, " ", el("span", { class: "tag" })), " ", lines);
}

/** Return a cell with a number. */
export const numberCell = () => el("td", { class: "number" });

/** Return a cell with a trend. */
export const trendCell = () => el("td", { class: "trend" }, sparkline());
