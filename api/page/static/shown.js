// What is shown beside the lists: a query, a stream or the plan, as the address says, or a welcome.

import { isWithinPage, placeNow } from "./address.js";
import { byId, el, set } from "./dom.js";
import { showEverything } from "./everything.js";
import { showQuery } from "./query.js";
import { showStream } from "./stream.js";

const ONE_COLUMN = matchMedia("(max-width: 1000px)"); // as in style.css
const MAX_ABOVE = 0.3; // of the window, what may be above it where there is one column
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

/** Follow the address; returns `{welcome(streams), settled()}`. `emptied` is called when nothing is shown any more. */
export function shown({ queries, can, edit, announce, emptied }) {
  const panel = byId("shown");
  let ending = null;
  let at = null;
  let isSettled = false;

  function route() {
    if (isWithinPage() || (at === location.hash && ending)) return;
    const { kind, name, parameters } = placeNow();
    const moved = at !== null;
    at = location.hash;
    ending?.();
    queries.select(kind === "queries" ? name : null);
    ending = show(kind, name, parameters);
    set(panel, "data-chosen", Boolean(ending));
    if (!ending) {
      panel.replaceChildren();
      at = null;
      if (moved) emptied();
      return;
    }
    if (moved) announce(`Shown beside: ${name || "the plan of everything"}.`);
    if (moved && document.activeElement === document.body) panel.focus({ preventScroll: true });
    bringIntoView();
  }

  function show(kind, name, parameters) {
    if (kind === "plan") return showEverything(panel);
    if (kind === "queries" && name)
      return showQuery(panel, name, parameters, { can, edit, announce, known: queries.opened });
    if (kind === "streams" && name) return showStream(panel, name, { announce });
    return null;
  }

  function bringIntoView() {
    const { top } = panel.getBoundingClientRect();
    if (top > (ONE_COLUMN.matches ? MAX_ABOVE * innerHeight : innerHeight - MAX_BELOW))
      panel.scrollIntoView({ block: "start" });
  }

  addEventListener("hashchange", route);
  route();

  return {
    /** Bring what the page was opened at into view, once, when the lists above it have their length. */
    settled() {
      if (at !== null && !isSettled) bringIntoView();
      isSettled = true;
    },
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
