"""What tests of operators share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators import pipeline


@pytest.fixture(scope="module", params=["in cells", "some alone"])
def some_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a module's tests with all aggregations in cells, and with those in even slots each alone."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "some alone":
            patch.setattr(pipeline, "is_alone", lambda slot: slot % 2 == 0)
        yield
