// Numbers, times and durations as people read them. Times are UTC, as everywhere in Braid.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const NONE = "–";

/** A count: exact up to 9,999, then 12.3K. */
export function count(value) {
  if (value === null || value === undefined) return NONE;
  return Math.abs(value) < 10_000 ? grouped.format(Math.round(value)) : compact.format(value);
}

/** A measure on an axis or in a legend. */
export function measure(value) {
  return Math.abs(value) < 10_000 ? grouped.format(value) : compact.format(value);
}

/** Seconds: 0.56 s, 12 s, 3 min, 2 h, 4 d. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const size = Math.abs(seconds);
  if (size < 9.995) return `${seconds.toFixed(2)} s`;
  if (size < 120) return `${Math.round(seconds)} s`;
  if (size < 7200) return `${Math.round(seconds / 60)} min`;
  if (size < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** A length that somebody has chosen, whole: 2 s, 1.5 s, 10 min, 1 h. */
export function span(seconds) {
  const [unit, size] = [
    ["h", 3600],
    ["min", 60],
  ].find(([, each]) => seconds % each === 0) ?? ["s", 1];
  return `${seconds / size} ${unit}`;
}

/** How long ago: 1.47 s ago. */
export const ago = (seconds) => (seconds === null ? NONE : `${duration(Math.max(0, seconds))} ago`);

const RECORDED = 86_400;

/** How far a time lies behind now, in seconds; null without a time, and for one of recorded data, a day off or more. */
export function secondsBehind(iso) {
  const seconds = iso ? (Date.now() - Date.parse(iso)) / 1000 : null;
  return seconds !== null && Math.abs(seconds) < RECORDED ? seconds : null;
}

/** The time of an RFC 3339 text: 21:53:52.25, with the date in front when it is not today's. */
export function clockTime(iso) {
  if (!iso) return NONE;
  const [date, rest] = iso.split("T");
  const time = rest
    .replace(/Z$/, "")
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "");
  return date === new Date().toISOString().slice(0, 10) ? time : `${date} ${time}`;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

/** Whether a value of a row is a TIMESTAMP. */
export const isTime = (value) => typeof value === "string" && TIME.test(value);

const EXACT = 1e15; // a double has so many digits

/** A value of a row, whole: nothing is rounded but what a double cannot hold anyway; a DECIMAL has its `scale`. */
export function cell(value, scale) {
  if (value === null || value === undefined) return "NULL";
  if (isTime(value)) return clockTime(value);
  if (typeof value === "number" && scale !== undefined && Math.abs(value) < EXACT / 10 ** scale) return value.toFixed(scale);
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(12)));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** "1 query", "3 queries". */
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

/** Return a state such as CATCHING_UP in words. */
export function inWords(state) {
  return state.toLowerCase().replaceAll("_", " ");
}

/** Return the state of a query, with how far it has caught up. */
export function stateOf(query) {
  const fractions = Object.values(query.progress ?? {}).map((progress) => progress.fraction ?? 0);
  const caughtUp = fractions.length ? `, ${Math.floor(100 * Math.min(...fractions))} %` : "";
  return inWords(query.state) + caughtUp;
}
