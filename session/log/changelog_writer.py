"""Changelogs as they come: cut from what waits, applied to the state, written for the data plane.

A changelog is applied, then written: once it is cut its epoch says this and nothing else, also where the disk is full
and it is written later. Until it is written no other is cut and no snapshot is taken. All of this is done by the
session's writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from braid.engine.data_layout import CHANGELOGS
from braid.operators.joins.key_splits import KeySplit
from braid.session.log.changelog_cutter import cut_changelog
from braid.session.log.changelog_history import ChangelogHistory
from braid.session.state.changelog import Changelog
from braid.session.state.session_state import SessionState
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage


class ChangelogWriter:
    """The writing end of the changelog log; ``history`` shows it."""

    def __init__(self, storage: Storage, state: SessionState, lock: threading.RLock) -> None:
        self._log = RecordLog(storage, CHANGELOGS)
        self._state = state
        self._lock = lock
        self._unwritten: Changelog | None = None
        self.history = ChangelogHistory(self._log)

    @property
    def is_behind(self) -> bool:
        """Whether a changelog is applied and not written."""
        return self._unwritten is not None

    def cut(
        self,
        now_us: int,
        timed_out: Iterable[str],
        free_since_us: int,
        groups: Mapping[str, int] | None = None,
        splits: Mapping[str, KeySplit] | None = None,
    ) -> Changelog | None:
        """Cut a changelog of all that waits and write it; see
        :func:`~braid.session.log.changelog_cutter.cut_changelog`.

        A former one that could not be written is written first. Return the new one, None when it would say nothing.
        """
        self.catch_up()
        changelog = cut_changelog(self._state, now_us, timed_out, free_since_us, groups, splits)
        if changelog is not None:
            with self._lock:
                self._state.apply_changelog(changelog)
            self._unwritten = changelog
            self.catch_up()
        return changelog

    def catch_up(self) -> None:
        """Write a changelog that is applied and not written, if there is one."""
        if self._unwritten is not None:
            record = self._unwritten.to_json()
            self._log.append(self._unwritten.epoch, record)
            self.history.append(self._unwritten.epoch, record)
            self._unwritten = None
