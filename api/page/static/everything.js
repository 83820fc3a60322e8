// How all queries run: the plan of the whole service.

import { get, problemOrAway } from "./api.js";
import { el, say } from "./dom.js";
import { plural } from "./format.js";
import { showGraph } from "./plan.js";
import { every } from "./poll.js";

/** Show the whole plan in `panel`; returns what ends that. */
export function showEverything(panel) {
  const note = el("p", { class: "why" });
  const place = el("div", {});
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "shown-title" }, "Plan of everything")),
    note,
    place,
  );
  let shown = null;
  const poll = every(4, async () => {
    try {
      const graph = await get("/plan");
      const text = JSON.stringify(graph);
      if (text === shown) return;
      shown = text;
      const operators = graph.nodes.filter((node) => "queries" in node);
      const queries = operators.reduce((sum, node) => sum + node.queries, 0);
      say(
        note,
        operators.length
          ? `${plural(queries, "query", "queries")} in ${plural(operators.length, "operator", "operators")}.`
          : "Nothing runs yet.",
      );
      if (operators.length) showGraph(place, graph, "Plan of everything that runs");
      else place.replaceChildren();
    } catch (error) {
      const problem = problemOrAway(error);
      if (problem) say(note, problem.message);
    }
  });
  return poll.stop;
}
