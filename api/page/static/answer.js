// What a statement answered, when it is neither a query nor a stream to look at: SHOW, EXPLAIN, DROP.

import { byId, el } from "./dom.js";
import { cell } from "./format.js";
import { planView } from "./plan.js";

const PLAN = "Plan of the statement";

/** Show an answer below the editor; null clears it. */
export function showAnswer(answer) {
  const place = byId("answer");
  if (answer === null) return place.replaceChildren();
  const close = el("button", { type: "button", class: "quiet", onclick: () => showAnswer(null) }, "Close");
  const graph = answer.nodes ? answer : answer.plan;
  const holder = (node) =>
    place.replaceChildren(el("div", { class: "answer" }, el("div", { class: "actions" }, close), node));
  if (graph?.nodes) {
    const view = planView(PLAN);
    holder(view.node);
    return view.show(graph, PLAN, answer.why ? [answer.why] : []);
  }
  const listed = Object.values(answer).find(
    (value) => Array.isArray(value) && value.every((each) => typeof each === "object"),
  );
  if (listed) return holder(listTable(listed));
  return holder(
    el("pre", { class: "sql-text", tabindex: "0", "aria-label": "Answer" }, JSON.stringify(answer, null, 2)),
  );
}

function listTable(items) {
  if (!items.length) return el("p", { class: "empty" }, "There is none.");
  const names = Object.keys(items[0]).filter((name) =>
    items.some((item) => item[name] !== null && typeof item[name] !== "object"),
  );
  return el(
    "div",
    { class: "scroll", role: "group", "aria-label": "Answer", tabindex: "0" },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          names.map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el(
        "tbody",
        {},
        items.map((item) =>
          el(
            "tr",
            {},
            names.map((name) => el("td", {}, item[name] === null ? "–" : cell(item[name]))),
          ),
        ),
      ),
    ),
  );
}
