// Headings by which a list is sorted: a press sorts, a second one turns the order round, a third one ends it.

import { el, set } from "./dom.js";

/**
 * Return `{heading(title, column), order()}`; `first` are columns whose greatest values come first.
 *
 * `order()` is a column, with `-` before it for the greatest first, null while nothing is sorted; `changed` is called on
 * each change of it.
 */
export function sorting(first, changed) {
  let order = null;
  const buttons = new Map();

  function press(column) {
    const orders = first.includes(column) ? [`-${column}`, column, null] : [column, `-${column}`, null];
    order = orders[(orders.indexOf(order) + 1) % orders.length];
    for (const [each, button] of buttons) {
      const way = order === each ? "ascending" : order === `-${each}` ? "descending" : null;
      set(button.parentElement, "aria-sort", way);
    }
    changed();
  }

  return {
    order: () => order,
    heading(title, column) {
      const button = el("button", { type: "button", class: "sort", onclick: () => press(column) }, title);
      buttons.set(column, button);
      return button;
    },
  };
}
