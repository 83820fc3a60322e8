// Puts the page together: what is looked at, how often, and what a statement leads to.

import { get, post, problemOrAway } from "./api.js";
import { showAnswer } from "./answer.js";
import { byId, say, set } from "./dom.js";
import { editor } from "./editor.js";
import { showExamples } from "./examples.js";
import { ago, count } from "./format.js";
import { showForget } from "./key.js";
import { countsByState } from "./metrics.js";
import { every, refreshAll } from "./poll.js";
import { queriesPanel } from "./queries.js";
import { shown } from "./shown.js";
import { isDescription, isQuery } from "./sql.js";
import { streamsPanel } from "./streams.js";
import { tablesPanel } from "./tables.js";

const LOOK_SECONDS = 2;
const COUNT_SECONDS = 5;
const can = { pause: false, resume: false };
const announce = (text) => say(byId("announcer"), text);

// what is there

const streams = streamsPanel();
const tables = tablesPanel(announce);
const queries = queriesPanel(() => looking.now());
const write = (sql) => sqlEditor.write(sql);
const sqlEditor = editor(run);
const beside = shown({ queries, can, edit: write, announce, emptied: () => looking.now() });
let declared = null;

const looking = every(LOOK_SECONDS, async () => {
  try {
    const [{ found, at }, sharers] = await Promise.all([streamsNow(), sharersNow()]);
    const { rate, behind, rates } = streams.show(found, at);
    say(byId("figure-rate"), count(rate));
    say(byId("figure-behind"), ago(behind));
    showExamples(found, rates, write);
    const names = found.map((stream) => stream.name).join();
    if (declared !== null && declared !== names) sqlEditor.recheck();
    declared = names;
    await Promise.all([queries.load(sharers), tables.load()]);
    beside.welcome(found);
    beside.settled();
    health(...(await readiness()));
  } catch (error) {
    const problem = problemOrAway(error);
    if (problem === null) health("away", "Braid does not answer; trying again");
    else health(problem.status === 503 ? "starting" : "failed", problem.message);
  }
});

/** Return the streams, and when they were as they are: another answer may take longer. */
async function streamsNow() {
  const { streams: found } = await get("/streams");
  return { found, at: performance.now() };
}

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

async function run(sql, said) {
  showAnswer(null);
  if (isQuery(sql)) {
    const query = await post("/queries?wait=10", { sql, ...said });
    queries.reveal(query);
    location.hash = `#/queries/${query.id}`;
    refreshAll();
    return `Query ${query.name ?? query.id} is ${query.state}.`;
  }
  const answer = (await post("/sql", { sql })) ?? {};
  refreshAll();
  if (answer.columns && answer.source && answer.name) {
    const kind = "clock" in answer ? "Stream" : "Table";
    if (kind === "Stream") location.hash = `#/streams/${encodeURIComponent(answer.name)}`;
    if (isDescription(sql)) return `${kind} ${answer.name}:`;
    return `${kind} ${answer.name} is declared.`;
  }
  if ("dropped" in answer) return answer.dropped ? `${answer.dropped} is dropped.` : "Nothing was there to drop.";
  if (answer.id && answer.state) {
    queries.reveal(answer);
    location.hash = `#/queries/${answer.id}`;
    return `Query ${answer.name ?? answer.id} is ${answer.state}.`;
  }
  if (Object.keys(answer).length) showAnswer(answer);
  return "Done.";
}

showForget();
get("/openapi.json").then(
  ({ paths }) => {
    for (const what of Object.keys(can))
      can[what] = Object.keys(paths).some((path) => new RegExp(`^/queries/\\{\\w+\\}/${what}$`).test(path));
  },
  () => {}, // without it, the buttons are not shown
);
