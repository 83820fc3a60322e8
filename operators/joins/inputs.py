"""What a join asks of each of its inputs: to be sliced, tested and counted by key, as an aggregation is.

A *live input* of a join is an aggregation of that stream by the attributes that it is joined by. Live inputs share
their operators with those of all joins that compare the stream by the same attributes, whatever is on the other sides.

What belongs together meets in one partition: keys are spread over partitions by attributes that decide about every
combination (see :func:`spread_by`). Inputs that lack these go to all partitions, since a join is distributive over
union (thesis 5.6.2). Where there are no such attributes, or GROUP BY brings any keys together again, all of the join
goes to one partition.

Where rows are formed in partitions, what a few keys have may be split among these
(:mod:`braid.operators.joins.key_splits`): the live inputs for windows of another split have operators of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.expressions import Call, Column, Expression, columns_of
from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit, KeySplits
from braid.operators.joins.query import Join, JoinInput
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.placement import Placement
from braid.operators.queries import Aggregation
from braid.operators.query_parts import COUNT_DISTINCT, JOIN, Measure

SALT = "join"
"""What the keys of joins are hashed with to find their partitions."""


def join_of(live: LiveQuery) -> Join:
    """Return the query of a live join."""
    assert isinstance(live.query, Join)
    return live.query


@dataclass(frozen=True)
class LiveInput:
    """An input of a live join.

    ``query`` is the live aggregation that stands for it, in ``operator``; its first keys are the ``attributes`` that it
    is joined by, then come the ``extras`` that groups need of this input, given as expressions over joined rows.
    It has windows that begin after ``starts[0]`` and not after ``starts[1]`` (µs).
    """

    live: LiveQuery
    number: int
    query: LiveQuery
    attributes: tuple[int, ...]
    extras: tuple[Expression, ...]
    placement: Placement
    starts: tuple[int, int] = (EARLIEST, LATEST)

    @property
    def input(self) -> JoinInput:
        """The input of the join."""
        return join_of(self.live).inputs[self.number]

    @property
    def operator(self) -> str:
        """The name of the operator of this and all like inputs."""
        return self.query.operator


def splits_of(live: LiveQuery, splits: KeySplits) -> list[tuple[KeySplit, tuple[int, int]]]:
    """Return which splits of its operator a live join has, each with the bounds of its windows' starts (µs)."""
    if not splits:
        return [(NOT_SPLIT, (EARLIEST, LATEST))]
    spans: list[tuple[KeySplit, int]] = []
    for split in splits:
        current = split if can_split(join_of(live), split) else NOT_SPLIT
        if not spans or current.number != spans[-1][0].number:
            spans.append((current, split.since if spans else EARLIEST))
    ends = [*(begin for _, begin in spans[1:]), LATEST]
    return [(split, (begin, end)) for (split, begin), end in zip(spans, ends, strict=True)]


def can_split(join: Join, split: KeySplit) -> bool:
    """Return whether what a join has of some keys may be split so."""
    columns = columns_to_spread_by(join, split.spread)
    return columns is not None and (not columns or (bool(split.by) and set(split.by) <= set(columns)))


def columns_to_spread_by(join: Join, number: int) -> tuple[str, ...] | None:
    """Return by which columns the tuples of an input with split keys may be spread, those of others going to all
    partitions.

    None where they may not be spread, empty where any way will do. Outer inputs go to all partitions, else nobody would
    know which tuples have no partner. With GROUP BY they must be columns that are grouped by, for groups are not to
    span partitions; those that decide about the partition anyway are of no use. Rows that are counted, not formed, gain
    nothing.
    """
    if join.is_factorised or join.has_sessions or number >= len(join.inputs):
        return None
    join_input, hashed = join.inputs[number], placements_of(join)[number].hashed
    if join_input.outer_of or not hashed:
        return None
    if join.grouping is None:
        return ()
    keys = [key for key in join_input.keys if key is not None]
    decide = {key.name for place in hashed if isinstance(key := keys[place], Column)}
    return tuple(name for name in _grouped_columns(join, number) if name not in decide) or None


