// How many queries are in each state, from the metrics.

import { request, textOf } from "./api.js";

/** Return the number of queries by state. */
export async function countsByState() {
  const text = await textOf(await request("GET", "/metrics"));
  const found = text.matchAll(/^braid_queries\{[^}\n]*state="(\w+)"[^}\n]*\} (\S+)$/gm);
  const numbers = new Map();
  for (const [, state, value] of found) numbers.set(state, (numbers.get(state) ?? 0) + Number(value));
  return numbers;
}
