// Statements to begin with: made from the streams that are there, so that each of them runs.

import { byId, el, keyed, say, set } from "./dom.js";
import { isKeyword } from "./sql.js";

const declarations = (taken) => [
  [
    "Declare a generated stream",
    `CREATE STREAM ${free("purchases", taken)} (
  user_id BIGINT, gem_pack INT, price DOUBLE,
  time TIMESTAMP LATENESS INTERVAL '1' SECOND
) WITH (connector = 'generator', dataset = 'purchases', rate = '5000')`,
  ],
  [
    "Declare one to push to",
    `CREATE STREAM ${free("taps", taken)} (
  device VARCHAR, volts DOUBLE,
  time TIMESTAMP LATENESS INTERVAL '0' SECOND
) WITH (connector = 'push', format = 'json')`,
  ],
];

/** Return a name that no stream has yet. */
function free(name, taken) {
  for (let number = 1; ; number += 1) {
    const tried = number === 1 ? name : `${name}_${number}`;
    if (!taken.includes(tried)) return tried;
  }
}

const FRACTIONS = /^(DOUBLE|DECIMAL)/;
const NUMBERS = /^(DOUBLE|DECIMAL|INT|BIGINT)/;

/** Return `[title, sql]` of examples over a stream. */
export function examplesOf(stream) {
  const columns = stream.columns.filter((column) => !column.event_time);
  const measure = columns.find((c) => FRACTIONS.test(c.type)) ?? columns.find((c) => NUMBERS.test(c.type));
  const key = columns.find((c) => c !== measure && /^(INT|VARCHAR)/.test(c.type)) ?? columns.find((c) => c !== measure);
  const [from, by] = [quoted(stream.name), key && quoted(key.name)];
  const sum = measure ? `SUM(${quoted(measure.name)}) AS total, ` : "";
  const group = by ? ` GROUP BY ${by}` : "";
  const head = by ? `${by}, ` : "";
  const found = [
    ["Per window", `SELECT ${head}${sum}COUNT(*) AS n\nFROM ${from} [RANGE 2 SECONDS]${group}`],
    ["Sliding", `SELECT ${head}${sum}COUNT(*) AS n\nFROM ${from} [RANGE 10 SECONDS SLIDE 2 SECONDS]${group}`],
    [
      "Before it is over",
      `SELECT ${head}${sum}COUNT(*) AS n\nFROM ${from} [RANGE 1 MINUTE]${group}\nEMIT AFTER DELAY INTERVAL '2' SECONDS`,
    ],
  ];
  if (measure) {
    const selected = columns.map((column) => quoted(column.name)).join(", ");
    found.unshift(["Single rows", `SELECT ${selected}\nFROM ${from}\nWHERE ${quoted(measure.name)} > 99`]);
  }
  return found;
}

const quoted = (name) => (isKeyword(name) ? `"${name}"` : name);

let exampled = null; // the id of the stream of the examples

/**
 * Return the stream for examples: one that has rows arriving, else one that has rows, else the first.
 *
 * `rates` are rows a second by stream, null where that is not known yet. A stream that suits stays the one.
 */
function streamFor(streams, rates) {
  const worth = (stream) => (rates.get(stream.id) > 0 ? 2 : stream.tuples > 0 ? 1 : 0);
  const most = Math.max(...streams.map(worth));
  const suited = streams.filter((stream) => worth(stream) === most);
  const stream = suited.find(({ id }) => id === exampled) ?? suited[0];
  exampled = stream.id;
  return stream;
}

/** Show examples over a stream that has rows, or declarations when there is no stream. */
export function showExamples(streams, rates, write) {
  const declare = declarations(streams.map((stream) => stream.name.toLowerCase()));
  const examples = streams.length ? [...examplesOf(streamFor(streams, rates)), declare[0]] : declare;
  set(byId("examples"), "data-new", streams.length === 0);
  const create = () => el("button", { type: "button", class: "chip" });
  keyed(
    byId("examples"),
    examples,
    ([title]) => title,
    create,
    (button, [title, sql]) => {
      say(button, title);
      set(button, "title", sql);
      button.onclick = () => write(sql);
    },
  );
}
