// What is shown beside the lists: a query, a stream or the plan, as the address says, or a welcome.

import { byId, el } from "./dom.js";
import { showEverything } from "./everything.js";
import { showQuery } from "./query.js";
import { showStream } from "./stream.js";

const PLACE = /^#\/(queries|streams|plan)(?:\/(.+))?$/;
const MAX_BELOW = 120; // pixels of it that must be in sight

const CHOOSE = [
  "Nothing chosen",
  ["Choose a query to watch its rows, or write one above: an example is a click away."],
];
const NEW = [
  "New here?",
  [
    "Declare a stream: click an example above, then Run.",
    "Ask something about it.",
    "Watch the rows come, live, in a table and a chart.",
  ],
];

/** Follow the address; returns `{welcome(streams)}`. `emptied` is called when nothing is shown any more. */
export function shown({ queries, can, edit, announce, emptied }) {
  const panel = byId("shown");
  let ending = null;
  let at = null;

  function route() {
    if (location.hash !== "" && !location.hash.startsWith("#/")) return; // a place within the page
    const [place = null, kind, escaped = ""] = location.hash.match(PLACE) ?? [];
    if (at === place && ending) return;
    const moved = at !== null;
    at = place;
    ending?.();
    const name = decodeURIComponent(escaped);
    queries.select(kind === "queries" ? name : null);
    ending = show(kind, name);
    if (!ending) {
      panel.replaceChildren();
      at = null;
      if (moved) emptied();
      return;
    }
    if (moved) announce(`Shown beside: ${name || "the plan of everything"}.`);
    if (moved && document.activeElement === document.body) panel.focus();
    if (panel.getBoundingClientRect().top > innerHeight - MAX_BELOW) panel.scrollIntoView({ block: "start" });
  }

  function show(kind, name) {
    if (kind === "plan") return showEverything(panel);
    if (kind === "queries" && name) return showQuery(panel, name, { can, edit, announce });
    if (kind === "streams" && name) return showStream(panel, name, { announce });
    return null;
  }

  addEventListener("hashchange", route);
  route();

  return {
    /** Say how to begin, while nothing is shown. */
    welcome(streams) {
      if (at !== null) return;
      const [title, steps] = streams.length ? CHOOSE : NEW;
      if (panel.dataset.welcome === title && panel.querySelector(".welcome")) return;
      panel.dataset.welcome = title;
      const text =
        steps.length === 1
          ? el("p", {}, steps[0])
          : el(
              "ol",
              {},
              steps.map((step) => el("li", {}, step)),
            );
      panel.replaceChildren(el("div", { class: "welcome" }, el("h2", { id: "shown-title" }, title), text));
    },
  };
}
