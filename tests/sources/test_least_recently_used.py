"""The cache of what is derived from blocks: bounded, and made once however many ask for it."""

from __future__ import annotations

import threading

import pytest

from braid.sources.core.least_recently_used import LeastRecentlyUsed

WAIT = 20.0


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: LeastRecentlyUsed[str] = LeastRecentlyUsed(6, len)
    for word in ("aa", "bb", "cc", "aa", "dd"):
        assert cache.get(word, lambda word=word: word) == word
    assert len(cache) == 3
    assert cache.get("aa", lambda: "anew") == "aa"
    assert cache.get("bb", lambda: "anew") == "anew"


def test_one_thread_makes_a_value_and_others_wait_for_it() -> None:
    cache: LeastRecentlyUsed[object] = LeastRecentlyUsed(10, lambda _: 1)
    begun, go_on = threading.Event(), threading.Event()
    values_made: list[object] = []

    def make() -> object:
        begun.set()
        assert go_on.wait(WAIT)
        values_made.append(object())
        return values_made[-1]

    values_got: list[object] = []
    threads = [threading.Thread(target=lambda: values_got.append(cache.get("key", make))) for _ in range(8)]
    threads[0].start()
    assert begun.wait(WAIT)
    for thread in threads[1:]:
        thread.start()
    assert cache.get("other", lambda: "not kept waiting") == "not kept waiting"
    go_on.set()
    for thread in threads:
        thread.join(WAIT)
    assert values_got == values_made * 8
    assert len(values_made) == 1


def test_after_a_failure_the_next_one_tries() -> None:
    cache: LeastRecentlyUsed[int] = LeastRecentlyUsed(10, lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 // 0)
    assert cache.get("key", lambda: 2) == 2
