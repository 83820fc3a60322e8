// Requests to the service: the key, problems (RFC 9457), and JSON whose big integers stay whole.

import { askForKey, storedKey } from "./key.js";

/** What the service answered instead of what was asked for. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? `The service answered ${status}.`);
    this.status = status;
    this.title = document.title ?? "Refused";
    this.position = document.position ?? null;
  }
}

/** The service does not answer at all. */
export class Unreachable extends Error {}

/** Send a request and return its good response; raises Problem or Unreachable. Asks for a key where one is wanted. */
export async function request(method, path, { body, headers = {}, signal } = {}) {
  for (;;) {
    const key = storedKey();
    const all = { ...headers };
    if (key) all.Authorization = `Bearer ${key}`;
    if (body !== undefined) all["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(new URL(path.slice(1), document.baseURI), {
        method,
        headers: all,
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        signal,
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable("Braid does not answer.");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw new Problem(response.status, await documentOf(response));
    await askForKey(key);
  }
}

async function documentOf(response) {
  try {
    return await response.json();
  } catch {
    return { detail: `The service answered ${response.status} ${response.statusText}.` };
  }
}

/** Return the text of a response; Unreachable when it breaks off. */
export async function textOf(response) {
  try {
    return await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("Braid does not answer.");
  }
}

/** Return the problem that an error is, null when the service does not answer; anything else is a defect here. */
export function problemOrAway(error) {
  if (error instanceof Problem) return error;
  if (error instanceof Unreachable) return null;
  throw error;
}

/** Send a request and return the JSON of its answer, null for none. */
export async function json(method, path, options) {
  const text = await textOf(await request(method, path, options));
  return text ? parse(text) : null;
}

export const get = (path, options) => json("GET", path, options);
export const post = (path, body, options) => json("POST", path, { ...options, body });

const MANY_DIGITS = /\d{16}/;

/** Parse JSON; an integer that a double cannot hold becomes a BigInt, where the browser can tell. */
export function parse(text) {
  if (!MANY_DIGITS.test(text)) return JSON.parse(text); // several times faster than with a reviver
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );
}

/** Return a path with its parameters, without those that are empty. */
export function withParameters(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
