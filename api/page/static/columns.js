// What the columns of a query's rows are to a chart, by what the plan of the query says of them.

const WHOLE = /^(INT|BIGINT)/;
const FRACTION = /^(DOUBLE|DECIMAL)/;
const SCALE = /^DECIMAL\(\d+, ?(\d+)\)$/;
const ADDED = ["_partial", "_op", "_ptime", "_ver"];
const ROLES_OF_GROUPS = ["group", "sum", "aggregate"];

const isNumber = ({ type }) => WHOLE.test(type) || FRACTION.test(type);

/**
 * Return `{end, time, groups, measures, isAggregated, isSession, scales, groupings(measure)}` of the plan of a query.
 *
 * `end` is the column with the end of the window, null for single rows; `time` that or the first other TIMESTAMP.
 * `groups` are the columns that tell the rows of a window apart, `measures` the numbers to choose from, the likeliest
 * first. `scales` are the digits after the point of DECIMALs, by their names.
 */
export function layoutOf({ columns, window }) {
  const given = columns.filter(({ name }) => !ADDED.includes(name));
  const end = given.find(({ role }) => role === "window_end")?.name ?? null;
  const inside = given.filter(({ role }) => !role?.startsWith("window_"));
  const time = end ?? inside.find(({ type }) => type === "TIMESTAMP")?.name ?? null;
  const isAggregated = inside.some(({ role }) => ROLES_OF_GROUPS.includes(role));
  const groups = isAggregated
    ? inside.filter(({ role }) => role === "group")
    : end === null
      ? []
      : likelyGroups(inside);
  const measures = inside.filter((column) => isNumber(column) && !groups.includes(column));
  const fractions = isAggregated ? [] : measures.filter(({ type }) => FRACTION.test(type));
  const others = inside.filter(({ type }) => type !== "TIMESTAMP");
  return {
    end,
    time,
    groups: names(groups),
    measures: names([...fractions, ...measures.filter((column) => !fractions.includes(column))]),
    isAggregated,
    isSession: window?.kind === "session",
    scales: new Map(columns.flatMap(({ name, type }) => (SCALE.test(type) ? [[name, Number(SCALE.exec(type)[1])]] : []))),
    /** Return the groupings that a measure can have, the likeliest first; `[]` is by nothing. */
    groupings(measure) {
      if (end === null) return [[], ...others.filter(({ name }) => name !== measure).map(({ name }) => [name])];
      const isSum = columns.some(({ name, role }) => name === measure && role === "sum");
      if (!isSum || groups.length === 0) return [names(groups)];
      return [names(groups), ...(groups.length > 1 ? groups.map(({ name }) => [name]) : []), []];
    },
  };
}

/** Columns of the rows of another query's windows that may be its groups: all but numbers, or the first whole number. */
function likelyGroups(columns) {
  const texts = columns.filter((column) => !isNumber(column) && column.type !== "TIMESTAMP");
  const numbers = columns.filter(isNumber);
  return texts.length || numbers.length < 2 ? texts : numbers.filter(({ type }) => WHOLE.test(type)).slice(0, 1);
}

const names = (columns) => columns.map(({ name }) => name);
