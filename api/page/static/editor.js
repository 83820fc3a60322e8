// Where SQL is written: coloured, judged by the service while it is typed, errors marked where they are.

import { post, problemOrAway } from "./api.js";
import { byId, el, say, set } from "./dom.js";
import { coloured, isEmpty, isQuery, offsetOf } from "./sql.js";

const PAUSE_MS = 250;

/** Set the editor up; `run(sql, { name, start })` carries a statement out; of a query, what is not said is left out. */
export function editor(run) {
  const text = byId("sql");
  const colours = byId("colours");
  const verdict = byId("verdict");
  const button = byId("run");
  const name = byId("new-name");
  const start = byId("new-start");
  let timer = null;
  let judging = null;

  const paint = (wrong = null) => colours.replaceChildren(...coloured(text.value, wrong));

  /** Say what is thought of the text: "", "good" or "bad", and where it breaks. */
  function judge(kind, message, position = null) {
    set(text, "aria-invalid", kind === "bad" ? "true" : null);
    set(verdict, "data-kind", kind);
    const wrong = position ? offsetOf(text.value, position) : null;
    paint(wrong);
    if (!position) return say(verdict, message);
    const go = el(
      "button",
      { type: "button", class: "link", onclick: () => goTo(wrong) },
      `Line ${position.line}, column ${position.column}`,
    );
    verdict.replaceChildren(go, el("span", {}, ` ${message}`));
  }

  function goTo(place) {
    const unit = [...text.value].slice(0, place).join("").length; // a textarea counts UTF-16 units
    text.focus();
    text.setSelectionRange(unit, unit);
  }

  function refused(problem) {
    judge("bad", problem.message, problem.position);
  }

  async function validate() {
    judging?.abort();
    const sql = text.value;
    if (isEmpty(sql)) return judge("", "");
    if (!isQuery(sql)) return judge("", "Not a query: it is checked when it runs.");
    judging = new AbortController();
    try {
      const plan = await post("/queries/validate", { sql }, { signal: judging.signal });
      const columns = plan.columns.filter((column) => !column.name.startsWith("_")).map((column) => column.name);
      judge("good", `${plan.why} Columns: ${columns.join(", ")}.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      const problem = problemOrAway(error);
      if (problem) refused(problem);
      else judge("", "It could not be checked: Braid does not answer.");
    }
  }

  function typed() {
    paint();
    set(verdict, "data-kind", "");
    clearTimeout(timer);
    timer = setTimeout(validate, PAUSE_MS);
  }

  async function submit() {
    if (button.disabled || isEmpty(text.value)) return;
    clearTimeout(timer);
    judging?.abort();
    button.disabled = true;
    say(button, "Running …");
    try {
      const said = { name: name.value.trim(), start: start.value };
      const done = await run(text.value, Object.fromEntries(Object.entries(said).filter(([, value]) => value)));
      judge("good", done);
      name.value = "";
    } catch (error) {
      const problem = problemOrAway(error);
      if (!problem) judge("bad", error.message);
      else refused(problem);
      if (problem?.position) goTo(offsetOf(text.value, problem.position));
    } finally {
      button.disabled = false;
      say(button, "Run");
    }
  }

  text.addEventListener("input", typed);
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  byId("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      submit();
    }
  });
  paint();

  return {
    /** Put a text in and have it judged. */
    write(sql) {
      text.value = sql;
      paint();
      validate();
      text.focus();
      text.setSelectionRange(sql.length, sql.length);
    },
    /** Judge again: streams have changed. */
    recheck() {
      if (verdict.dataset.kind === "bad") validate();
    },
  };
}