def live_inputs_of(
    live: LiveQuery, split: KeySplit = NOT_SPLIT, starts: tuple[int, int] = (EARLIEST, LATEST)
) -> tuple[LiveInput, ...]:
    """Return the inputs of a live join for the windows of a split, one for each input."""
    join = join_of(live)
    live_inputs = []
    for number, (name, placement) in enumerate(zip(operators_of(join), placements_of(join), strict=True)):
        join_input = join.inputs[number]
        query = replace(
            live,
            id=f"{live.id}#{number}",
            operator=split.name_of(name),
            query=Aggregation(
                join_input.stream,
                join.window,
                join_input.where,
                _keys(join, number),
                _measures(join, number),
                (),
                lookups=join_input.lookups,
                apart=join_input.apart,
            ),
        )
        if split.hashes:
            is_spread = number == split.spread
            by = split.by if is_spread else ()
            placement = replace(placement, split=split.hashes, is_spread=is_spread, by=by)
        live_inputs.append(
            LiveInput(live, number, query, attributes_of(join)[number], _extras(join, number), placement, starts)
        )
    return tuple(live_inputs)


def operators_of(join: Join) -> tuple[str, ...]:
    """Return the name of the operator of each input.

    Live inputs are alike that have the same keys and extras, and spread them over partitions alike. A stream that is
    joined with itself has an operator for each time it occurs: a query has one bit in each.
    """
    names: list[str] = []
    for number, (join_input, placement) in enumerate(zip(join.inputs, placements_of(join), strict=True)):
        keys = [str(key) for key in join_input.keys if key is not None]
        by = ",".join(keys)
        extras = ",".join(str(without_alias(extra, join_input.alias)) for extra in _extras(join, number))
        name = f"input:{join_input.input}:{by}" + (f" with {extras}" if extras else "")
        if join.has_sessions:
            name += " sessions"
        if placement.is_everywhere:
            name += " everywhere"
        elif placement.salt != SALT:
            name += f" in one partition, {placement.salt}"
        elif placement.hashed != tuple(range(len(keys))):
            name += f" spread by {','.join(keys[column] for column in placement.hashed or ())}"
        earlier_uses = sum(earlier.input == join_input.input for earlier in join.inputs[:number])
        names.append(f"{name} #{earlier_uses + 1}" if earlier_uses else name)
    return tuple(names)


def attributes_of(join: Join) -> list[tuple[int, ...]]:
    """Return for each input by which attributes it is compared."""
    return [
        tuple(attribute for attribute, key in enumerate(join_input.keys) if key is not None)
        for join_input in join.inputs
    ]


def placements_of(join: Join) -> list[Placement]:
    """Return for each input which partitions its keys go to."""
    spread = spread_by(join)
    if not spread:
        return [Placement(f"{SALT} {'+'.join(sorted(join.streams))}", ())] * len(join.inputs)
    return [
        Placement(SALT, tuple(map(attributes.index, spread)) if set(spread) <= set(attributes) else None)
        for attributes in attributes_of(join)
    ]


def spread_by(join: Join) -> tuple[int, ...]:
    """Return the attributes that decide about the partition of each combination; none where all goes to one partition.

    Any attribute of an inner input will do: inner inputs that have it are equal there, and so is a partner in an outer
    input that has it. With GROUP BY it must be among the keys, else groups would span partitions. Of such attributes
    all are taken that every input has, else the one that most inputs have. Then all partitions do the work of the
    inputs without it, which pays where rows are formed and tested in partitions: forming takes longer than all else.
    """
    inner = [(number, join_input) for number, join_input in enumerate(join.inputs) if not join_input.outer_of]
    grouped = set()
    for key in () if join.grouping is None else join.grouping.keys:
        if (number := input_of(join, key)) is not None:
            grouped.add((number, without_alias(key, join.inputs[number].alias)))
    inputs_with = {}
    for attribute in range(len(join.inputs[0].keys)):
        if any(
            join_input.keys[attribute] is not None
            and (join.grouping is None or (number, join_input.keys[attribute]) in grouped)
            for number, join_input in inner
        ):
            inputs_with[attribute] = sum(join_input.keys[attribute] is not None for join_input in join.inputs)
    common = tuple(attribute for attribute, count in inputs_with.items() if count == len(join.inputs))
    if common or join.is_factorised:
        return common
    return tuple(sorted(inputs_with, key=lambda attribute: -inputs_with[attribute])[:1])


