"""Schemas of plans and changelogs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from braid.api.schemas.queries import QueryState


class Window(TypedDict):
    """A window of a query."""

    kind: Literal["tumbling", "hopping", "session"]
    size_seconds: NotRequired[float]
    slide_seconds: NotRequired[float]
    offset_seconds: NotRequired[float]
    gap_seconds: NotRequired[Annotated[float, Field(description="Of sessions, which have neither size nor slide")]]


class SplitKeys(TypedDict):
    """Frequent keys of a join that are split among partitions."""

    keys: int
    spread: Annotated[str, Field(description="The stream whose rows are spread")]
    by: NotRequired[list[str]]


class OperatorStatistics(TypedDict):
    """How many cores an operator keeps busy, and how many keys it has."""

    source_cores: float
    partition_cores: float
    distinct_keys: int | None


class PlanNode(TypedDict):
    """A stream, a static table, an operator, the router or a query; only operators have the fields after `name`."""

    id: str
    kind: str
    name: NotRequired[str]
    streams: NotRequired[list[str]]
    tables: NotRequired[list[str]]
    partitioned_by: NotRequired[list[str]]
    queries: NotRequired[int]
    alone: NotRequired[Annotated[int, Field(description="How many of its queries share no cells")]]
    groups: NotRequired[Annotated[dict[str, int], Field(description="How many queries each query group has")]]
    split: NotRequired[SplitKeys]
    windows: NotRequired[list[Window]]
    query_ids: NotRequired[list[str]]
    statistics: NotRequired[OperatorStatistics]


class PlanEdge(TypedDict):
    """The way of rows from one node to another."""

    source: str
    target: str


class Graph(TypedDict):
    """Nodes and edges of a plan."""

    nodes: list[PlanNode]
    edges: list[PlanEdge]


class BeforeAndAfter(TypedDict):
    """A number before and after a change; null where it is not known."""

    before: float | None
    after: float | None


class PlanChange(TypedDict):
    """A change of query groups or split keys, and why."""

    at: datetime
    operator: str
    kind: str
    why: str
    queries: int
    estimated_cores: BeforeAndAfter
    measured_us_per_tuple: BeforeAndAfter
    keys: NotRequired[int]
    measured_busiest_partition: NotRequired[BeforeAndAfter]


class ExecutorDecision(TypedDict):
    """How many executors were wanted from a time on, and why."""

    at: datetime
    wanted: int
    why: str


class Executors(TypedDict):
    """How many executors there are and should be."""

    now: int | None
    wanted: int | None
    bounds: Annotated[list[int] | None, Field(description="The least and the most")]
    why: str
    since: datetime | None
    decisions: list[ExecutorDecision]


class PartitionLoad(TypedDict):
    """How many cores a partition keeps busy."""

    partition: int
    cores: float


class Plan(Graph):
    """How all queries run and share."""

    version: int
    changes: NotRequired[list[PlanChange]]
    executors: NotRequired[Executors]
    partitions: NotRequired[list[PartitionLoad]]


class Evaluation(TypedDict):
    """In which form rows are brought to a query."""

    form: str
    why: str


class SharedWith(TypedDict):
    """The other queries of an operator."""

    count: int
    ids: Annotated[list[str], Field(description="A few of them")]


class QueryGroup(TypedDict):
    """Queries that are evaluated together."""

    number: int
    queries: int


class QueryStatistics(TypedDict):
    """What comes in for a query, what it selects of that, and what it costs."""

    tuples_per_second: dict[str, float | None]
    selectivity: dict[str, float | None]
    sampled_tuples: dict[str, int]
    cores: float | None
    cost_share: Annotated[float | None, Field(description="Its part of what all operators cost")]


class JoinInput(TypedDict):
    """What is known of an input of a join."""

    input: str
    tuples: float | None
    distinct_keys: dict[str, float | None]


class JoinStep(TypedDict):
    """An input that is joined with those before it."""

    joined: list[str]
    rows: float | None
    cost: float | None
    shared_by: int
    shared_cost: float | None


class SharedOrder(TypedDict):
    """An order of inputs, and its cost where queries share what they can."""

    order: list[str]
    cost: float | None


class JoinOrder(TypedDict):
    """The estimated order of the inputs of a join."""

    order: list[str]
    combinations: Literal["counted", "formed"]
    inputs: list[JoinInput]
    steps: list[JoinStep]
    cost: float | None
    max_shared: SharedOrder
    partition_cores: float | None
    why: str


class HowQueryRuns(TypedDict):
    """What is common to all plans of one query."""

    kind: str
    operator: str
    streams: list[str]
    tables: list[str]
    partitioned_by: list[str]
    window: Window | None
    emit: str | None
    predicate_columns: list[str]
    evaluation: Evaluation
    shares_with: SharedWith
    group: QueryGroup | None
    plan_version: int
    why: str
    statistics: QueryStatistics
    join_order: JoinOrder | None


class ResultColumn(TypedDict):
    """A column of a query's rows."""

    name: str
    type: str
    role: Annotated[
        Literal["window_start", "window_end", "group", "sum", "aggregate"] | None,
        Field(description="`sum` adds up over groups, `group` depends on GROUP BY alone; null where rows are single"),
    ]


class QueryPlan(HowQueryRuns, Graph):
    """How a query runs and with which others it shares."""

    id: str
    name: str | None
    state: QueryState
    columns: list[ResultColumn]


class ExplainedQuery(HowQueryRuns):
    """How a query would run and with which others it would share."""

    columns: list[ResultColumn]
    plan: Graph


class ExplainedStatement(ExplainedQuery, Graph):
    """How the query of an EXPLAIN would run; the plan is in it twice."""


class ChangedQuery(TypedDict):
    """A query that a changelog changes."""

    id: str
    slot: int
    operator: NotRequired[Annotated[str, Field(description="Of a created one")]]
    drain: NotRequired[Annotated[bool, Field(description="Of a deleted one")]]
    group: NotRequired[Annotated[int, Field(description="Of a regrouped one")]]


class ChangedKeys(TypedDict):
    """Keys of an operator that are split from a changelog on."""

    operator: str
    keys: int


class Changelog(TypedDict):
    """What changed at an epoch."""

    epoch: int
    created_at: datetime
    why: str
    created: list[ChangedQuery]
    deleted: list[ChangedQuery]
    freed: list[ChangedQuery]
    regrouped: list[ChangedQuery]
    split: list[ChangedKeys]
    streams_created: Annotated[list[str], Field(description="Names")]
    streams_dropped: Annotated[list[str], Field(description="Ids")]
    changelog_set: Annotated[str, Field(description="A bit for each slot: 1 where its query stayed the same")]
    capacity: Annotated[int, Field(description="How many slots there are")]
    plan_version: int


class Changelogs(TypedDict):
    """Changelogs in the order of their epochs."""

    changelogs: list[Changelog]
