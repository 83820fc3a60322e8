// The groups of a chart with their values, and which of them were picked to be drawn alone.

import { el, keyed, say, set } from "./dom.js";
import { count, measure as shown, plural } from "./format.js";

const LISTED = 500;

/** Return `{node, draw(state)}`; `pick(groups)` is called with the groups that are to be drawn, none for the greatest. */
export function legend(most, pick) {
  const list = el("ul", { class: "legend" });
  const rest = el("span", { class: "rest" });
  const add = el("select", { id: "chart-add", "aria-label": "Pick a group", onchange: added });
  const all = el("button", { type: "button", class: "quiet", onclick: () => pick([]) }, "The greatest again");
  const node = el("div", { class: "groups" }, list, rest, add, all);
  let picked = [];

  function added() {
    pick([...picked, add.value]);
  }

  function toggle(name) {
    pick(picked.includes(name) ? picked.filter((each) => each !== name) : [...picked, name].slice(-most));
  }

  function item({ name, isGroup }) {
    const swatch = el("span", { class: "swatch" });
    if (!isGroup) return el("li", {}, swatch, el("span", {}, name), el("b", {}));
    return el("li", {}, swatch, el("button", { type: "button", onclick: () => toggle(name) }, name), el("b", {}));
  }

  /**
   * Show `{entries, others, picked, words}`: entries `{name, colour, value, isGroup}`, the groups that are not drawn, the
   * groups that were picked, and what is said of the rest.
   */
  function draw({ entries, others, picked: now, words }) {
    picked = now;
    keyed(
      list,
      entries,
      ({ name, isGroup }) => `${isGroup} ${name}`,
      item,
      (line, { name, colour, value, isGroup }) => {
        const [swatch, , number] = line.children;
        set(swatch, "class", colour === null ? "hidden" : `swatch s${colour}`);
        if (isGroup) set(line.children[1], "aria-pressed", String(picked.includes(name)));
        say(number, value === null ? "" : shown(value));
      },
    );
    say(rest, words);
    const names = others.slice(0, LISTED);
    add.hidden = names.length === 0 || picked.length >= most;
    if (document.activeElement !== add && add.dataset.of !== names.join("\n")) {
      add.dataset.of = names.join("\n");
      const listed = others.length > LISTED ? `, of which ${count(LISTED)} are here` : "";
      add.replaceChildren(
        el(
          "option",
          { value: "", disabled: true, selected: true },
          `Pick of ${plural(others.length, "other", "others")}${listed} …`,
        ),
        ...names.map((name) => el("option", { value: name }, name)),
      );
    }
    all.hidden = picked.length === 0;
  }

  return { node, draw };
}
