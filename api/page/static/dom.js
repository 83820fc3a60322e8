// Make and update elements. Text is always text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `on…` properties are listeners, false and null leave an attribute out. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Return an SVG element. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else set(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set an attribute, or remove it where the value is false or null; touches nothing that is so already. */
export function set(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** Set the text of an element, if it is another one: a live region must not say the same again. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make the children of `parent` those of `items`, keeping the elements, and so the focus, of items that stay. */
export function keyed(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const node = before.get(key) ?? create(item);
    node.dataset.key = key;
    before.delete(key);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const gone of before.values()) gone.remove();
}

/** Return the element of an id. */
export const byId = (id) => document.getElementById(id);
