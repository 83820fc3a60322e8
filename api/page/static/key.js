// The API key: asked for when the service wants one, kept for this tab only, and never part of an address.

import { byId, el, say } from "./dom.js";

const PLACE = "braid.key";
let asking = null;

/** Return the key of this tab, null without one. */
export const storedKey = () => sessionStorage.getItem(PLACE);

/** Have the person give a key; all requests that wait share one dialog. `refused` is the key that was not taken. */
export function askForKey(refused) {
  if (refused !== storedKey()) return Promise.resolve(); // another request has asked meanwhile
  asking ??= new Promise((resolve) => open(refused, resolve)).finally(() => (asking = null));
  return asking;
}

function open(refused, resolve) {
  const input = el("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    required: true,
    "aria-describedby": "key-note",
  });
  const note = el("p", { class: "note", id: "key-note" });
  say(note, refused ? "That key was not accepted. Try another." : "It is kept for this tab only, until you close it.");
  const form = el(
    "form",
    { method: "dialog" },
    el("h2", { id: "key-title" }, "This service asks for a key"),
    el("label", { for: "key" }, "API key"),
    input,
    note,
    el("div", { class: "actions" }, el("button", { class: "primary", type: "submit" }, "Use this key")),
  );
  const dialog = el("dialog", { "aria-labelledby": "key-title", oncancel: (event) => event.preventDefault() }, form);
  dialog.addEventListener("close", () => {
    if (input.value.trim()) {
      sessionStorage.setItem(PLACE, input.value.trim());
      showForget();
      dialog.remove();
      resolve();
    } else dialog.showModal();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** Show the button that forgets the key, while there is one. */
export function showForget() {
  const button = byId("forget-key");
  button.hidden = storedKey() === null;
  button.onclick = () => {
    sessionStorage.removeItem(PLACE);
    location.reload();
  };
}
