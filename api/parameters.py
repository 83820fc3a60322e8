"""Query parameters that several calls share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator

MOST_ROWS = 100_000
LONGEST_WAIT_SECONDS = 60.0


Limit = Annotated[
    int,
    Query(ge=1, description=f"Most rows of one answer; more than {MOST_ROWS} counts as {MOST_ROWS}."),
    AfterValidator(lambda rows: min(rows, MOST_ROWS)),
]
After = Annotated[str | None, Query(description="The cursor of an earlier answer; without one, from the beginning.")]
Wait = Annotated[
    float,
    Query(ge=0, description=f"Seconds to wait; more than {LONGEST_WAIT_SECONDS:g} counts as that."),
    AfterValidator(lambda seconds: min(seconds, LONGEST_WAIT_SECONDS)),
]
Drain = Annotated[bool, Query(description="Still emit the windows that are complete; `false` stops at once.")]
