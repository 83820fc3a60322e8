// A picture that can be made larger and smaller: by buttons, by + and - and 0, and by the wheel with Ctrl.

import { el, say, set } from "./dom.js";

const STEP = 1.25;
const [SMALLEST, LARGEST] = [0.1, 4];
const READABLE = 0.75; // a picture is not made smaller than this by itself
const KEYS = {
  "+": (view) => view.by(STEP),
  "=": (view) => view.by(STEP),
  "-": (view) => view.by(1 / STEP),
  0: (view) => view.fit(),
};

/** Return `{node, show(picture, label)}`: a picture (SVG with width and height), as wide as its place where one can read it so. */
export function zoomable(label) {
  const scroll = el("div", { class: "scroll plan-scroll", role: "group", "aria-label": label, tabindex: "0" });
  const percent = el("span", { role: "status" });
  const view = { by: (factor) => zoom(factor), fit: () => fit() };
  const button = (text, name, act) =>
    el("button", { type: "button", class: "quiet", "aria-label": name, title: name, onclick: act }, text);
  const controls = el(
    "div",
    { class: "zoom", role: "group", "aria-label": "Size of the plan" },
    button("−", "Smaller", () => view.by(1 / STEP)),
    percent,
    button("+", "Larger", () => view.by(STEP)),
    button("Fit width", "Fit width", () => view.fit()),
  );
  const node = el("div", {}, controls, scroll);
  let picture = null;
  let scale = null; // null until somebody chooses one
  let isFit = false;

  const width = () => Number(picture.getAttribute("width"));
  const room = () => {
    const { paddingLeft, paddingRight } = getComputedStyle(scroll);
    return scroll.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  };
  const fitting = () => Math.min(1, room() / width());
  const scaleNow = () => (isFit ? fitting() : (scale ?? Math.max(READABLE, fitting())));

  function apply() {
    if (!picture || room() <= 0) return;
    const now = scaleNow();
    picture.style.width = `${Math.floor(width() * now)}px`;
    picture.style.height = `${Math.floor(Number(picture.getAttribute("height")) * now)}px`;
    say(percent, `${Math.round(100 * now)} %`);
  }

  /** Multiply the size; what lies at a place of the view, its middle if none is given, stays there. */
  function zoom(factor, x = scroll.clientWidth / 2, y = scroll.clientHeight / 2) {
    const before = scaleNow();
    scale = Math.min(LARGEST, Math.max(SMALLEST, before * factor));
    isFit = false;
    apply();
    const grown = scale / before;
    scroll.scrollLeft = (scroll.scrollLeft + x) * grown - x;
    scroll.scrollTop = (scroll.scrollTop + y) * grown - y;
  }

  function fit() {
    isFit = true;
    apply();
  }

  scroll.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key](view);
  });
  scroll.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault(); // the browser would make the whole page larger
      const { left, top } = scroll.getBoundingClientRect();
      zoom(event.deltaY < 0 ? STEP : 1 / STEP, event.clientX - left, event.clientY - top);
    },
    { passive: false },
  );
  new ResizeObserver(apply).observe(scroll);

  return {
    node,
    show(next, name) {
      const { scrollLeft, scrollTop } = scroll;
      set(scroll, "aria-label", name);
      picture = next;
      scroll.replaceChildren(next);
      apply();
      [scroll.scrollLeft, scroll.scrollTop] = [scrollLeft, scrollTop];
    },
  };
}
