"""The predicate index: from the values of a tuple to the queries that select it, in one lookup per column.

For every column with predicates the index keeps the sorted constants of all queries. They cut the column's domain
into *cells*: one below, at, between and above each constant, and one for NULL. A predicate is true or false
on whole cells, so a query is a mask over the cells of each column that it tests, and a tuple's query-set is the AND of
one precomputed set per column. Work per tuple grows with log(constants), not with the number of queries.

A conjunct that tests one column against constants (comparisons, IN, IS NULL, and AND, OR, NOT of these) is indexed.
Any other conjunct is evaluated once per distinct text, and its outcome is a column of two cells. This goes beyond
the thesis (4.3.1.2), whose shared selection evaluates every active query's predicate.
"""

from __future__ import annotations

import bisect
import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.evaluation import evaluate
from operators.expressions import Call, Column, Expression, columns_of, conjuncts_of
from operators.query_set import Bools
from operators.tuples import Tuples
from sources.schema import BIGINT, DOUBLE, INT, ColumnType

Cells = npt.NDArray[np.int64]
COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_INTEGER_LIKE = ("INT", "BIGINT", "DATE", "TIMESTAMP", "BOOLEAN")
_EPOCH = dt.datetime(1970, 1, 1)
_MOST_LISTED = 1 << 16


class NotIndexable(Exception):
    """The predicate does not have the shape that cells can answer."""


@dataclass(frozen=True)
class Dimension:
    """One way in which the index cuts tuples: a column with constants, or a residual predicate with two outcomes.

    Cells of a column with m constants: ``2i + 1`` is the i-th constant itself, even numbers are the gaps, and
    ``2m + 1`` is NULL. Cells of a residual: 0 not true, 1 true.
    """

    name: str
    kind: str
    constants: tuple[Any, ...] = ()
    residual: Expression | None = None

    @property
    def cell_count(self) -> int:
        """How many cells this dimension has."""
        return 2 if self.residual is not None else 2 * len(self.constants) + 2

    def cells_of(self, tuples: Tuples) -> Cells:
        """Return the cell of each tuple, shape (tuples,)."""
        if self.residual is not None:
            outcome = tuples.value(self.residual).cast(pa.bool_())  # the literal NULL has a type of its own
            return np.asarray(pc.fill_null(outcome, False)).astype(np.int64)
        array = tuples.columns[self.name]
        if self.kind == "VARCHAR":
            return self._cells_of_strings(array)
        values = _numeric(array)
        if values.dtype == np.int64 and self._table is not None:
            least, greatest = self.constants[0], self.constants[-1]
            cells = self._table[np.clip(values, least - 1, greatest + 1) - (least - 1)]
        else:
            cells = _search(np.asarray(self.constants, dtype=values.dtype), values)
        if array.null_count:
            cells[np.asarray(array.is_null())] = self.cell_count - 1
        return cells

    @cached_property
    def _table(self) -> Cells | None:
        """The cell of every whole number from one below the constants to one above them; None when they are many."""
        if not self.constants:
            return None
        least, greatest = self.constants[0] - 1, self.constants[-1] + 1
        if greatest - least > _MOST_LISTED or least < -(2**63) or greatest >= 2**63:
            return None
        return _search(np.asarray(self.constants, dtype=np.int64), np.arange(least, greatest + 1, dtype=np.int64))

    def _cells_of_strings(self, array: pa.Array) -> Cells:
        """Look up each distinct string once."""
        encoded = array.dictionary_encode() if not pa.types.is_dictionary(array.type) else array
        table = np.empty(len(encoded.dictionary) + 1, dtype=np.int64)
        for i, value in enumerate(encoded.dictionary.to_pylist()):
            left = bisect.bisect_left(self.constants, value)
            table[i] = 2 * left + (left < len(self.constants) and self.constants[left] == value)
        table[-1] = self.cell_count - 1
        return table[np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)))]


def _search(constants: npt.NDArray[Any], values: npt.NDArray[Any]) -> Cells:
    left = np.searchsorted(constants, values, side="left")
    cells: Cells = 2 * left
    if len(constants):
        cells += constants[np.minimum(left, len(constants) - 1)] == values
    return cells


