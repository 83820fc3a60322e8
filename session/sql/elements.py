"""What UNNEST gives: the columns of the elements of an array, or of the entries of a map."""

from __future__ import annotations

from braid.operators.functions.coercion import describe
from braid.operators.lookup.unnest import parts_of
from braid.session.sql.expressions import Binder
from braid.session.sql.inputs import Elements, SelectInput
from braid.session.sql.join_scope import JoinScope
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, ELEMENT, Field, Schema

ORDINALITY = "ordinality"


def elements_of(input_: SelectInput, before: JoinScope) -> Elements:
    """Return what an UNNEST gives, over the inputs that come before it; SqlNotAllowed says what is wrong."""
    unnest, sql, at = input_.unnest, before.sql, input_.source.at
    assert unnest is not None
    if not before.inputs:
        raise sql.not_allowed("UNNEST must follow the stream whose array it takes: FROM s, UNNEST(s.items) AS i.", at)
    array = Binder(before, "UNNEST").value(unnest.array)
    if array.type.kind not in ("ARRAY", "MAP"):
        hint = " CAST(… AS …) makes no arrays: declare the column as ARRAY<…>." if array.type.kind == "JSON" else ""
        raise sql.not_allowed(f"UNNEST takes an ARRAY or a MAP; got {describe(array)}.{hint}", unnest.array.at)
    parts = parts_of(array.type)
    canonical = [name or ELEMENT for name, _ in parts]
    names = [name or input_.alias for name, _ in parts]
    kinds = [kind for _, kind in parts]
    if unnest.ordinality:
        canonical.append(next(name for name in (ORDINALITY, f"{ORDINALITY}#") if name not in canonical))
        names.append(ORDINALITY)
        kinds.append(BIGINT)
    if unnest.columns:
        if len(unnest.columns) != len(names):
            raise sql.not_allowed(
                f"UNNEST gives {len(names)} column(s), {', '.join(names)}; {len(unnest.columns)} name(s) follow it.", at
            )
        names = list(unnest.columns)
        reserved = next((name for name in names if name.startswith("_")), None)
        if reserved is not None:
            raise sql.not_allowed(
                f"Names starting with '_' are reserved; got {reserved!r}. Write other names: UNNEST(…) AS i (a, b).", at
            )
    try:
        schema = Schema(tuple(Field(name, kind) for name, kind in zip(names, kinds, strict=True)))
    except NotAllowed as error:
        raise sql.not_allowed(f"{error.detail} Write other names: UNNEST(…) AS i (a, b).", at) from None
    return Elements(array, schema, tuple(canonical))
