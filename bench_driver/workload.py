"""Workloads: which streams, which queries, which load. Each is a small file in `workloads/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from braid.bench_driver.queues.schedule import Share

FOLDER = Path(__file__).parent / "workloads"
SHAPES = ("sustainable", "churn", "fluctuating")
TEMPLATES = (
    "rovio-aggregation",
    "rovio-join",
    "aggregation",
    "shared-data",
    "join",
    "ordered-join",
    "complex",
    "n-way",
    "ring",
    "mixed",
    "nexmark",
)


@dataclass(frozen=True)
class StreamSpec:
    """A generated stream: its name in SQL, what `queues/datasets.py` makes up for it, and its share of the rate."""

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    share: Share = field(default_factory=Share)


@dataclass(frozen=True)
class Ramp:
    """Workloads of up to `queries` queries are posted at `per_second` queries a second (thesis 4.4.5)."""

    queries: int
    per_second: float


@dataclass(frozen=True)
class Churn:
    """Every `every_seconds`, `queries` queries are made and as many of the oldest retired (thesis 4.4.6).

    So many stand from the beginning, too: each round replaces all of them.
    """

    queries: int
    every_seconds: float


@dataclass(frozen=True)
class StartRate:
    """The rate that the search begins with where up to `queries` queries run, in tuples a second and stream."""

    queries: int
    rate: int


@dataclass(frozen=True)
class Workload:
    """A workload; rates in tuples a second and stream, or of all streams where each has a share of them.

    `shape` says what is measured: the sustainable throughput; the same while queries come and go; or latency while the
    rate goes through `profile`, shares of the sustainable throughput. `counts` are the numbers of queries measured
    unless the command says otherwise; of a churn workload, which states none, those of its churns, of NEXMark each of
    its `queries` once. `options` belong to the query generator that `template` names. `tables` are static tables that
    the queries may join with. The search begins with `start_rate`, or with that of `start_rates` for so many queries.
    """

    name: str
    about: str
    source: str
    streams: tuple[StreamSpec, ...]
    template: str
    options: Mapping[str, Any]
    counts: tuple[int, ...]
    start_rate: int
    start_rates: tuple[StartRate, ...] = ()
    tables: tuple[str, ...] = ()
    shape: str = "sustainable"
    ramps: tuple[Ramp, ...] = ()
    churns: tuple[Churn, ...] = ()
    profile: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"a workload's shape must be one of {SHAPES}, got {self.shape!r}")
        if self.template not in TEMPLATES:
            raise ValueError(f"a workload's template must be one of {TEMPLATES}, got {self.template!r}")
        if not self.streams or not self.counts or min(self.counts) < 1 or self.start_rate <= 0:
            raise ValueError(f"workload {self.name!r} needs streams, counts from 1 on and a positive start_rate")
        if len({stream.name for stream in self.streams}) != len(self.streams):
            raise ValueError(f"workload {self.name!r}: every stream needs a name of its own")
        if (self.shape == "churn") != bool(self.churns):
            raise ValueError(f"workload {self.name!r}: churns belong to shape 'churn' and only there")
        if (self.shape == "fluctuating") != bool(self.profile):
            raise ValueError(f"workload {self.name!r}: a profile belongs to shape 'fluctuating' and only there")

    def per_second(self, queries: int) -> float:
        """Return how many queries a second are posted until there are `queries`."""
        ramps = sorted(self.ramps, key=lambda ramp: ramp.queries)
        for ramp in ramps:
            if queries <= ramp.queries:
                return ramp.per_second
        return ramps[-1].per_second if ramps else 100.0

    def first_rate(self, queries: int) -> int:
        """Return the rate that the search begins with where so many queries run."""
        fitting = [start for start in self.start_rates if queries <= start.queries]
        return min(fitting, key=lambda start: start.queries).rate if fitting else self.start_rate

    def churn(self, queries: int) -> Churn | None:
        """Return the churn while `queries` queries stand, None when they stay.

        That is the largest churn of at most so many queries; when all are larger, the smallest, cut down to them.
        """
        if not self.churns:
            return None
        fitting = [churn for churn in self.churns if churn.queries <= queries]
        if fitting:
            return max(fitting, key=lambda churn: churn.queries)
        return replace(min(self.churns, key=lambda churn: churn.queries), queries=queries)


def list_workloads() -> list[str]:
    """Return the names of all workloads, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return a workload by name, with other options of its queries if they follow: `ajoin-sc1:ways=[3]`.

    Raises:
        ValueError: there is no such file or option, or it does not describe a workload; the text names what there is.
    """
    file, *changes = name.split(":")
    path = FOLDER / f"{file}.toml"
    if file not in list_workloads():
        raise ValueError(f"there is no workload {file!r}; there are {', '.join(list_workloads())}")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        workload = parse_workload(name, document)
    except (TypeError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path.name} does not describe a workload: {error}") from error
    return parse_workload(name, {**document, "queries": {**document["queries"], **_options(workload, changes)}})


def _options(workload: Workload, changes: Sequence[str]) -> dict[str, Any]:
    try:
        options = tomllib.loads("\n".join(changes))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"options follow a workload's name as :NAME=VALUE, got {workload.name!r}: {error}") from error
    if unknown := options.keys() - workload.options.keys():
        available = ", ".join(sorted(workload.options))
        raise ValueError(
            f"{workload.name!r}: there is no option {sorted(unknown)[0]!r} of its queries; there are {available}"
        )
    return options


def parse_workload(name: str, document: Mapping[str, Any]) -> Workload:
    """Return the workload that a parsed file describes.

    An entry of `streams` has a `name`, or `names` for several streams alike, and may have a `share`: `[3, 50]`.
    """
    rest = dict(document)
    queries = dict(rest.pop("queries"))
    load = dict(rest.pop("load"))
    churns = tuple(Churn(**churn) for churn in queries.pop("churns", ()))
    return Workload(
        name=name,
        streams=tuple(stream for entry in rest.pop("streams") for stream in _streams(dict(entry))),
        template=queries.pop("template"),
        counts=tuple(queries.pop("counts", [churn.queries for churn in churns] or [len(queries.get("queries", ()))])),
        ramps=tuple(Ramp(**ramp) for ramp in queries.pop("ramps", ())),
        churns=churns,
        options=queries,
        start_rate=load.pop("start_rate"),
        start_rates=tuple(StartRate(**start) for start in load.pop("start_rates", ())),
        tables=tuple(rest.pop("tables", ())),
        shape=load.pop("shape", "sustainable"),
        profile=tuple(load.pop("profile", ())),
        **load,
        **rest,
    )


def _streams(entry: dict[str, Any]) -> list[StreamSpec]:
    names = entry.pop("names") if "names" in entry else [entry.pop("name")]
    dataset, share = entry.pop("dataset"), Share(*entry.pop("share", ()))
    return [StreamSpec(name, dataset, entry, share) for name in names]
