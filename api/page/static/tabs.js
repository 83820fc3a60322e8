// Tabs as the ARIA practices describe them: arrows move, the chosen one alone is in the order of Tab.

import { el, set } from "./dom.js";

/** Return `{list, panels, choose}` for `[[id, title, panel]…]`; `onChoose(id)` is called on every change. */
export function tabs(label, entries, onChoose) {
  const buttons = entries.map(([id, title]) =>
    el(
      "button",
      { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => choose(id) },
      title,
    ),
  );
  for (const [id, , panel] of entries) {
    set(panel, "role", "tabpanel");
    set(panel, "id", `panel-${id}`);
    set(panel, "aria-labelledby", `tab-${id}`);
  }

  function choose(id) {
    entries.forEach(([each, , panel], index) => {
      set(buttons[index], "aria-selected", String(each === id));
      buttons[index].tabIndex = each === id ? 0 : -1;
      panel.hidden = each !== id;
    });
    onChoose(id);
  }

  function move(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const now = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const next = Number.isFinite(step) ? (now + step + buttons.length) % buttons.length : step < 0 ? 0 : last;
    buttons[next].focus();
    choose(entries[next][0]);
  }

  const list = el("div", { class: "tabs", role: "tablist", "aria-label": label, onkeydown: move }, buttons);
  return { list, panels: entries.map(([, , panel]) => panel), choose };
}
