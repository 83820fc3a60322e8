// What the editor must know of SQL: the colours of words, and which statement it is. The service knows the rest.

import { el } from "./dom.js";

const KEYWORDS = new Set(
  `ALL AND ANTI AS BETWEEN BIGINT BOOLEAN BY CASE CAST CREATE DATE DAY DECIMAL DELAY DESCRIBE DESCRIPTOR DISTINCT DOUBLE DROP ELSE
  EMIT END EXISTS EXPLAIN FALSE FROM GROUP HAVING HOP HOUR IF IN INNER INT INTERVAL IS JOIN LATENESS LEFT LIKE METADATA
  MINUTE MINUTES NOT NULL ON OR OUTER PARTITION QUERIES QUERY RANGE SECOND SECONDS SELECT SESSION SHOW SLIDE STREAM STREAMS
  TABLE TABLES THEN TIMESTAMP TRUE TUMBLE USING VARCHAR WATERMARK WHEN WHERE WITH AFTER HOURS DAYS`.split(/\s+/),
);
const TOKEN =
  /--[^\n]*|\/\*[^]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|\d+(?:\.\d+)?|[\p{L}_][\p{L}\p{N}_]*|\s+|[^]/gu;

/** Return the tokens of a text: `{text, kind, at}`, `at` in code points as the service counts them. */
export function tokens(text) {
  let at = 0;
  return (text.match(TOKEN) ?? []).map((token) => {
    const found = { text: token, kind: kindOf(token), at };
    at += [...token].length;
    return found;
  });
}

function kindOf(token) {
  if (/^(--|\/\*)/.test(token)) return "comment";
  if (token.startsWith("'")) return "string";
  if (/^\d/.test(token)) return "literal";
  return isKeyword(token) ? "keyword" : null;
}

/** Whether a word is one of SQL. */
export const isKeyword = (word) => KEYWORDS.has(word.toUpperCase());

/** Return the place of `{line, column}`, both from 1, in code points. */
export function offsetOf(text, position) {
  const lines = text.split("\n");
  const before = lines.slice(0, position.line - 1).reduce((sum, line) => sum + [...line].length + 1, 0);
  return Math.min(before + position.column - 1, [...text].length);
}

/** Return the coloured text, with the token at `wrong` (code points; null for none) marked. */
export function coloured(text, wrong) {
  const parts = [];
  let marked = wrong === null;
  for (const token of tokens(text)) {
    const end = token.at + [...token.text].length;
    const here = !marked && wrong < end && token.text.trim() !== "";
    marked ||= here;
    const inner = token.kind ? el("span", { class: token.kind }, token.text) : token.text;
    parts.push(here ? el("mark", {}, inner) : inner);
  }
  if (!marked) parts.push(el("mark", { class: "end" }, " ")); // it breaks where the text ends
  parts.push("\n"); // a last line that is empty has its height, too
  return parts;
}

/** Whether a statement is one that POST /queries takes, and /queries/validate can judge. */
export const isQuery = (text) => /^\s*(select|with|create\s+query)\b/i.test(withoutComments(text));

/** Whether a statement shows what there is already. */
export const isDescription = (text) => /^\s*desc(ribe)?\b/i.test(withoutComments(text));

/** Whether there is any statement. */
export const isEmpty = (text) => withoutComments(text).trim() === "";

const withoutComments = (text) => text.replace(/--[^\n]*|\/\*[^]*?\*\//g, " ");
