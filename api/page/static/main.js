// Puts the page together: what is looked at, how often, and what follows from an address.

import { get, post, problemOrAway } from "./api.js";
import { showAnswer } from "./answer.js";
import { byId, el, say, set } from "./dom.js";
import { editor } from "./editor.js";
import { showEverything } from "./everything.js";
import { showExamples } from "./examples.js";
import { ago, count } from "./format.js";
import { showForget } from "./key.js";
import { countsByState } from "./metrics.js";
import { every, refreshAll } from "./poll.js";
import { queriesPanel } from "./queries.js";
import { showQuery } from "./query.js";
import { isQuery } from "./sql.js";
import { showStream } from "./stream.js";
import { streamsPanel } from "./streams.js";

const LOOK_SECONDS = 2;
const COUNT_SECONDS = 5;
const can = { pause: false, resume: false };
const announce = (text) => say(byId("announcer"), text);

// what is there

const streams = streamsPanel();
const queries = queriesPanel(() => looking.now());
const write = (sql) => sqlEditor.write(sql);
const sqlEditor = editor(run);
let declared = null;

const looking = every(LOOK_SECONDS, async () => {
  try {
    const [{ streams: found }, sharers] = await Promise.all([get("/streams"), sharersNow()]);
    const { rate, behind } = streams.show(found);
    say(byId("figure-rate"), count(rate));
    say(byId("figure-behind"), ago(behind));
    showExamples(found, write);
    const names = found.map((stream) => stream.name).join();
    if (declared !== null && declared !== names) sqlEditor.recheck();
    declared = names;
    await queries.load(sharers);
    welcome(found);
    health(...(await readiness()));
  } catch (error) {
    const problem = problemOrAway(error);
    if (problem === null) health("away", "Braid does not answer; trying again");
    else health(problem.status === 503 ? "starting" : "failed", problem.message);
  }
});

/** Return how many queries each operator has; nothing where one may not know. */
async function sharersNow() {
  try {
    const { nodes } = await get("/plan");
    return new Map(nodes.filter((node) => "queries" in node).map((node) => [node.id, node.queries]));
  } catch (error) {
    if (problemOrAway(error)?.status === 403) return new Map();
    throw error;
  }
}

async function readiness() {
  try {
    await get("/readyz");
    return ["ready", "ready"];
  } catch (error) {
    const problem = problemOrAway(error);
    if (problem) return ["starting", problem.message];
    throw error;
  }
}

function health(state, text) {
  set(byId("health"), "data-state", state);
  say(byId("health"), text);
}

every(COUNT_SECONDS, async () => {
  try {
    const numbers = await countsByState();
    queries.showCounts(numbers);
    say(byId("figure-running"), count(numbers.get("RUNNING")));
  } catch (error) {
    problemOrAway(error); // the list does without numbers
  }
});

// what is asked

async function run(sql, name) {
  showAnswer(null);
  if (isQuery(sql)) {
    const query = await post("/queries?wait=10", name ? { sql, name } : { sql });
    location.hash = `#/queries/${query.id}`;
    refreshAll();
    return `Query ${query.name ?? query.id} is ${query.state}.`;
  }
  const answer = (await post("/sql", { sql })) ?? {};
  refreshAll();
  if (answer.columns && answer.source && answer.name) {
    const kind = "clock" in answer ? "Stream" : "Table";
    if (kind === "Stream") location.hash = `#/streams/${encodeURIComponent(answer.name)}`;
    return `${kind} ${answer.name} is declared.`;
  }
  if (answer.id && answer.state) {
    location.hash = `#/queries/${answer.id}`;
    return `Query ${answer.name ?? answer.id} is ${answer.state}.`;
  }
  if (Object.keys(answer).length) showAnswer(answer);
  return "Done.";
}

// what is shown beside

let ending = null;
let at = null;

function route() {
  if (location.hash !== "" && !location.hash.startsWith("#/")) return; // a place within the page
  const [, kind, name] = location.hash.match(/^#\/(queries|streams|plan)(?:\/(.+))?$/) ?? [];
  const place = `${kind}/${name}`;
  if (at === place) return;
  const moved = at !== null;
  at = place;
  ending?.();
  const panel = byId("shown");
  panel.className = "panel shown";
  queries.select(kind === "queries" ? decodeURIComponent(name) : null);
  if (kind === "queries" && name) ending = showQuery(panel, decodeURIComponent(name), { can, edit: write, announce });
  else if (kind === "streams" && name) ending = showStream(panel, decodeURIComponent(name), { announce });
  else if (kind === "plan") ending = showEverything(panel);
  else {
    ending = null;
    panel.replaceChildren();
    at = null;
    looking.now();
    return;
  }
  if (moved) announce(`Shown beside: ${decodeURIComponent(name ?? "the plan of everything")}.`);
  if (moved && document.activeElement === document.body) panel.focus();
  if (panel.getBoundingClientRect().top > innerHeight - 120) panel.scrollIntoView({ block: "start" });
}

function welcome(found) {
  if (at !== null) return;
  const panel = byId("shown");
  const steps = found.length
    ? ["Choose a query to watch its rows,", "or write one above: an example is a click away."]
    : [
        "Declare a stream: click an example above, then Run.",
        "Ask something about it.",
        "Watch the rows come, live, in a table and a chart.",
      ];
  const text = steps.join();
  if (panel.dataset.welcome === text && panel.querySelector(".welcome")) return;
  panel.dataset.welcome = text;
  panel.replaceChildren(
    el(
      "div",
      { class: "welcome" },
      el("h2", { id: "shown-title" }, found.length ? "Nothing chosen" : "New here?"),
      el(
        "ol",
        {},
        steps.map((step) => el("li", {}, step)),
      ),
    ),
  );
}

addEventListener("hashchange", route);
route();
showForget();
get("/openapi.json").then(
  ({ paths }) => {
    for (const what of Object.keys(can))
      can[what] = Object.keys(paths).some((path) => new RegExp(`^/queries/\\{\\w+\\}/${what}$`).test(path));
  },
  () => {},
); // without it, the buttons are not shown
