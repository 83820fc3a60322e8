// The groups of one window as bars, the greatest first.

import { el, keyed, say, set } from "./dom.js";
import { measure as shown } from "./format.js";

/** Return `{node, draw(groups)}`; groups are `{name, value}` in their order. */
export function barsChart() {
  const node = el("ol", { class: "bars" });

  function draw(groups) {
    const values = groups.map(({ value }) => value);
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const share = (value) => (100 * value) / (high - low || 1);
    const item = () =>
      el(
        "li",
        {},
        el("span", { class: "group" }),
        el("span", { class: "track" }, el("span", { class: "bar" })),
        el("b", {}),
      );
    keyed(
      node,
      groups,
      ({ name }) => name,
      item,
      (line, { name, value }) => {
        const [group, track, number] = line.children;
        const bar = track.firstElementChild;
        say(group, name);
        set(group, "title", name);
        bar.style.left = `${share(Math.min(0, value) - low)}%`;
        bar.style.width = `${share(Math.abs(value))}%`;
        set(bar, "data-negative", value < 0);
        say(number, shown(value));
      },
    );
  }

  return { node, draw };
}
