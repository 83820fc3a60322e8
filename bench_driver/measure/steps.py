"""One step of a measurement: offer tuples at a rate or a profile of rates, wait, and read what came of it.

A system that pulls from the queues is offered a rate by its generators. One with a generator of its own is told the
rate; as fast as it can is its sustainable rate already, because such a generator waits for the system, but for joins:
what their windows cost grows with the square of the rate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from braid.bench_driver.measure import latency, throughput
from braid.bench_driver.measure.search import StepResult
from braid.bench_driver.queues.process import Pull, QueueProcess, QueueSample
from braid.bench_driver.queues.schedule import Schedule, Share
from braid.bench_driver.systems.system import QUEUE, System, SystemFailedError, SystemOutput

# a step begins this far in the future, so that the queues of all streams begin at the same moment
LEAD_SECONDS = 0.2
LOOK_SECONDS = 0.25
# between steps the queues run at this share of the rate, until what waits is not older than this
SETTLING_SHARE = 0.05
SETTLED_SECONDS = 1.5

Profile = Sequence[tuple[float, int]]
Tell = Callable[[float], None]


class Clock:
    """The time of the machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Return so many seconds later."""
        time.sleep(seconds)


MACHINE = Clock()


@dataclass(frozen=True)
class Rig:
    """A system and the queues of the streams that its queries read.

    Who pulled before `since` is not this system: only consumers that pulled later count. `clock` is that of the system
    and the queues.
    """

    system: System
    queues: Mapping[str, QueueProcess]
    since: float
    clock: Clock = MACHINE

    @property
    def pulls_from_queues(self) -> bool:
        """Whether throughput is read at the queues."""
        return self.system.source == QUEUE


@dataclass(frozen=True)
class QueueLog:
    """What a queue saw of a step: samples, pulls, schedule, the consumers that count, and its share of the rate."""

    samples: Sequence[QueueSample]
    pulls: Sequence[Pull]
    schedule: Schedule
    consumers: frozenset[str]
    share: Share


@dataclass(frozen=True)
class StepRun:
    """What was seen of a step from `begin` to `end`; `warm` is when its warm-up was over.

    `taken` holds the counts of a system with a generator of its own, which has no `logs`.
    """

    begin: float
    warm: float
    end: float
    profile: tuple[tuple[float, int | None], ...]
    outputs: Sequence[SystemOutput]
    logs: Mapping[str, QueueLog] = field(default_factory=dict)
    taken: Sequence[tuple[float, int]] = ()


def start_load(rig: Rig, rate: int) -> None:
    """Begin to offer a rate, for ever, and do not wait."""
    if not rig.pulls_from_queues:
        rig.system.offer(rate)
        return
    at_us = _us(rig.clock.now())  # the same for all, so that they keep step
    for queue in rig.queues.values():
        queue.run(at_us, [(None, rate)])


def stop_load(rig: Rig) -> None:
    """Stop all queues."""
    for queue in rig.queues.values():
        queue.stop_generating()


def run_step(rig: Rig, profile: Profile, warm_up_share: float, tell: Tell) -> StepRun:
    """Offer `(seconds, tuples a second and stream)` one after the other and return what was seen.

    The last rate stays when the step is over. `tell` gets the share of the step that is over.
    """
    if not rig.pulls_from_queues:
        rig.system.offer(profile[0][1])  # it may start again for that, which is not part of the step
    begin = rig.clock.now() + LEAD_SECONDS
    end = begin + sum(seconds for seconds, _ in profile)
    if rig.pulls_from_queues:
        forever = [*profile[:-1], (None, profile[-1][1])]
        for queue in rig.queues.values():
            queue.run(_us(begin), forever)
        wait_until(rig.clock, end, begin, end, tell)
    else:
        at = begin
        for number, (seconds, rate) in enumerate(profile):
            if number:
                rig.system.offer(rate)
            at += seconds
            wait_until(rig.clock, at, begin, end, tell)
    return _observe(rig, begin, begin + warm_up_share * (end - begin), end, tuple(profile))


def lengthen(rig: Rig, run: StepRun, seconds: float, tell: Tell) -> StepRun:
    """Go on with the last rate of a step, and return what was seen of the whole longer step."""
    end = run.end + seconds
    wait_until(rig.clock, end, run.begin, end, tell)
    last_seconds, rate = run.profile[-1]
    return _observe(rig, run.begin, run.warm, end, (*run.profile[:-1], (last_seconds + seconds, rate)))


def go_on(rig: Rig, run: StepRun, tell: Tell) -> StepRun:
    """Go on with the last rate of a step for as long again, and return what was seen of that."""
    end = run.end + (run.end - run.begin)
    wait_until(rig.clock, end, run.end, end, tell)
    return _observe(rig, run.end, run.end, end, run.profile[-1:])


def run_unlimited(rig: Rig, seconds: float, warm_up_share: float, tell: Tell) -> StepRun:
    """Let a system with a generator of its own take as much as it can."""
    rig.system.offer(None)
    begin = rig.clock.now()
    wait_until(rig.clock, begin + seconds, begin, begin + seconds, tell)
    return _observe(rig, begin, begin + warm_up_share * seconds, begin + seconds, ((seconds, None),))


def settle(rig: Rig, rate: int, max_seconds: float) -> None:
    """Let the system work off what it pulled too much in the step before, at a small share of the rate to come.

    It has when it pulls new tuples soon after they come; otherwise the next step begins after `max_seconds`. A batch
    of the step before, as long as that step, would look like a system that stands still.
    """
    if not rig.pulls_from_queues:
        return
    low = max(1, int(rate * SETTLING_SHARE))
    start_load(rig, low)
    begin = rig.clock.now()  # samples of before still have the backlog that is dropped now
    while rig.clock.now() < begin + max_seconds:
        rig.clock.sleep(LOOK_SECONDS)
        if all(_has_settled(log, begin, rig.clock.now(), low) for log in _logs(rig).values()):
            return


def wait_until_pulled(rig: Rig, max_seconds: float) -> None:
    """Wait until the system takes tuples of every stream.

    Raises:
        SystemFailedError: it does not within `max_seconds`.
    """
    deadline = rig.clock.now() + max_seconds
    while True:
        if rig.pulls_from_queues:
            missing = [name for name, log in _logs(rig).items() if not log.consumers]
        else:
            missing = [] if any(count for _, count in rig.system.taken()) else ["its own generator"]
        if not missing:
            return
        if rig.clock.now() > deadline:
            raise SystemFailedError(
                f"{rig.system.name} must take tuples within {max_seconds:g} s of its queries' deployment,"
                f" and took none of {', '.join(map(repr, missing))}; look at its log"
            )
        rig.clock.sleep(LOOK_SECONDS)


def wait_until(clock: Clock, at: float, begin: float, end: float, tell: Tell) -> None:
    """Sleep until `at`, telling now and then which share of `[begin, end]` is over."""
    while (seconds_left := at - clock.now()) > 0:
        clock.sleep(min(seconds_left, LOOK_SECONDS))
        tell(min(1.0, max(0.0, (clock.now() - begin) / (end - begin))))


def judge(run: StepRun, rate: int) -> StepResult:
    """Tell whether a step of one rate was sustained, and what was pulled in it (definition 5)."""
    verdicts, by_stream = [], []
    for log in run.logs.values():
        begin = run.warm
        points = throughput.queue_points(log.samples, begin, run.end, log.consumers)
        if len(throughput.teeth(points)) < throughput.MIN_TEETH:  # the batches are long: all of the step, then
            begin = run.begin
            points = throughput.queue_points(log.samples, begin, run.end, log.consumers)
        verdict = throughput.growth(points, log.share.rate(rate))
        verdicts.append(replace(verdict, tuples_per_second=log.share.of_workload(verdict.tuples_per_second)))
        rates = throughput.consumer_rates(log.samples, begin, run.end, log.consumers)
        by_stream.append([log.share.of_workload(taken) for taken in rates])
    slowest = min(by_stream, key=lambda rates: min(rates, default=0.0), default=[])
    return StepResult(
        rate=rate,
        sustained=bool(verdicts) and not any(verdict.keeps_growing for verdict in verdicts),
        growth=max((verdict.tuples_per_second for verdict in verdicts), default=0.0),
        pulled_per_second=min(slowest, default=0.0),
        consumers=tuple(slowest),
        batches=batches_in(run),
        seconds=run.end - run.begin,
    )


def judge_own_generator(run: StepRun, rate: int | None) -> StepResult:
    """Return what a system took from a generator of its own, which waits for it: as fast as it can is sustained."""
    points = [throughput.QueuePoint(at, count, count) for at, count in run.taken if run.warm <= at <= run.end]
    taken_rate = throughput.pulled_rate(points) or 0.0
    is_sustained = taken_rate > 0 if rate is None else taken_rate >= (1 - throughput.TOOTH_NOISE) * rate
    return StepResult(
        rate=taken_rate if rate is None else rate,
        sustained=is_sustained,
        growth=0.0,
        pulled_per_second=taken_rate,
        consumers=(taken_rate,),
        batches=batches_in(run),
        seconds=run.end - run.begin,
    )


def batches_in(run: StepRun) -> int:
    """Return how many batches the system did in a step after its warm-up."""
    if run.logs:
        return min(throughput.batches(log.samples, run.warm, run.end, log.consumers) for log in run.logs.values())
    counts = [count for at, count in run.taken if run.warm <= at <= run.end]
    return sum(later > earlier for earlier, later in pairwise(counts))


def event_time_latencies(run: StepRun, warm: bool = True) -> list[latency.Latency]:
    """Return the event-time latencies of a step's tuples (definition 1), without its warm-up when `warm`."""
    return latency.event_time_latencies(run.outputs, run.warm if warm else run.begin, run.end, run.begin)


