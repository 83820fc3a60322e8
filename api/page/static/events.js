// Server-sent events read with fetch, which can carry a key; EventSource cannot.

import { Problem, request, Unreachable, withParameters } from "./api.js";

const LONGEST_PAUSE_MS = 10_000;
const SAMPLED_PAUSE_MS = 3000;
const BREAKS = [Problem, Unreachable, TypeError]; // TypeError: a body that breaks off

/** Yield the events `{id, event, data}` of a response's body. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      yield blocks.map(eventOf).filter((event) => event.data !== null);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const event = { id: null, event: "message", data: null };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue; // a comment
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
    else if (name === "id" || name === "event") event[name] = value;
  }
  return event;
}

/**
 * Follow the rows of a query until its end or `stop()`; after a break, from the row after the last one seen.
 *
 * Calls `onRows(texts)` with JSON texts as they come, `onState` with "open", "away", "sampled", "end" or an error's
 * text. Where more than `maxPerSecond` rows come after the first `tail`, it lets go and begins again at the newest
 * `tail` some seconds later: nobody reads that many, and the service has others to serve.
 */
export function follow(id, { tail, maxPerSecond, onRows, onState }) {
  let last = null;
  let stopped = false;
  let abort = new AbortController();
  let wake = () => {};

  const pause = (ms) =>
    new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, ms);
    });

  async function once() {
    abort = new AbortController();
    const headers = last === null ? {} : { "Last-Event-ID": last };
    const path = withParameters(`/queries/${encodeURIComponent(id)}/results/stream`, { tail });
    const response = await request("GET", path, { headers, signal: abort.signal });
    let seen = last === null ? -tail : 0;
    let since = performance.now();
    onState("open");
    for await (const events of eventsOf(response)) {
      const rows = [];
      for (const event of events) {
        if (event.event === "end") {
          if (rows.length) onRows(rows);
          return "end";
        }
        if (event.event === "gap") continue; // of rows that nobody can read
        if (event.event === "failed") return JSON.parse(event.data).error;
        rows.push(event.data);
        last = event.id;
      }
      if (rows.length) onRows(rows);
      seen += rows.length;
      const seconds = (performance.now() - since) / 1000;
      if (seen > maxPerSecond * Math.max(1, seconds)) {
        last = null;
        return "sampled";
      }
      if (seconds > 1) [seen, since] = [Math.min(seen, 0), performance.now()];
    }
    return "away";
  }

  async function run() {
    let breaks = 0;
    while (!stopped) {
      let state;
      const began = performance.now();
      try {
        state = await once();
      } catch (error) {
        if (stopped) return;
        if (error instanceof Problem && error.status === 410 && last !== null) {
          last = null; // what followed has passed its retention
          continue;
        }
        if (!BREAKS.includes(error.constructor)) throw error;
        state = error instanceof Problem && error.status < 500 && error.status !== 429 ? error.message : "away";
      }
      if (stopped) return;
      onState(state);
      if (state === "sampled") await pause(SAMPLED_PAUSE_MS);
      else if (state !== "away") return;
      else {
        breaks = performance.now() - began > LONGEST_PAUSE_MS ? 0 : breaks;
        await pause(Math.min(500 * 2 ** breaks, LONGEST_PAUSE_MS));
        breaks += 1;
      }
    }
  }

  run();
  return {
    stop() {
      stopped = true;
      abort.abort();
      wake();
    },
  };
}
