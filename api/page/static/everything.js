// How all queries run: the plan of the whole service.

import { get, problemOrAway } from "./api.js";
import { el, say } from "./dom.js";
import { clockTime, plural } from "./format.js";
import { operatorText, planView } from "./plan.js";
import { every } from "./poll.js";

const MAX_CHANGES = 10;

/** What the optimizer changed in running plans, the newest first, as children of a place. */
function listOfChanges(changes, nodes) {
  if (!changes.length) return [];
  const operators = new Map(nodes.filter((node) => "queries" in node).map((node) => [node.id, operatorText(node)]));
  const nameOf = ({ operator }) => operators.get(operator) ?? "an operator that is gone";
  const newest = changes.slice(-MAX_CHANGES).reverse();
  return [
    el("h3", {}, "Changes of the plan"),
    el(
      "ul",
      { class: "changes" },
      newest.map((change) =>
        el("li", {}, `${clockTime(change.at)}, ${nameOf(change)}: ${change.why}.${measured(change)}`),
      ),
    ),
  ];
}

function measured({ measured_us_per_tuple: cost, measured_busiest_partition: partition }) {
  if (partition && partition.before !== null) {
    const [before, after] = [partition.before, partition.after].map((share) => Math.round(100 * share));
    return ` Measured: the busiest partition had ${before} % of the work before, ${after} % after.`;
  }
  return cost.before === null || cost.after === null
    ? ""
    : ` Measured: ${cost.before} µs a row before, ${cost.after} µs after.`;
}

/** Show the whole plan in `panel`; returns what ends that. */
export function showEverything(panel) {
  const note = el("p", { class: "why" });
  const label = "Plan of everything that runs";
  const view = planView(label);
  const changes = el("div", {});
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "shown-title" }, "Plan of everything")),
    note,
    view.node,
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
      view.node.hidden = operators.length === 0;
      if (operators.length) view.show(graph, label);
      changes.replaceChildren(...listOfChanges(graph.changes ?? [], graph.nodes));
    } catch (error) {
      const problem = problemOrAway(error);
      if (problem) say(note, problem.message);
    }
  });
  return poll.stop;
}
