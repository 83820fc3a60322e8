"""The registry of scalar functions: what a :class:`operators.expressions.Call` may name.

``call("<", column, literal)`` gives the typed call, or NotAllowed; :mod:`operators.evaluation` computes it.
"""

from __future__ import annotations

from operators.expressions import Expression
from operators.functions.arithmetic import ARITHMETIC
from operators.functions.casts import CASTS
from operators.functions.characters import CHARACTERS
from operators.functions.comparison import COMPARISON
from operators.functions.differences import DIFFERENCES
from operators.functions.digests import DIGESTS
from operators.functions.formats import FORMATS
from operators.functions.logic import LOGIC
from operators.functions.numbers import NUMBERS
from operators.functions.regular_expressions import REGULAR_EXPRESSIONS
from operators.functions.signature import Function
from operators.functions.text import TEXT
from operators.functions.time import TIME

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
        *CASTS,
    )
}


def call(name: str, *arguments: Expression) -> Expression:
    """Return the typed call of a function that exists; NotAllowed when the arguments do not fit it."""
    return FUNCTIONS[name](arguments)
