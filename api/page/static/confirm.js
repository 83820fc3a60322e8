// Ask before something ends that cannot be brought back.

import { el } from "./dom.js";

/** Return whether the person agrees; Escape and the first button mean no. */
export function confirmed(title, detail, keep, end) {
  return new Promise((resolve) => {
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", { id: "confirm-title" }, title),
      el("p", { id: "confirm-detail" }, detail),
      el(
        "div",
        { class: "actions" },
        el("button", { value: "keep" }, keep),
        el("button", { value: "end", class: "danger" }, end),
      ),
    );
    const dialog = el("dialog", { "aria-labelledby": "confirm-title", "aria-describedby": "confirm-detail" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "end");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
