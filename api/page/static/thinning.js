// Fewer points that look the same: nobody sees more than a pixel has.

/**
 * Return the points that a line needs: of each pixel column the first, the least, the greatest and the last.
 *
 * `points` are in the order of x; `columnOf(x)` is the pixel column of a place.
 */
export function thinnedLine(points, columnOf) {
  const kept = [];
  let from = 0;
  while (from < points.length) {
    const column = columnOf(points[from].x);
    let [least, greatest, last] = [from, from, from];
    for (let at = from + 1; at < points.length && columnOf(points[at].x) === column; at += 1) {
      if (points[at].y < points[least].y) least = at;
      if (points[at].y > points[greatest].y) greatest = at;
      last = at;
    }
    const places = new Set([from, Math.min(least, greatest), Math.max(least, greatest), last]);
    for (const at of places) kept.push(points[at]);
    from = last + 1;
  }
  return kept;
}

/** Return the points that dots need: of each pixel the last. */
export function thinnedDots(points, columnOf, rowOf) {
  return [...new Map(points.map((point) => [`${columnOf(point.x)} ${rowOf(point.y)}`, point])).values()];
}
