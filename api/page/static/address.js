// The address of what is shown: `#/queries/q-1?form=bars&measure=total` is a place, and how it is looked at.

const PLACE = /^#\/(queries|streams|plan)(?:\/([^?]+))?(?:\?(.*))?$/;

/** Return `{kind, name, parameters}` of the address; the kind is null where it names no place. */
export function placeNow() {
  const [, kind = null, escaped = "", query = ""] = location.hash.match(PLACE) ?? [];
  return { kind, name: decodeURIComponent(escaped), parameters: new URLSearchParams(query) };
}

/** Whether the address is a place within the page, such as the editor, and says nothing of what is shown. */
export const isWithinPage = () => location.hash !== "" && !location.hash.startsWith("#/");

/** Return the address of a query. */
export const addressOf = (query) => `#/queries/${encodeURIComponent(query)}`;

/** Keep in the address how a query is looked at; the history gets no further step. */
export function keepInAddress(query, parameters) {
  const text = parameters.toString();
  history.replaceState(history.state, "", addressOf(query) + (text && `?${text}`));
}
