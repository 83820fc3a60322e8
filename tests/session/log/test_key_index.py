"""Keys are found in the segments that have them, and take few bytes."""

from __future__ import annotations

import tracemalloc

from braid.session.log.key_index import KeyIndex


def test_a_key_is_found_in_all_its_segments_the_newest_first() -> None:
    index = KeyIndex()
    for segment in range(1, 40):
        index.add(segment, [f"k-{segment}-{number}" for number in range(50)] + ["again"] * (segment % 10 == 0))
    for segment in (1, 7, 39):
        assert index.find(f"k-{segment}-49") == [segment]
    assert index.find("again") == [30, 20, 10]
    assert index.find("unknown") == []
    index.remove(range(1, 21))
    assert index.find("again") == [30]
    assert index.find("k-7-0") == []
    assert index.find("k-21-0") == [21]


def test_keys_take_twelve_bytes_and_those_of_removed_segments_give_back_their_room() -> None:
    keys = 100_000
    tracemalloc.start()
    try:
        index = KeyIndex()
        for segment in range(200):
            index.add(segment, [f"{segment}-{number}" for number in range(keys // 200)])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 16 * keys
    index.remove(range(150))
    assert len(index) == keys // 4
