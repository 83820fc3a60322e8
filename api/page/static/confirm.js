// Ask before something ends that cannot be brought back.

import { json } from "./api.js";
import { el } from "./dom.js";

/** Delete what is at a path; where queries read it, ask whether `these` go, too. Returns whether it is deleted. */
export async function deletedWithReaders(path, these) {
  try {
    await json("DELETE", path);
  } catch (problem) {
    if (problem.status !== 409) throw problem;
    const [refusal] = problem.message.split(/(?<=\.)\s/); // what follows is for those who call the interface
    if (!(await confirmed("Others read it", refusal, "Keep all", these))) return false;
    await json("DELETE", `${path}${path.includes("?") ? "&" : "?"}cascade=true`);
  }
  return true;
}

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
    const leave = () => dialog.close("keep"); // what it asks about is out of sight
    window.addEventListener("hashchange", leave);
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", leave);
      dialog.remove();
      resolve(dialog.returnValue === "end");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
