"""The innermost loops, compiled by numba, each one pass over flat arrays.

Compiled code is cached on disk; :func:`warm_up` loads it before tuples come.
"""

from collections.abc import Callable

from braid.operators.kernels import accumulation, bits, boundaries, double_double, packing, pairs, query_sets, rows
from braid.operators.kernels.accumulation import (
    GREATEST,
    LEAST,
    SUM,
    add,
    add_runs,
    count,
    count_and_add,
    count_pairs,
    count_present,
    greatest,
    least,
    merge_full,
    merge_looked_up,
    occupied_per_group,
    pick_group,
    place,
    place_looked_up,
    place_mapped,
    running_sums,
    set_looked_up,
)
from braid.operators.kernels.bits import (
    add_double_range,
    add_pairs_at_set,
    add_range,
    address_runs,
    bits_of_table,
    count_and_merge_at_set,
    count_at_set,
    count_set,
    join_runs,
    list_set,
    merge_at_set,
    merge_runs,
    place_joined,
    take_found,
    take_occupied,
)
from braid.operators.kernels.boundaries import (
    HEAD_BYTES,
    append_cell,
    count_boundaries,
    count_double_boundaries,
    count_few_boundaries,
    count_texts,
    look_up,
)
from braid.operators.kernels.packing import add_packed, merge_packed, packed_totals, unpack
from braid.operators.kernels.pairs import form_pairs, match_groups, pick_pairs
from braid.operators.kernels.query_sets import count_bits, count_slots, intersect, list_by_bit, place_each, set_bits
from braid.operators.kernels.rows import (
    append_digit,
    ascends,
    expand,
    extent,
    keep_mapped,
    mark,
    number,
    number_ascending,
    order_by_code,
    pick_tuples,
    remainders,
    rows_between,
    scatter,
    take,
    total,
)

__all__ = [
    "GREATEST",
    "HEAD_BYTES",
    "LEAST",
    "SUM",
    "add",
    "add_double_range",
    "add_packed",
    "add_pairs_at_set",
    "add_range",
    "add_runs",
    "address_runs",
    "append_cell",
    "append_digit",
    "ascends",
    "bits_of_table",
    "count",
    "count_and_add",
    "count_and_merge_at_set",
    "count_at_set",
    "count_bits",
    "count_boundaries",
    "count_double_boundaries",
    "count_few_boundaries",
    "count_pairs",
    "count_present",
    "count_set",
    "count_slots",
    "count_texts",
    "expand",
    "extent",
    "form_pairs",
    "greatest",
    "intersect",
    "join_runs",
    "keep_mapped",
    "least",
    "list_by_bit",
    "list_set",
    "look_up",
    "mark",
    "match_groups",
    "merge_at_set",
    "merge_full",
    "merge_looked_up",
    "merge_packed",
    "merge_runs",
    "number",
    "number_ascending",
    "occupied_per_group",
    "order_by_code",
    "packed_totals",
    "pick_group",
    "pick_pairs",
    "pick_tuples",
    "place",
    "place_each",
    "place_joined",
    "place_looked_up",
    "place_mapped",
    "remainders",
    "rows_between",
    "running_sums",
    "scatter",
    "set_bits",
    "set_looked_up",
    "take",
    "take_found",
    "take_occupied",
    "total",
    "unpack",
    "warm_up",
]


WARM_UPS: tuple[Callable[[], None], ...] = tuple(
    module.warm_up for module in (accumulation, packing, rows, boundaries, bits, pairs, query_sets, double_double)
)
"""What loads or compiles the kernels of each module, those that take longest to compile first."""


def warm_up() -> None:
    """Load or compile every kernel for the types that it is used with."""
    for warm_up_module in WARM_UPS:
        warm_up_module()
