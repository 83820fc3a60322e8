"""When the optimizer looks at the running queries again."""

from __future__ import annotations

from pathlib import Path

from braid.optimizer.statistics import Statistics
from braid.session.settings import Settings
from braid.session.upkeep.reoptimization import Reoptimization
from braid.sources.core.storage import Storage

SECOND = 1_000_000
HOUR = 3600 * SECOND


def test_it_is_due_after_each_period_and_when_the_clock_was_set_back(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path), reoptimize_seconds=10)
    reoptimization = Reoptimization(Storage(str(tmp_path)), settings, Statistics())
    times = (HOUR, HOUR + 9 * SECOND, HOUR + 10 * SECOND, HOUR + 19 * SECOND, 5 * SECOND, 14 * SECOND, 15 * SECOND)
    assert [reoptimization.is_due(now_us) for now_us in times] == [False, False, True, False, True, False, True]