def _numeric(array: pa.Array) -> npt.NDArray[Any]:
    """Return ordered numbers for the values; what stands at NULLs does not matter."""
    if pa.types.is_boolean(array.type):
        return np.asarray(pc.fill_null(array, False)).astype(np.int64)
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, 0)
    values = np.asarray(array)
    return values if values.dtype == np.float64 else values.astype(np.int64, copy=False)


@dataclass(frozen=True)
class Conjunct:
    """A conjunct of a WHERE clause with the dimension that answers it."""

    dimension: str
    expression: Expression
    constants: tuple[Any, ...] | None


def analyse(expression: Expression, kinds: Mapping[str, str]) -> Conjunct:
    """Find the dimension of a conjunct; ``kinds`` maps each column of the stream to the kind of its type."""
    constants: list[Any] = []

    def collect(column: str, operator: str, constant: Any) -> tuple[Bools, Bools]:
        _, value = _fit(operator, constant, kinds[column])
        if value is not None:
            constants.append(value)
        return _NONE, _NONE

    names = set(columns_of(expression))
    if len(names) == 1 and kinds[next(iter(names))] != "DECIMAL":
        try:
            _outcomes(expression, collect, _NONE, _NONE)
        except NotIndexable:
            pass
        else:
            return Conjunct(names.pop(), expression, tuple(constants))
    return Conjunct(f"({expression})", expression, None)


def masks_of(conjunct: Conjunct, dimension: Dimension) -> Bools:
    """Return on which cells of its dimension the conjunct is true, shape (cells,)."""
    if dimension.residual is not None:
        return np.array([False, True])
    count = dimension.cell_count
    cells = np.arange(count - 1)
    null_cell = np.zeros(count, dtype=np.bool_)
    null_cell[-1] = True

    def compare(_column: str, operator: str, constant: Any) -> tuple[Bools, Bools]:
        fitted, value = _fit(operator, constant, dimension.kind)
        true = np.zeros(count, dtype=np.bool_)
        if value is None:
            true[:-1] = fitted == "all"
        else:
            at = 2 * bisect.bisect_left(dimension.constants, value) + 1
            true[:-1] = _COMPARE[fitted](cells, at)
        return true, ~true & ~null_cell

    return _outcomes(conjunct.expression, compare, null_cell, ~null_cell)[0]


_NONE = np.zeros(1, dtype=np.bool_)
_COMPARE: dict[str, Callable[[Cells, int], Bools]] = {
    "=": lambda cells, at: cells == at,
    "<>": lambda cells, at: cells != at,
    "<": lambda cells, at: cells < at,
    "<=": lambda cells, at: cells <= at,
    ">": lambda cells, at: cells > at,
    ">=": lambda cells, at: cells >= at,
}


def _outcomes(
    expression: Expression,
    compare: Callable[[str, str, Any], tuple[Bools, Bools]],
    null_cell: Bools,
    others: Bools,
) -> tuple[Bools, Bools]:
    """Return the cells where the predicate is true and where it is false; on the rest it is unknown (NULL)."""
    if isinstance(expression, Column) and expression.type.kind == "BOOLEAN":
        return compare(expression.name, "=", True)
    if not isinstance(expression, Call):
        raise NotIndexable
    function, arguments = expression.function, expression.arguments
    if function in ("and", "or"):
        parts = [_outcomes(argument, compare, null_cell, others) for argument in arguments]
        return _all_of(parts) if function == "and" else _any_of(parts)
    if function == "not":
        true, false = _outcomes(arguments[0], compare, null_cell, others)
        return false, true
    if function == "is_null" and isinstance(arguments[0], Column):
        return null_cell, others
    if function in COMPARISONS:
        left, right = arguments
        if _column_of(left) is None:
            left, right, function = right, left, _MIRRORED[function]
        return compare(_required_column(left), function, _constant_of(right))
    if function == "in":
        column = _required_column(arguments[0])
        return _any_of([compare(column, "=", _constant_of(item)) for item in arguments[1:]])
    raise NotIndexable


def _all_of(parts: Sequence[tuple[Bools, Bools]]) -> tuple[Bools, Bools]:
    return reduce(np.logical_and, [true for true, _ in parts]), reduce(np.logical_or, [false for _, false in parts])


def _any_of(parts: Sequence[tuple[Bools, Bools]]) -> tuple[Bools, Bools]:
    false, true = _all_of([(false, true) for true, false in parts])
    return true, false


