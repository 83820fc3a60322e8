// How somebody looks at the rows of a query: form, measure, grouping and groups of the chart, kept in the address.

import { keepInAddress } from "./address.js";

export const FORMS = [
  ["lines", "Over time"],
  ["bars", "Newest window"],
  ["table", "Table"],
];
const MANY_GROUPS = 20;
const SINGLE = ["form", "measure", "by"];

/** What was chosen; null, and no groups, leave it to the rows. */
export class Choice {
  form = null;
  measure = null;
  by = null;
  groups = [];

  /** Read what the address of a query says; `parameters` are those of the address. */
  constructor(query, parameters) {
    this.query = query;
    for (const name of SINGLE) this[name] = parameters.get(name);
    this.groups = parameters.getAll("group");
  }

  /** Choose some of it, and keep that in the address. */
  choose(changes) {
    Object.assign(this, changes);
    const parameters = new URLSearchParams();
    for (const name of SINGLE) if (this[name] !== null) parameters.set(name, this[name]);
    for (const group of this.groups) parameters.append("group", group);
    keepInAddress(this.query, parameters);
  }
}

/** Return the forms that rows of a layout (see columns.js) can have. */
export function formsOf({ end, measures, groups }) {
  if (measures.length === 0) return ["table"];
  return end !== null && groups.length ? ["lines", "bars", "table"] : ["lines", "table"];
}

/** Return the form that suits rows by themselves: bars for many groups or a single window, a table for a single value. */
export function likelyForm(layout, groups, windows) {
  const forms = formsOf(layout);
  if (layout.end === null || !forms.includes("lines")) return "table";
  if (!forms.includes("bars")) return windows > 1 ? "lines" : "table";
  if (groups > MANY_GROUPS) return layout.isSession ? "table" : "bars";
  return windows > 1 || layout.isSession ? "lines" : "bars";
}

/** Return the grouping, a list of columns, that is chosen among those that a measure can have. */
export function groupingOf(layout, measure, by) {
  const all = layout.groupings(measure);
  return all.find((columns) => columns.join(", ") === by) ?? all[0];
}
