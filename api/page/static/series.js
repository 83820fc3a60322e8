// Rows as series of points: which column is time, which is measured, and which tells series apart.

import { cell, isTime } from "./format.js";

const KEPT = 4000;
const WINDOWS = 60;
const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

/** The newest rows of a query, and how they are looked at. */
export class Series {
  #rows = [];
  #columns = [];
  #keys = [];
  measure = null;
  by = null;

  /** Learn by which columns the query groups, as its plan writes them. */
  group(written) {
    const keys = written.map((key) => key.replace(/^"(.*)"$/, (_, name) => name.replaceAll('""', '"')));
    if (keys.join() === this.#keys.join()) return;
    this.#keys = keys;
    this.#choose();
  }

  /** Add rows, the oldest first. Retractions are not values. */
  add(rows) {
    const at = Date.now();
    this.#rows.push(...rows.filter((row) => row._op !== "retract").map((row) => ({ row, at })));
    this.#rows = this.#rows.slice(-KEPT);
    const names = Object.keys(rows.at(-1)).filter(
      (name) => !name.startsWith("_") && !/^window_(start|end)$/.test(name),
    );
    if (names.join() !== this.#columns.join()) {
      this.#columns = names;
      this.#choose();
    }
  }

  clear() {
    this.#rows = [];
  }

  /** Whether values belong to windows: then they are joined by lines. */
  get windowed() {
    return this.#rows.length > 0 && "window_end" in this.#rows.at(-1).row;
  }

  get numbers() {
    return this.#columns.filter((name) => this.#sample(name).some(isNumber));
  }

  /** What lines can be told apart by: the columns of the groups together, and single columns. */
  get others() {
    const groups = this.#known;
    return groups.length > 1 ? [groups.join(", "), ...this.#single] : this.#single;
  }

  get #single() {
    return this.#columns.filter((name) => name !== this.measure && !this.#sample(name).some(isTime));
  }

  /** The columns that the query groups by; where some have another name there, all that are no numbers. */
  get #known() {
    const named = this.#columns.filter((name) => this.#keys.includes(name));
    if (named.length === this.#keys.length) return named;
    const numbers = this.numbers;
    return this.#single.filter((name) => named.includes(name) || !numbers.includes(name));
  }

  #columnsOf(by) {
    return by === this.#known.join(", ") ? this.#known : [by];
  }

  #sample(name) {
    return this.#rows.slice(-50).map(({ row }) => row[name]);
  }

  #choose() {
    const known = this.#known;
    const numbers = this.numbers;
    const fractions = numbers.filter((name) =>
      this.#sample(name).some((value) => isNumber(value) && !Number.isInteger(Number(value))),
    );
    const free = numbers.filter((name) => !known.includes(name));
    this.measure = free.find((name) => fractions.includes(name)) ?? free.at(-1) ?? numbers.at(-1) ?? null;
    const groups = known.length ? known.join(", ") : this.others.find((name) => !numbers.includes(name));
    this.by = this.windowed ? (groups ?? null) : null;
  }

  /** Return `[{name, points: [{x, y, partial}…]}…]`, by name; of each window the newest value counts. */
  points() {
    const found = new Map();
    const time = this.windowed ? "window_end" : this.#columns.find((name) => this.#sample(name).some(isTime));
    for (const { row, at } of this.#rows) {
      if (!isNumber(row[this.measure])) continue;
      const name = this.by === null ? this.measure : this.#columnsOf(this.by).map((column) => cell(row[column])).join(", ");
      const x = time && row[time] ? Date.parse(row[time]) : at;
      const of = found.get(name) ?? found.set(name, new Map()).get(name);
      const key = this.windowed ? x : of.size;
      of.set(key, { x, y: Number(row[this.measure]), partial: row._partial === true });
    }
    const all = [...found].map(([name, points]) => ({ name, points: [...points.values()].sort((a, b) => a.x - b.x) }));
    const xs = [...new Set(all.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
    const from = this.windowed ? xs.at(-WINDOWS) : undefined;
    return all
      .map(({ name, points }) => ({ name, points: from === undefined ? points : points.filter(({ x }) => x >= from) }))
      .filter(({ points }) => points.length)
      .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  }
}
