"""Workloads: which streams, which queries, which load. Each is a small file in `workloads/`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "workloads"
SHAPES = ("sustainable", "churn", "fluctuating")
TEMPLATES = ("rovio-aggregation", "rovio-join", "aggregation", "join", "complex", "n-way")


@dataclass(frozen=True)
class StreamSpec:
    """A generated stream: its name in SQL, and what `queues/datasets.py` makes up for it."""

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ramp:
    """Workloads of up to `queries` queries are posted at `per_second` queries a second (thesis 4.4.5)."""

    queries: int
    per_second: float


@dataclass(frozen=True)
class Churn:
    """Every `every_seconds`, `queries` queries are made and as many of the oldest retired (thesis 4.4.6)."""

    queries: int
    every_seconds: float


@dataclass(frozen=True)
class Workload:
    """A workload; rates in tuples a second and stream.

    `shape` says what is measured: the sustainable throughput; the same while queries come and go; or latency while the
    rate goes through `profile`, shares of the sustainable throughput. `counts` are the numbers of queries measured
    unless the command says otherwise. `options` belong to the query generator that `template` names.
    """

    name: str
    about: str
    source: str
    streams: tuple[StreamSpec, ...]
    template: str
    options: Mapping[str, Any]
    counts: tuple[int, ...]
    start_rate: int
    shape: str = "sustainable"
    ramps: tuple[Ramp, ...] = ()
    churns: tuple[Churn, ...] = ()
    profile: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"a workload's shape must be one of {SHAPES}, got {self.shape!r}")
        if self.template not in TEMPLATES:
            raise ValueError(f"a workload's template must be one of {TEMPLATES}, got {self.template!r}")
        if not self.streams or not self.counts or self.start_rate <= 0:
            raise ValueError(f"workload {self.name!r} needs streams, counts and a positive start_rate")
        if (self.shape == "churn") != bool(self.churns):
            raise ValueError(f"workload {self.name!r}: churns belong to shape 'churn' and only there")
        if (self.shape == "fluctuating") != bool(self.profile):
            raise ValueError(f"workload {self.name!r}: a profile belongs to shape 'fluctuating' and only there")

    def per_second(self, queries: int) -> float:
        """Return how many queries a second are posted until there are `queries`."""
        for ramp in sorted(self.ramps, key=lambda ramp: ramp.queries):
            if queries <= ramp.queries:
                return ramp.per_second
        return self.ramps[-1].per_second if self.ramps else 100.0


def list_workloads() -> list[str]:
    """Return the names of all workloads, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_workload(name: str) -> Workload:
    """Return a workload by name.

    Raises:
        ValueError: there is no such file, or it does not describe a workload; the text names what there is.
    """
    path = FOLDER / f"{name}.toml"
    if name not in list_workloads():
        raise ValueError(f"there is no workload {name!r}; there are {', '.join(list_workloads())}")
    try:
        return parse_workload(name, tomllib.loads(path.read_text(encoding="utf-8")))
    except (TypeError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path.name} does not describe a workload: {error}") from error


def parse_workload(name: str, document: Mapping[str, Any]) -> Workload:
    """Return the workload that a parsed file describes."""
    rest = dict(document)
    queries = dict(rest.pop("queries"))
    load = dict(rest.pop("load"))
    return Workload(
        name=name,
        streams=tuple(StreamSpec(s.pop("name"), s.pop("dataset"), s) for s in map(dict, rest.pop("streams"))),
        template=queries.pop("template"),
        counts=tuple(queries.pop("counts")),
        ramps=tuple(Ramp(**ramp) for ramp in queries.pop("ramps", ())),
        churns=tuple(Churn(**churn) for churn in queries.pop("churns", ())),
        options=queries,
        start_rate=load.pop("start_rate"),
        shape=load.pop("shape", "sustainable"),
        profile=tuple(load.pop("profile", ())),
        **load,
        **rest,
    )
