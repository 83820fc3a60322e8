// One query: its figures, its rows, its plan, and its end.

import { get, json, post, problemOrAway } from "./api.js";
import { Choice } from "./choice.js";
import { layoutOf } from "./columns.js";
import { confirmed, deletedWithReaders } from "./confirm.js";
import { definitions } from "./definitions.js";
import { el, say, set } from "./dom.js";
import { clockTime, count, duration, plural, stateOf } from "./format.js";
import { operatorText, planView } from "./plan.js";
import { every, refreshAll } from "./poll.js";
import { tabs } from "./tabs.js";
import { watch } from "./watch.js";

const MIN_SAMPLED = 256;
const ENDED = ["RETIRED", "FINISHED", "FAILED"];

/**
 * Show a query in `panel`; returns what ends that. `parameters` of the address say how its rows are looked at, `can` tells
 * which calls there are, `edit(sql)` takes its SQL, `known(query)` gets it once: the address may not have its id.
 */
export function showQuery(panel, id, parameters, { can, edit, announce, known }) {
  const title = el("h2", { id: "shown-title" }, id);
  const state = el("span", { class: "state", hidden: true });
  const tag = el("span", { class: "tag" });
  const buttons = {
    pause: el("button", { type: "button", hidden: true, onclick: () => act("pause") }, "Pause"),
    resume: el("button", { type: "button", hidden: true, onclick: () => act("resume") }, "Resume"),
    drop: el("button", { type: "button", hidden: true, onclick: drop }, "Drop"),
  };
  const copy = el("button", { type: "button", class: "quiet", onclick: () => query && edit(query.sql) }, "Edit a copy");
  const sql = el("pre", { class: "sql-text", tabindex: "0", "aria-label": "SQL of the query", hidden: true });
  const facts = el("dl", { class: "facts" });
  const error = el("p", { class: "problem", hidden: true });
  const trouble = el("p", { class: "problem", role: "alert", hidden: true });
  const graph = planView(`Plan of query ${id}`);
  const aboutPanel = el("div", {});
  const rows = watch(id, new Choice(id, parameters), () => poll.now());
  const tabbed = tabs(
    "Of this query",
    [
      ["rows", "Rows", rows.node],
      ["plan", "Plan", graph.node],
      ["about", "About", aboutPanel],
    ],
    chosen,
  );
  panel.replaceChildren(
    el("div", { class: "head" }, title, tag, state, el("div", { class: "actions" }, copy, ...Object.values(buttons))),
    sql,
    error,
    trouble,
    facts,
    tabbed.list,
    ...tabbed.panels,
  );

  let query = null;
  let tab = "rows";
  let plan = null;

  const poll = every(1.5, look);
  const planPoll = every(5, lookAtPlan);
  tabbed.choose("rows");

  async function look() {
    try {
      const now = await get(`/queries/${encodeURIComponent(id)}`);
      if (query && query.state !== now.state) announce(`Query ${now.name ?? now.id} is ${now.state}.`);
      if (poll.stopped) return; // something else is shown by now
      if (!query) known(now);
      query = now;
      render();
      if (ENDED.includes(now.state)) poll.stop();
    } catch (error) {
      const problem = problemOrAway(error);
      if (problem === null) return;
      fail(problem.message);
      if (problem.status !== 404 && problem.status !== 410) return;
      end();
      if (!query) panel.replaceChildren(el("div", { class: "head" }, title), trouble); // nothing more to show
    }
  }

  async function lookAtPlan() {
    if (plan !== null && ENDED.includes(query?.state)) return;
    try {
      plan = await get(`/queries/${encodeURIComponent(id)}/plan`);
    } catch (error) {
      problemOrAway(error); // the figures tell what is wrong
      return;
    }
    rows.describe(layoutOf(plan));
    if (tab === "plan") showPlan();
  }

  function chosen(which) {
    tab = which;
    if (which === "plan" && plan) showPlan();
  }

  function fail(message) {
    say(trouble, message);
    trouble.hidden = false;
  }

  function render() {
    say(title, query.name ?? query.id);
    say(
      tag,
      [query.name ? query.id : null, query.subquery ? "subquery" : null, query.tenant].filter(Boolean).join(" · "),
    );
    tag.hidden = tag.textContent === "";
    say(state, stateOf(query));
    set(state, "data-state", query.state.toLowerCase());
    say(sql, query.sql);
    sql.hidden = state.hidden = false;
    const wrong = query.error ?? deliveryTrouble(query);
    say(error, wrong ?? "");
    error.hidden = !wrong;
    const ended = ENDED.includes(query.state);
    buttons.drop.hidden = ended;
    say(buttons.drop, query.state === "DRAINING" ? "Drop at once" : "Drop");
    buttons.pause.hidden = !(can.pause && query.state === "RUNNING");
    buttons.resume.hidden = !(can.resume && query.state === "PAUSED");
    definitions(facts, [
      ["Rows", count(query.rows_out)],
      ["Latency", duration(query.event_time_latency_seconds)],
      ["Deployed in", duration(query.deployment_latency_seconds)],
      ["Shares with", plan ? plural(plan.shares_with.count, "query", "queries") : "–"],
      ["Costs", percent(plan?.statistics.cost_share, "of all queries")],
      ["Selects", selected(plan)],
    ]);
    showAbout();
    rows.looked(query, ended);
    if (ended) rows.ended(query);
  }

  // its plan, and all else

  function showPlan() {
    const nameOf = (node) => node.name ?? (node.kind === "query" ? plan.name : null);
    const nodes = plan.nodes.map((node) => ({ ...node, name: nameOf(node), notes: notesOf(node) }));
    const words = [
      plan.why,
      plan.evaluation?.why ? `Evaluation by ${plan.evaluation.form}: ${plan.evaluation.why}.` : null,
      plan.join_order ? `Joined in the order ${plan.join_order.order.join(", ")}. ${plan.join_order.why}` : null,
    ].filter(Boolean);
    graph.show({ nodes, edges: plan.edges }, `Plan of query ${plan.name ?? plan.id}`, words);
  }

  function notesOf(node) {
    if (node.kind === "stream") {
      const rate = plan.statistics.tuples_per_second?.[node.name];
      const share = plan.statistics.selectivity?.[node.name];
      return [
        rate === undefined ? null : `${count(rate)} rows/s`,
        share === undefined ? null : `${percent(share)} selected`,
      ].filter(Boolean);
    }
    return node.kind === "query" && plan.statistics.cost_share !== null
      ? [`${percent(plan.statistics.cost_share)} of the cost`]
      : [];
  }

  function showAbout() {
    let list = aboutPanel.firstElementChild;
    if (!list) aboutPanel.append((list = el("dl", { class: "about" })));
    const times = (of) =>
      Object.entries(of ?? {})
        .map(([stream, time]) => `${stream}: ${clockTime(time)}`)
        .join(", ");
    definitions(list, [
      ["Id", query.id],
      ["Operator", plan && operatorText(plan)],
      ["Created", clockTime(query.created_at)],
      ["Deployed", clockTime(query.deployed_at)],
      ["Sees rows after", times(query.active_from)],
      ["Sees rows until", times(query.active_to)],
      ["Last row", clockTime(query.last_result_at)],
      ["Tenant", query.tenant],
      ["Ends after", query.ttl_seconds === null ? null : duration(query.ttl_seconds)],
      [
        "Labels",
        Object.entries(query.labels ?? {})
          .map(([name, value]) => `${name}=${value}`)
          .join(", "),
      ],
      ["Sink", query.sink && JSON.stringify(query.sink)],
      ["Delivery", query.delivery && `${query.delivery.state}, ${count(query.delivery.rows)} rows`],
    ]);
  }

  // its end

  async function act(what) {
    await attempt(() => post(`/queries/${encodeURIComponent(id)}/${what}`));
  }

  async function drop() {
    const drain = query.state !== "DRAINING";
    const name = query.name ? `${query.name} (${query.id})` : query.id;
    const detail = drain
      ? "Rows of windows that are complete still come; then it is retired. A dropped query does not start again."
      : "No further row will come.";
    if (!(await confirmed(`Drop ${name}?`, detail, "Keep it", "Drop it"))) return;
    await attempt(() => deletedWithReaders(`/queries/${encodeURIComponent(id)}?drain=${drain}`, "Drop them, too"));
  }

  async function attempt(call) {
    trouble.hidden = true;
    try {
      await call();
      refreshAll();
    } catch (problem) {
      fail(problem.message);
    }
  }

  function end() {
    poll.stop();
    planPoll.stop();
    rows.stop();
  }

  return end;
}

/** Return a share in percent, and `of` what. */
function percent(share, of = "") {
  return share === null || share === undefined ? "–" : `${Number((share * 100).toPrecision(2))} % ${of}`.trim();
}

/** Return what part of its rows a query selects, of the input of which it selects most; that of a few says little. */
function selected(plan) {
  const { selectivity = {}, sampled_tuples: sampled = {} } = plan?.statistics ?? {};
  const shares = Object.entries(selectivity);
  if (shares.some(([name, share]) => share === 1 && sampled[name] === 0)) return "all rows"; // it has no condition
  const known = shares.filter(([name]) => sampled[name] >= MIN_SAMPLED).map(([, share]) => share);
  return known.length ? percent(Math.max(...known), "of rows") : "–";
}

/** Return why rows do not get to the sink of a query, null where they do. */
function deliveryTrouble({ delivery }) {
  if (!delivery?.error || delivery.state === "DELIVERING" || delivery.state === "DONE") return null;
  return `Its rows do not get to the sink (${delivery.state}): ${delivery.error}`;
}
