"""The thesis's data generator (section 3.5.1) as a connector: game purchases and advertisements at a constant rate.

Tuple ``i`` has event time ``created_us + i * 10**6 // rate``; its other values depend on data set, seed and ``i`` only
(counter-based random numbers), so any process reads the same tuples again without anything being stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from braid.sources.connectors.connector import Chunk, Extent
from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import did_you_mean
from braid.sources.core.schema import BIGINT, DOUBLE, INT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import OPTIONS

DATASETS: dict[str, tuple[Field, ...]] = {
    "purchases": (
        Field("user_id", BIGINT),
        Field("gem_pack", INT),
        Field("price", DOUBLE),
        Field("time", TIMESTAMP),
    ),
    "ads": (Field("user_id", BIGINT), Field("gem_pack", INT), Field("time", TIMESTAMP)),
}
DISTRIBUTIONS = ("uniform", "normal")
PARTITION = "0"
BLOCK_TUPLES = 65_536
GEM_PACKS = 10
MIN_CENTS, MAX_CENTS = 99, 9_999
SECOND = 10**6
MAX_RATE = 10_000_000
MAX_KEYS = 2**31
MAX_SEED = 2**63 - 1
DEVIATIONS = 8  # user ids span so many standard deviations when they are normally distributed


@dataclass(frozen=True)
class GeneratorOptions:
    """What a generated stream looks like; ``rate`` in tuples a second, ``keys`` distinct user ids."""

    dataset: str
    rate: int = 1000
    seed: int = 0
    keys: int = 1000
    distribution: str = "uniform"

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise NotAllowed(f"The generator's dataset must be one of {_listed(DATASETS)}; got {self.dataset!r}.")
        if self.distribution not in DISTRIBUTIONS:
            raise NotAllowed(
                f"The generator's distribution must be one of {_listed(DISTRIBUTIONS)}; got {self.distribution!r}."
            )
        for name, value, least, most in (
            ("rate", self.rate, 1, MAX_RATE),
            ("keys", self.keys, 1, MAX_KEYS),
            ("seed", self.seed, 0, MAX_SEED),
        ):
            if not least <= value <= most:
                raise NotAllowed(f"The generator's {name} must lie in {least}..{most}; got {value}.")


def validate_options(name: str, schema: StreamSchema, options: Mapping[str, str]) -> GeneratorOptions:
    """Return the options of a generated stream called ``name``; NotAllowed says what is supported instead.

    The stream may have some of the data set's columns, in any order, with the data set's types.
    """
    known = ("dataset", "rate", "seed", "keys", "distribution")
    for option in options:
        if option not in known:
            meant = did_you_mean(option, (*known, *OPTIONS))
            raise NotAllowed(f"Connector 'generator' has no option {option!r}. It has {_listed(known)}.{meant}")
    values = dict(options)
    if "dataset" not in values:
        if name.lower() not in DATASETS:
            raise NotAllowed(
                f"A generated stream of another name than its data, {_listed(DATASETS)}, must name them: WITH (…,"
                f" dataset = 'purchases'); got stream {name!r}."
            )
        values["dataset"] = name
    numbers = {n: _number(n, values[n]) for n in ("rate", "seed", "keys") if n in values}
    parsed = GeneratorOptions(
        values["dataset"].lower(), **numbers, distribution=values.get("distribution", DISTRIBUTIONS[0]).lower()
    )
    types = {f.name: f.type for f in DATASETS[parsed.dataset]}
    columns = ", ".join(f"{n} {t}" for n, t in types.items())
    for field in schema.fields:
        if types.get(field.name.lower()) != field.type:
            raise NotAllowed(f"Dataset {parsed.dataset!r} has the columns {columns}; got {field.name} {field.type}.")
    return parsed


class GeneratorConnector:
    """Tuples made up on demand; one partition, ``"0"``."""

    problem: str | None = None

    def __init__(self, definition: StreamDefinition) -> None:
        self._options = validate_options(definition.name, definition.schema, definition.options)
        self._schema = definition.schema.arrow
        self._names = [name.lower() for name in definition.schema.names]
        self._created_us = definition.created_us
        self._latest = 0

    def available(self, now_us: int) -> dict[str, Extent]:
        """Return those tuples that have an event time up to ``now_us``; never less than said before."""
        elapsed = now_us - self._created_us
        if elapsed >= 0:
            self._latest = max(self._latest, ((elapsed + 1) * self._options.rate - 1) // SECOND + 1)
        return {PARTITION: Extent(0, self._latest)}

    def bounds(self) -> None:
        """Return None: there are none."""

    def oldest(self) -> dict[str, int]:
        """Return the first tuple: all can be made again."""
        return {PARTITION: 0}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the tuples ``[start, end)`` in chunks of at most BLOCK_TUPLES."""
        if partition != PARTITION:
            raise ValueError(f"A generated stream has partition {PARTITION!r} only, got {partition!r}.")
        while start < end:
            number, low = divmod(start, BLOCK_TUPLES)
            high = min(BLOCK_TUPLES, low + end - start)
            block = _block(self._options, number)
            times = self._times(start, high - low)
            columns = [times if n == "time" else block[n].slice(low, high - low) for n in self._names]
            tuples = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            yield Chunk(tuples, (), times[-1].value, tuples.nbytes)
            start += high - low

    def _times(self, first: int, count: int) -> pa.Array:
        rate = self._options.rate
        seconds, number = divmod(first, rate)  # so that no product leaves 64 bits
        offsets_us = (np.arange(number, number + count, dtype=np.int64) * SECOND) // rate
        return pa.array(offsets_us + (self._created_us + seconds * SECOND)).view(pa.timestamp("us"))


@lru_cache(maxsize=8)
def _block(options: GeneratorOptions, number: int) -> dict[str, pa.Array]:
    """Return the values of the tuples ``number * BLOCK_TUPLES`` and on, one 64-bit random number for each.

    Its upper 32 bits choose the user, the next 16 the gem pack, the last 16 the price.
    """
    dataset = list(DATASETS).index(options.dataset)
    bits = np.random.Philox(key=[options.seed, dataset], counter=[0, number, 0, 0])
    random = bits.random_raw(BLOCK_TUPLES)
    packs = (((random >> np.uint64(16)) & np.uint64(0xFFFF)) * np.uint64(GEM_PACKS)) >> np.uint64(16)
    span = np.uint64(MAX_CENTS - MIN_CENTS + 1)
    cents = (((random & np.uint64(0xFFFF)) * span) >> np.uint64(16)) + np.uint64(MIN_CENTS)
    if options.distribution == "uniform":
        users = ((random >> np.uint64(32)) * np.uint64(options.keys)) >> np.uint64(32)
    else:
        normal = np.random.Generator(bits).standard_normal(BLOCK_TUPLES)
        users = (normal * (options.keys / DEVIATIONS) + options.keys / 2).clip(0, options.keys - 1)
    return {
        "user_id": pa.array(users.astype(np.int64)),
        "gem_pack": pa.array(packs.astype(np.int32)),
        "price": pa.array(cents.astype(np.float64) / 100),
    }


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise NotAllowed(f"The generator's {name} must be a whole number, such as {name} = '1000'; got {text!r}.")
    return int(text)


def _listed(names: Mapping[str, object] | tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names)