def _column_of(expression: Expression) -> str | None:
    """Return the column, also below a cast that keeps every value and its order."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call) and expression.function == "cast":
        inner = expression.arguments[0]
        if isinstance(inner, Column) and _keeps_values(inner.type, expression.type):
            return inner.name
    return None


def _keeps_values(given: ColumnType, target: ColumnType) -> bool:
    """Whether a cast keeps every value; one that does not gives NULL for some, or rounds."""
    if not given.is_integer:
        return False
    if target.kind == "DECIMAL":
        return target.precision - target.scale >= (10 if given == INT else 19)
    return target == BIGINT or (given == INT and target in (INT, DOUBLE))


def _required_column(expression: Expression) -> str:
    name = _column_of(expression)
    if name is None:
        raise NotIndexable
    return name


def _constant_of(expression: Expression) -> Any:
    if next(columns_of(expression), None) is not None:
        raise NotIndexable
    try:
        value = evaluate(expression, {}, 1)[0].as_py()
    except Exception as error:  # such as a date that Python's do not hold; the index must not fail for all queries
        raise NotIndexable from error
    if value is None:
        raise NotIndexable
    return value


def _fit(operator: str, constant: Any, kind: str) -> tuple[str, Any]:
    """Return the same comparison with a constant of the column's own domain.

    ``("all", None)`` and ``("none", None)`` stand for comparisons that hold for every or for no value.
    """
    if kind == "VARCHAR":
        if not isinstance(constant, str):
            raise NotIndexable
        return operator, constant
    number = _number(constant, kind)
    if kind == "DOUBLE":
        value = float(number)
        if not math.isfinite(value) or Decimal(value) != Decimal(number):
            raise NotIndexable
        return operator, value
    if kind not in _INTEGER_LIKE or not math.isfinite(number):
        raise NotIndexable
    floor = math.floor(number)
    if not -(2**63) <= floor < 2**63:
        raise NotIndexable
    if floor == number:
        return operator, floor
    if operator in ("=", "<>"):
        return ("none" if operator == "=" else "all"), None
    return (">" if operator in (">", ">=") else "<="), floor


def _number(constant: Any, kind: str) -> int | float | Decimal:
    if isinstance(constant, dt.datetime) and kind == "TIMESTAMP":
        return (constant - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(constant, dt.date) and not isinstance(constant, dt.datetime) and kind == "DATE":
        return (constant - _EPOCH.date()).days
    if isinstance(constant, (int, float, Decimal)) and kind not in ("TIMESTAMP", "DATE"):
        return constant
    raise NotIndexable


class PredicateIndex:
    """The WHERE clauses of some queries over one stream.

    ``dimensions`` has one entry per column or residual that occurs; ``masks[i]`` maps the names of the
    dimensions that query i tests to its cells.
    """

    def __init__(self, wheres: Sequence[Expression | None], kinds: Mapping[str, str]) -> None:
        conjuncts = [[analyse(c, kinds) for c in conjuncts_of(where)] for where in wheres]
        constants: dict[str, set[Any]] = {}
        residuals: dict[str, Expression] = {}
        for conjunct in (c for per_query in conjuncts for c in per_query):
            if conjunct.constants is None:
                residuals[conjunct.dimension] = conjunct.expression
            else:
                constants.setdefault(conjunct.dimension, set()).update(conjunct.constants)
        self.dimensions: dict[str, Dimension] = {
            name: Dimension(name, kinds[name], tuple(sorted(values))) for name, values in constants.items()
        }
        for name, residual in residuals.items():
            self.dimensions[name] = Dimension(name, "BOOLEAN", residual=residual)
        self.masks: list[dict[str, Bools]] = []
        for per_query in conjuncts:
            masks: dict[str, Bools] = {}
            for conjunct in per_query:
                mask = masks_of(conjunct, self.dimensions[conjunct.dimension])
                previous = masks.get(conjunct.dimension)
                masks[conjunct.dimension] = mask if previous is None else previous & mask
            self.masks.append(masks)

    def cells_of(self, tuples: Tuples) -> dict[str, Cells]:
        """Return the cell of each tuple in every dimension."""
        return {name: dimension.cells_of(tuples) for name, dimension in self.dimensions.items()}
