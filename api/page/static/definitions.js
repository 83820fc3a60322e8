// Lists of names and values.

import { el, keyed, say } from "./dom.js";

/** Make the entries of a `dl` those `[name, value]`; ones without a value are left out. */
export function definitions(list, entries) {
  const given = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  const entry = () => el("div", {}, el("dt"), el("dd"));
  keyed(
    list,
    given,
    ([name]) => name,
    entry,
    (node, [name, value]) => {
      say(node.children[0], name);
      say(node.children[1], value);
    },
  );
}
