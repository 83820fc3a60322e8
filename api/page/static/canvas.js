// A canvas as wide as its place, painted with the colours of the page.

import { el } from "./dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * Return `{node, width(), paint(), stop()}`; `painter(context, width, colour)` paints it with the next frame.
 *
 * It is painted again when its width or the colours of the page change; `colour("--s0")` is one of these.
 */
export function canvas(height, painter) {
  const node = el("canvas", { height });
  const ended = new AbortController();
  let width = 0;
  let frame = null;

  function paint() {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      if (width > 0) show();
    });
  }

  function show() {
    const ratio = devicePixelRatio;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (node.width !== wide || node.height !== high) [node.width, node.height] = [wide, high];
    const context = node.getContext("2d");
    const style = getComputedStyle(node);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${style.fontFamily}`;
    painter(context, width, (name) => style.getPropertyValue(name));
  }

  const sizes = new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    paint();
  });
  sizes.observe(node);
  dark.addEventListener("change", paint, { signal: ended.signal });

  return {
    node,
    width: () => width,
    paint,
    stop() {
      sizes.disconnect();
      ended.abort();
      cancelAnimationFrame(frame);
    },
  };
}
