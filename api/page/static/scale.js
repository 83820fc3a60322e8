// Where values lie on an axis, and which of them are written beside it.

const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400];

/** Return a function from `[low, high]` to `[from, to]`. */
export function linear(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

/** Return round values from at most `low` to at least `high`, about `count` of them. */
export function roundTicks(low, high, count) {
  const raw = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const ticks = [];
  for (let tick = Math.floor(low / step); ; tick += 1) {
    ticks.push(Number((tick * step).toPrecision(12)));
    if (tick * step >= high) return ticks.length > 1 ? ticks : [...ticks, Number(((tick + 1) * step).toPrecision(12))];
  }
}

/** Return round times (milliseconds) between two, at most `count` of them. */
export function timeTicks(low, high, count) {
  const wanted = (high - low) / 1000 / Math.max(1, count);
  const step = (SECONDS.find((seconds) => seconds >= wanted) ?? Math.ceil(wanted / 86_400) * 86_400) * 1000;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

const DAY = 86_400_000;

/** Return a time (milliseconds) as it stands on an axis of a length: with its date where that is a day or more. */
export function timeText(ms, span) {
  const text = new Date(ms).toISOString();
  if (span < DAY) return text.slice(11, 19);
  return ms % DAY ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(0, 10);
}
