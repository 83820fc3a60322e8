"""The registry of scalar functions: what a :class:`braid.operators.expressions.Call` may name.

``call("<", column, literal)`` gives the typed call, or NotAllowed; :mod:`braid.operators.evaluation` computes it.
"""

from __future__ import annotations

from braid.operators.expressions import Expression
from braid.operators.functions.arithmetic import ARITHMETIC
from braid.operators.functions.casts import CASTS
from braid.operators.functions.characters import CHARACTERS
from braid.operators.functions.comparison import COMPARISON
from braid.operators.functions.differences import DIFFERENCES
from braid.operators.functions.digests import DIGESTS
from braid.operators.functions.formats import FORMATS
from braid.operators.functions.logic import LOGIC
from braid.operators.functions.nested import NESTED
from braid.operators.functions.numbers import NUMBERS
from braid.operators.functions.regular_expressions import REGULAR_EXPRESSIONS
from braid.operators.functions.signature import Function
from braid.operators.functions.text import TEXT
from braid.operators.functions.time import TIME

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        *COMPARISON,
        *LOGIC,
        *ARITHMETIC,
        *NUMBERS,
        *TEXT,
        *CHARACTERS,
        *DIGESTS,
        *REGULAR_EXPRESSIONS,
        *TIME,
        *DIFFERENCES,
        *FORMATS,
        *NESTED,
        *CASTS,
    )
}


def call(name: str, *arguments: Expression) -> Expression:
    """Return the typed call of a function that exists; NotAllowed when the arguments do not fit it."""
    return FUNCTIONS[name](arguments)