def _grouped_columns(join: Join, number: int) -> tuple[str, ...]:
    """Return the columns of an input that are keys of GROUP BY."""
    prefix = f"{join.inputs[number].alias}."
    keys = () if join.grouping is None else join.grouping.keys
    names = {key.name for key in keys if isinstance(key, Column) and key.name.startswith(prefix)}
    return tuple(sorted(name[len(prefix) :] for name in names))


def input_of(join: Join, expression: Expression) -> int | None:
    """Return the one input that an expression over joined rows is over; None when it has no columns."""
    for name in columns_of(expression):
        for number, join_input in enumerate(join.inputs):
            if name.startswith(f"{join_input.alias}."):
                return number
    return None


def without_alias(expression: Expression, alias: str) -> Expression:
    """Return an expression over joined rows as one over the stream with that alias."""
    if isinstance(expression, Column):
        return Column(expression.name[len(alias) + 1 :], expression.type)
    if isinstance(expression, Call):
        arguments = tuple(without_alias(argument, alias) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type)
    return expression


def measure_of_input(join: Join, measure: Measure) -> tuple[int, Measure] | None:
    """Return the input that a measure is of, and the measure over its stream; None for COUNT(*)."""
    if measure.argument is None:
        return None
    number = input_of(join, measure.argument) or 0
    return number, Measure(measure.function, without_alias(measure.argument, join.inputs[number].alias))


def columns_for_rows(join: Join, number: int) -> set[str]:
    """Return the columns of an input that forming rows takes: for expressions over joined rows, and its predicate."""
    join_input = join.inputs[number]
    prefix = f"{join_input.alias}."
    names = {name for expression in join.over_rows for name in columns_of(expression) if name.startswith(prefix)}
    tested = () if join_input.where is None else columns_of(join_input.where)
    return {name[len(prefix) :] for name in names} | set(tested)


def live_inputs_over(live: LiveQueries, input_name: str) -> dict[str, list[LiveInput]]:
    """Return those of live joins at one input, by their operator."""
    by_operator: dict[str, list[LiveInput]] = {}
    for query in live.over(input_name, JOIN):
        for split, starts in splits_of(query, live.splits.get(query.operator, ())):
            for live_input in live_inputs_of(query, split, starts):
                if live_input.input.input == input_name:
                    by_operator.setdefault(live_input.operator, []).append(live_input)
    return by_operator


def _keys(join: Join, number: int) -> tuple[Expression, ...]:
    """Return what a live input is grouped by."""
    join_input = join.inputs[number]
    keys = [key for key in join_input.keys if key is not None]
    return (*keys, *(without_alias(extra, join_input.alias) for extra in _extras(join, number)))


def _extras(join: Join, number: int) -> tuple[Expression, ...]:
    """Return what groups need of an input besides measures: its share of GROUP BY, and what distinct values are of."""
    if join.grouping is None or not join.is_factorised:
        return ()
    counted = (m.argument for m in join.grouping.measures if m.function == COUNT_DISTINCT and m.argument is not None)
    extras = dict.fromkeys((*join.grouping.keys, *counted))
    return tuple(extra for extra in extras if (input_of(join, extra) or 0) == number)


def _measures(join: Join, number: int) -> tuple[Measure, ...]:
    measures = () if join.grouping is None or not join.is_factorised else join.grouping.measures
    input_measures = [measure_of_input(join, measure) for measure in measures]
    return tuple(dict.fromkeys(pair[1] for pair in input_measures if pair is not None and pair[0] == number))
