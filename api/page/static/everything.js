// How all queries run: the plan of the whole service.

import { get, problemOrAway } from "./api.js";
import { el, say } from "./dom.js";
import { clockTime, plural } from "./format.js";
import { showGraph } from "./plan.js";
import { every } from "./poll.js";

const MAX_CHANGES = 10;

/** What the optimizer changed in running plans, the newest first, as children of a place. */
function listOfChanges(changes) {
  if (!changes.length) return [];
  const newest = changes.slice(-MAX_CHANGES).reverse();
  return [
    el("h3", {}, "Changes of the plan"),
    el(
      "ul",
      { class: "changes" },
      newest.map((change) => el("li", {}, `${clockTime(change.at)}, ${change.operator}: ${change.why}.${measured(change)}`)),
    ),
  ];
}

function measured({ measured_us_per_tuple: cost, measured_busiest_partition: partition }) {
  if (partition && partition.before !== null) {
    const [before, after] = [partition.before, partition.after].map((share) => Math.round(100 * share));
    return ` Measured: the busiest partition had ${before} % of the work before, ${after} % after.`;
  }
  return cost.before === null || cost.after === null ? "" : ` Measured: ${cost.before} µs a row before, ${cost.after} µs after.`;
}

/** Show the whole plan in `panel`; returns what ends that. */
export function showEverything(panel) {
  const note = el("p", { class: "why" });
  const place = el("div", {});
  const changes = el("div", {});
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "shown-title" }, "Plan of everything")),
    note,
    place,
    changes,
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
      changes.replaceChildren(...listOfChanges(graph.changes ?? []));
    } catch (error) {
      const problem = problemOrAway(error);
      if (problem) say(note, problem.message);
    }
  });
  return poll.stop;
}