def processing_time_latencies(run: StepRun) -> list[latency.Latency]:
    """Return the processing-time latencies of a step's tuples after its warm-up (definition 2).

    Empty for a system with a generator of its own: nobody sees from outside when a tuple enters it.
    """
    ingestions = [latency.Ingestion(log.pulls, log.schedule) for log in run.logs.values()]
    return latency.processing_time_latencies(run.outputs, run.warm, run.end, run.begin, ingestions)


def _observe(rig: Rig, begin: float, warm: float, end: float, profile: tuple[tuple[float, int | None], ...]) -> StepRun:
    outputs = rig.system.outputs()
    if rig.pulls_from_queues:
        return StepRun(begin, warm, end, profile, outputs, logs=_logs(rig))
    return StepRun(begin, warm, end, profile, outputs, taken=rig.system.taken())


def _logs(rig: Rig) -> dict[str, QueueLog]:
    logs = {}
    for name, queue in rig.queues.items():
        pulls = [pull for pull in queue.pulls() if pull.at >= rig.since]
        consumers = frozenset(pull.consumer for pull in pulls)
        logs[name] = QueueLog(queue.samples(), pulls, queue.schedule, consumers, queue.share)
    return logs


def _has_settled(log: QueueLog, begin: float, now: float, rate: int) -> bool:
    """Tell whether the system has pulled what came after `begin`, and does so soon after it comes."""
    points = throughput.queue_points(log.samples, begin, now, log.consumers)
    if not points or points[-1].pulled <= log.schedule.generated(_us(begin)):
        return False
    return points[-1].length <= log.share.rate(rate) * SETTLED_SECONDS


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
