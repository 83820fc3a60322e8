"""Acts of damage: files of the data folder that change or go, while the service is killed and while it runs.

What the service needs to go on is refused by its name; put back, all goes on as if nothing had been. Results that are
lost are a gap, told once to the one whose rows they were.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from braid.engine.data_layout import BATCHES, CHANGELOGS, PARTITIONS, PLANS
from braid.engine.recovery.checkpoint import OFFSETS
from braid.operators.state.partition_state import unpack
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage
from tests.chaos.arena import ARROW, RECOVERY_SECONDS, START_US, Act, Arena, arrow_body
from tests.kit.damage import Damage, Damaged, in_last_line, removed, with_any_bit_flipped
from tests.kit.waiting import wait_until

KEYS = 60_000  # so many that buckets are files


def a_bit_of_state_is_flipped(arena: Arena) -> None:
    """The service is killed, and one bit of a file that it needs to go on is another then."""
    _start_refused_with(arena, with_any_bit_flipped(arena.rng))


def a_file_of_state_is_gone(arena: Arena) -> None:
    """The service is killed, and a file that it needs to go on is gone then."""
    _start_refused_with(arena, removed)


def a_block_of_rows_is_damaged(arena: Arena) -> None:
    """One bit of a block of rows that nobody has read yet is flipped."""
    _rows_lost_by(arena, with_any_bit_flipped(arena.rng))


def a_block_of_rows_is_gone(arena: Arena) -> None:
    """A block of rows that nobody has read yet is gone."""
    _rows_lost_by(arena, removed)


def _start_refused_with(arena: Arena, damage: Damage) -> None:
    service, stream = arena.service, arena.stream()
    query = arena.running(f"SELECT v, COUNT(*) AS n FROM {stream} [RANGE 10 SECONDS] GROUP BY v")
    if query is None:
        return
    push_keys(arena, stream, START_US)
    service.kill()
    wait_until(lambda: not service.left_over(), RECOVERY_SECONDS, "what the service started is gone")
    path = arena.rng.choice(needed_files(arena))
    with Damaged([service.data_dir / path], in_last_line(damage) if path.startswith(OFFSETS) else damage):
        refusal = service.refusal()
    assert path in refusal, f"without {path}: {refusal}"
    service.revive()
    push_keys(arena, stream, START_US + 20_000_000)
    wait_until(lambda: arena.rows_out(query) >= KEYS, RECOVERY_SECONDS, lambda: f"{arena.rows_out(query)} rows come")
    lines = arena.answered(f"/queries/{query}/results?limit={2 * KEYS}", {"Accept": "application/x-ndjson"})
    rows = [orjson.loads(line) for line in lines.content.splitlines()]
    assert sorted((row["v"], row["n"]) for row in rows) == [(v, 1) for v in range(KEYS)]


def push_keys(arena: Arena, stream: str, time_us: int) -> None:
    """Push a tuple a key, all of one time, and wait until they are read."""
    before = arena.answered(f"/streams/{stream}").json()["tuples"]
    times = pa.array(np.full(KEYS, time_us), pa.timestamp("us"))
    body = arrow_body(pa.record_batch({"v": np.arange(KEYS), "time": times}))
    pushed = wait_until(lambda: arena.push(stream, body, ARROW), RECOVERY_SECONDS, "a push is answered")
    assert pushed.status_code == 200, pushed.text
    wait_until(
        lambda: arena.answered(f"/streams/{stream}").json()["tuples"] == before + KEYS, RECOVERY_SECONDS, "all is read"
    )


def needed_files(arena: Arena) -> list[str]:
    """Return a path of each kind of file without which no batch can be run."""
    storage = Storage(str(arena.service.data_dir))
    batches = RecordLog(storage, BATCHES)
    record = batches.read(batches.latest())
    manifests = sorted(record["partitions"].values())
    entries = sorted(entry for path in manifests for entry in orjson.loads(storage.get(path))["entries"].values())
    buckets = sorted(payload.path for entry in entries for payload in unpack(storage.get(entry)) if payload.path)
    plan = max((number for name in storage.names(PLANS) if (number := file_number(name)) <= record["epoch"]), default=0)
    changelogs = [f"{CHANGELOGS}/{epoch:012d}.json" for epoch in range(plan + 1, record["epoch"] + 1)]
    newest = f"{BATCHES}/{batches.latest():012d}.json", f"{OFFSETS}/{batches.latest() - 1}", PARTITIONS
    kinds = manifests, entries, buckets, changelogs, *([path] for path in newest)
    return [arena.rng.choice(kind) for kind in kinds if kind]


def _rows_lost_by(arena: Arena, damage: Damage) -> None:
    stream = arena.stream()
    query = arena.running(f"SELECT v FROM {stream}")
    if query is None:
        return
    push_keys(arena, stream, START_US)
    wait_until(lambda: arena.rows_out(query) == KEYS, RECOVERY_SECONDS, "the rows are there")
    path = f"/queries/{query}/results"
    with Damaged(_blocks_of(arena, query), damage):
        lost = arena.answered(path).json()
        assert lost["rows"] == []
        assert "results/" in lost["gap"]["detail"]
        push_keys(arena, stream, START_US + 1)
        wait_until(lambda: arena.rows_out(query) == 2 * KEYS, RECOVERY_SECONDS, "more rows are there")
        rest = arena.answered(f"{path}?after={lost['cursor']}").json()
        assert rest.get("gap") is None, rest["gap"]
        assert rest["rows"][0] == {"v": 0}


def _blocks_of(arena: Arena, query: str) -> list[Path]:
    """Return the files of rows that a query has, of those that it shares with nobody."""
    slot = arena.answered(f"/queries/{query}").json()["slot"]
    batches = RecordLog(Storage(str(arena.service.data_dir)), BATCHES)
    newest = [batches.read(number) for number in batches.numbers()[-20:]]
    return [
        arena.service.data_dir / block["path"]
        for record in newest
        for block in record["results"]
        if block["slots"] == [slot]
    ]


DAMAGES: tuple[Act, ...] = (
    a_bit_of_state_is_flipped, a_file_of_state_is_gone, a_block_of_rows_is_damaged, a_block_of_rows_is_gone,
)  # fmt: skip
