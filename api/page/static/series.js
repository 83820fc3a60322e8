// The newest rows of a query as points: of each window and group the newest value, or each row by itself.

import { cell } from "./format.js";

const KEPT = 20_000;
const SPARE = 2000;
const byName = new Intl.Collator("en", { numeric: true });
const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

/** Rows as they came, the oldest first, up to KEPT of them. */
export class Series {
  #rows = [];
  #times = new Map(); // of texts: rows of a window have the same

  add(rows) {
    const at = Date.now();
    for (const row of rows) this.#rows.push({ row, at });
    if (this.#rows.length > KEPT + SPARE) this.#rows = this.#rows.slice(-KEPT);
  }

  clear() {
    this.#rows = [];
  }

  get length() {
    return this.#rows.length;
  }

  /**
   * Return `{groups, windows, isUnique}` of a measure by some columns of a layout (see columns.js).
   *
   * `groups` are `[{name, points: [{x, y, partial}…]}…]`, by name, points by time; `windows` are the ends of all windows.
   * Times are milliseconds. Where `by` leaves out columns that the query groups by, values are added up. Rows are not
   * unique where a window of a query without groups has several of one name.
   */
  of(layout, measure, by) {
    const [found, isUnique] =
      layout.end === null ? [this.#ofRows(layout, measure, by), true] : this.#ofWindows(layout, measure, by);
    const groups = [...found]
      .filter(([, points]) => points.length)
      .map(([name, points]) => ({ name, points: points.sort((a, b) => a.x - b.x) }))
      .sort((a, b) => byName.compare(a.name, b.name));
    const windows = new Set(groups.flatMap(({ points }) => points.map(({ x }) => x)));
    return { groups, windows: layout.end === null ? [] : [...windows].sort((a, b) => a - b), isUnique };
  }

  #ofRows({ time }, measure, by) {
    const found = new Map();
    for (const { row, at } of this.#rows) {
      if (!isNumber(row[measure]) || row._op === "retract") continue;
      const point = { x: (time && this.#timeOf(row[time])) || at, y: Number(row[measure]), partial: false };
      push(found, by.length ? nameOf(row, by) : measure, point);
    }
    return found;
  }

  #ofWindows({ end, groups, isAggregated }, measure, by) {
    let isUnique = true;
    const whole = new Map(); // by all that the query groups by: the newest value of each window
    const short = new Map();
    for (const { row } of this.#rows) {
      const name = nameOf(row, groups);
      const points = whole.get(name) ?? whole.set(name, new Map()).get(name);
      if (!short.has(name)) short.set(name, by.length === groups.length ? name : by.length ? nameOf(row, by) : measure);
      const x = this.#timeOf(row[end]);
      if (!isAggregated && row._op === undefined && points.has(x)) isUnique = false;
      if (row._op === "retract" || !isNumber(row[measure])) points.delete(x);
      else points.set(x, { x, y: Number(row[measure]), partial: row._partial === true });
    }
    const found = new Map();
    if (by.length === groups.length) {
      for (const [name, points] of whole) found.set(by.length ? name : measure, [...points.values()]);
      return [found, isUnique];
    }
    const sums = new Map();
    for (const [name, points] of whole) {
      const to = sums.get(short.get(name)) ?? sums.set(short.get(name), new Map()).get(short.get(name));
      for (const { x, y, partial } of points.values()) {
        const before = to.get(x);
        to.set(x, { x, y: y + (before?.y ?? 0), partial: partial || before?.partial === true });
      }
    }
    for (const [name, points] of sums) found.set(name, [...points.values()]);
    return [found, isUnique];
  }

  #timeOf(text) {
    if (!this.#times.has(text)) {
      if (this.#times.size > KEPT) this.#times.clear();
      this.#times.set(text, Date.parse(text));
    }
    return this.#times.get(text);
  }
}

function push(found, name, point) {
  const points = found.get(name);
  if (points) points.push(point);
  else found.set(name, [point]);
}

const nameOf = (row, columns) =>
  columns.length === 1 ? cell(row[columns[0]]) : columns.map((column) => cell(row[column])).join(", ");
