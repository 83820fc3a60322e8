"""What a join asks of each of its inputs: to be sliced, tested and counted by key, as an aggregation is.

The *part* of a join at one input is an aggregation of that stream by the attributes that it is joined by. Parts share
their operators with those of all joins that compare the stream by the same attributes, whatever is on the other sides.

Equal keys of all inputs meet in one lane. Where they cannot all be hashed alike, because inputs are compared by
different attributes or GROUP BY brings keys together again, all keys of the join go to one lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from operators.components import COUNT_DISTINCT
from operators.expressions import Call, Column, Expression, columns_of
from operators.live_queries import LiveQuery
from operators.queries import Aggregation, Join, JoinInput, Measure
from operators.windows import SessionWindow

_SALT = "join"


def join_of(live: LiveQuery) -> Join:
    """Return the query of a live join."""
    assert isinstance(live.query, Join)
    return live.query


@dataclass(frozen=True)
class Part:
    """A join at one input.

    ``query`` is the live aggregation that stands for it, in ``operator``; its first keys are the ``attributes`` that it
    is joined by, then come the ``extras`` that groups need of this input, given as expressions over joined rows.
    ``salt`` and ``hashed`` say which lane a key goes to: that of its first ``hashed`` columns.
    """

    live: LiveQuery
    number: int
    query: LiveQuery
    attributes: tuple[int, ...]
    extras: tuple[Expression, ...]
    salt: str
    hashed: int

    @property
    def input(self) -> JoinInput:
        """The input of the join."""
        return join_of(self.live).inputs[self.number]

    @property
    def operator(self) -> str:
        """The name of the operator of this and all like parts."""
        return self.query.operator


def parts_of(live: LiveQuery) -> tuple[Part, ...]:
    """Return the parts of a live join, one for each input."""
    join = join_of(live)
    whole = "" if is_spread(join) else "+".join(sorted(join.streams))
    found = []
    for number, name in enumerate(operators_of(join)):
        each = join.inputs[number]
        attributes = tuple(a for a, key in enumerate(each.keys) if key is not None)
        query = replace(
            live,
            id=f"{live.id}#{number}",
            operator=name,
            query=Aggregation(
                each.stream,
                join.window,
                each.where,
                _keys(join, number),
                _measures(join, number),
                (),
                lookups=each.lookups,
            ),
        )
        hashed = 0 if whole else len(attributes)
        found.append(Part(live, number, query, attributes, _extras(join, number), f"{_SALT} {whole}".strip(), hashed))
    return tuple(found)


def operators_of(join: Join) -> tuple[str, ...]:
    """Return the name of the operator of each input.

    Parts are alike that have the same keys and extras, and spread them over lanes alike. A stream that is joined with
    itself has an operator for each time it occurs: a query has one bit in each.
    """
    spread = is_spread(join)
    names: list[str] = []
    for number, each in enumerate(join.inputs):
        by = ",".join(str(key) for key in each.keys if key is not None)
        extras = ",".join(str(without_alias(extra, each.alias)) for extra in _extras(join, number))
        name = f"input:{each.input}:{by}" + (f" with {extras}" if extras else "")
        if isinstance(join.window, SessionWindow):
            name += " sessions"
        if not spread:
            attributes = ",".join(str(a) for a, key in enumerate(each.keys) if key is not None)
            name += f" whole {'+'.join(sorted(join.streams))} {attributes}"
        occurs = sum(earlier.input == each.input for earlier in join.inputs[:number])
        names.append(f"{name} #{occurs + 1}" if occurs else name)
    return tuple(names)


def is_spread(join: Join) -> bool:
    """Return whether the keys of a join can be spread over lanes: all inputs have them, and groups do not span them."""
    if any(key is None for each in join.inputs for key in each.keys):
        return False
    if join.grouping is None:
        return True
    if not join.is_factorised:  # then groups are formed of rows
        return False
    inner = [(n, each) for n, each in enumerate(join.inputs) if not each.outer_of]
    by = {
        (number, without_alias(key, join.inputs[number].alias))
        for key in join.grouping.keys
        if (number := input_of(join, key)) is not None
    }
    return all(any((n, each.keys[a]) in by for n, each in inner) for a in range(len(join.inputs[0].keys)))


def input_of(join: Join, expression: Expression) -> int | None:
    """Return the one input that an expression over joined rows is over; None when it has no columns."""
    for name in columns_of(expression):
        for number, each in enumerate(join.inputs):
            if name.startswith(f"{each.alias}."):
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
    """Return the columns of an input that making rows of a join takes: for what is asked of them, and its predicate."""
    each = join.inputs[number]
    prefix = f"{each.alias}."
    names = {name for expression in join.over_rows for name in columns_of(expression) if name.startswith(prefix)}
    tested = () if each.where is None else columns_of(each.where)
    return {name[len(prefix) :] for name in names} | set(tested)


def parts_over(joins: Iterable[LiveQuery], wanted: str) -> dict[str, list[Part]]:
    """Return the parts of live joins at one input, by their operator."""
    found: dict[str, list[Part]] = {}
    for live in joins:
        if any(each.input == wanted for each in join_of(live).inputs):
            for part in parts_of(live):
                if part.input.input == wanted:
                    found.setdefault(part.operator, []).append(part)
    return found


def _keys(join: Join, number: int) -> tuple[Expression, ...]:
    """Return what the part at an input is grouped by."""
    each = join.inputs[number]
    keys = [key for key in each.keys if key is not None]
    return (*keys, *(without_alias(extra, each.alias) for extra in _extras(join, number)))


def _extras(join: Join, number: int) -> tuple[Expression, ...]:
    """Return what groups need of an input besides measures: its share of GROUP BY, and what distinct values are of."""
    if join.grouping is None or not join.is_factorised:
        return ()
    counted = (m.argument for m in join.grouping.measures if m.function == COUNT_DISTINCT and m.argument is not None)
    extras = dict.fromkeys((*join.grouping.keys, *counted))
    return tuple(extra for extra in extras if (input_of(join, extra) or 0) == number)


def _measures(join: Join, number: int) -> tuple[Measure, ...]:
    measures = () if join.grouping is None or not join.is_factorised else join.grouping.measures
    found = [measure_of_input(join, measure) for measure in measures]
    return tuple(dict.fromkeys(each[1] for each in found if each is not None and each[0] == number))
