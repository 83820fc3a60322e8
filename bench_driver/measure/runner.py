"""Measure one system on one workload with so many queries: what `braid bench` repeats for every system and number.

Start the system, deploy the queries while tuples already come, search the sustainable throughput, then look at the
latency at a little less than that ("90 %-workload", thesis 3.6.2.1): a saturated system says nothing about latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from braid.bench_driver.measure import latency, steps, throughput
from braid.bench_driver.measure.result import Measured, MeasureProgress, series_of
from braid.bench_driver.measure.run_settings import MIN_BATCHES, RunSettings, took_nearly_all
from braid.bench_driver.measure.search import StepResult, search
from braid.bench_driver.measure.steps import MACHINE, Clock
from braid.bench_driver.mixed_query import Query
from braid.bench_driver.queues.process import QueueProcess
from braid.bench_driver.systems.system import System, SystemDeployment, SystemFailedError, UnsupportedError
from braid.bench_driver.workload import Workload

# while queries are deployed tuples come at this share of the start rate, so that the streams' clocks move
DEPLOYING_SHARE = 0.05
MAX_WHILE_DEPLOYING = 100_000
# a step that holds fewer batches than a figure takes goes on for as long again until it does, and is never longer
LONGEST_STEP_SECONDS = 300.0
# a system warms up until it takes no more than so many times what it took before, for so long at most
STILL_RISING = 1.1
WARMING_SECONDS = 300.0
# readers have this share of a step, at least so many seconds, and as long as windows take to come, to get the rows that
# were there when it ended
READING_SHARE = 0.1
MIN_READING_SECONDS = 2.0
ADAPTING_SECONDS = 180.0
# after a step that was too much, readers get so long at most to read what came of it
CATCHING_UP_SECONDS = 180

Tell = Callable[[MeasureProgress], None]


def measure(
    system: System,
    workload: Workload,
    queries: Sequence[Query],
    queues: Mapping[str, QueueProcess],
    settings: RunSettings,
    tell: Tell,
    next_queries: Sequence[Query] = (),
    clock: Clock = MACHINE,
) -> Measured:
    """Measure a system that is not started yet, and stop it.

    `queues` has the running queue of every stream of the workload. While queries come and go, those of `next_queries`
    come; without them the same again. A system that fails gives a result with `error`, one that cannot run the queries
    one with `unsupported`; only what is wrong with the driver itself raises. `clock` is that of the system and the
    queues.
    """
    return _Run(system, workload, queries, queues, settings, tell, next_queries, clock).measure()


class _Run:
    """One measurement under way. What is known so far is in `_measured`, also when the system fails."""

    def __init__(
        self,
        system: System,
        workload: Workload,
        queries: Sequence[Query],
        queues: Mapping[str, QueueProcess],
        settings: RunSettings,
        tell: Tell,
        next_queries: Sequence[Query],
        clock: Clock,
    ) -> None:
        streams_read = {stream for query in (*queries, *next_queries) for stream in query.streams}
        missing = {stream.name for stream in workload.streams} - set(queues)
        if not queries or missing:
            raise ValueError(f"there must be queries, and a queue of every stream; {sorted(missing)} have none")
        self._locations = {name: queue.location for name, queue in queues.items()}
        self._rig = steps.Rig(system, {name: queues[name] for name in sorted(streams_read)}, clock.now(), clock)
        # with twice the tuples a join has four times the rows: its windows would never end; and where streams have
        # shares of a rate, what tuples are follows from it
        depends_on_rate = any(query.is_join for query in queries) or any(s.share.of > 1 for s in workload.streams)
        self._takes_what_it_can = not self._rig.pulls_from_queues and not depends_on_rate
        self._step_seconds = settings.step_seconds
        self._workload, self._queries, self._next_queries = workload, queries, next_queries or queries
        self._settings, self._tell = settings, tell
        self._measured = Measured(
            system.name, system.source, workload.name, len(queries), settings.seed, settings.to_json()
        )

    def measure(self) -> Measured:
        """Do it all, and stop the system and the queues whatever happens."""
        try:
            self._measure()
        except UnsupportedError as error:
            self._measured = replace(self._measured, unsupported=str(error), sustained=False)
        except SystemFailedError as error:
            self._measured = replace(self._measured, error=str(error), sustained=False, query_throughput=None)
        finally:
            self._stop()
        return self._measured

    def _measure(self) -> None:
        system = self._rig.system
        self._tell(MeasureProgress("start"))
        system.start(self._workload, self._locations)
        if self._rig.pulls_from_queues:  # not before, else the first queries would meet the backlog of the start
            steps.start_load(self._rig, self._moderate_rate)
        elif not self._takes_what_it_can:
            system.offer(self._workload.start_rate)
        self._note_settings()
        self._tell(MeasureProgress("deploy"))
        deployment = system.deploy(self._queries, self._workload.per_second(len(self._queries)))
        self._note_settings()  # some suit the queries
        self._note(deployment_latency=latency.quantiles(deployment.latencies))
        steps.wait_until_pulled(self._rig, self._settings.ready_seconds)
        churn = self._workload.churn(len(self._queries))
        if churn is not None:
            system.begin_churn(self._next_queries, churn)
        self._warm_up()
        rate = self._search()
        self._look_at_latency(rate)
        if churn is not None:
            self._note_churn(system.end_churn())
        if self._workload.profile:
            self._go_through_profile(rate)

    def _warm_up(self) -> None:
        """Offer the rate that the search begins with in steps that do not count: compilers and caches are cold."""
        if self._takes_what_it_can or self._settings.quick:
            return
        rate = self._workload.start_rate
        deadline = self._rig.clock.now() + ADAPTING_SECONDS
        adapts = self._settings.adapts and self._workload.churn(len(self._queries)) is None

        def is_adapted() -> bool:
            return not adapts or self._rig.system.has_adapted() or self._rig.clock.now() > deadline

        self._until_warm(lambda: _judge(self._run([(self._step_seconds, rate)], "warm-up", rate), rate), is_adapted)

    def _until_warm(
        self, take_step: Callable[[], StepResult], is_adapted: Callable[[], bool] = lambda: True
    ) -> StepResult:
        """Take steps until the system takes no more than before, or all that is offered; return the last.

        Raises:
            SystemFailedError: it still takes more after `WARMING_SECONDS`.
        """
        most, deadline = 0.0, self._rig.clock.now() + WARMING_SECONDS
        while True:
            result = take_step()
            taken = result.pulled_per_second
            rises = not most or taken > STILL_RISING * most
            keeps_up = self._rig.pulls_from_queues and took_nearly_all(result)
            if is_adapted() and (keeps_up or not rises):
                return result
            if self._rig.clock.now() > deadline:
                if taken > STILL_RISING * most > 0:
                    raise SystemFailedError(
                        f"not measured: after {WARMING_SECONDS:g} s of warm-up the rate still rose, from {most:,.0f} to"
                        f" {taken:,.0f} tuples/s"
                    )
                return result
            most = max(most, taken)

    def _search(self) -> float:
        """Note the sustainable throughput and return it."""
        settings = self._settings
        if not self._takes_what_it_can:
            now = self._rig.clock.now
            deadline = now() + settings.search_seconds
            result = search(self._workload.start_rate, self._probe, settings.plan, lambda: now() >= deadline)
            best, last = result.best, result.steps[-1]
        else:
            last = self._take_what_it_can()
            best = last if last.sustained and settings.why_not_measured(last) is None else None
            self._note(steps=(*self._measured.steps, last))
        reported = best or last
        if (reason := settings.why_not_measured(reported)) is not None:
            raise SystemFailedError(reason)
        sustainable = reported.rate if best else reported.pulled_per_second
        if sustainable <= 0:
            raise SystemFailedError(f"{self._rig.system.name} took no tuples while it was measured; look at its log")
        self._note(
            sustained=best is not None,
            sustainable=float(sustainable),
            slowest=reported.pulled_per_second,
            overall=throughput.overall_throughput(reported.consumers, len(self._queries)),
        )
        return float(sustainable)

    def _take_what_it_can(self) -> StepResult:
        """Let a system with a generator of its own take as much as it can, until that is no more than before."""
        settings, teller = self._settings, self._teller("search", 1, None)
        run: steps.StepRun | None = None

        def take_step() -> StepResult:
            nonlocal run
            if run is None:
                run = steps.run_unlimited(self._rig, settings.step_seconds, settings.warm_up_share, teller)
            else:
                run = steps.go_on(self._rig, run, teller)
            run = self._with_batches(run, teller)
            return steps.judge_own_generator(run, None)

        return take_step() if settings.quick else self._until_warm(take_step)

    def _probe(self, rate: int) -> StepResult:
        """Take a step that holds enough batches, as far as that can be."""
        number = len(self._measured.steps) + 1
        steps.settle(self._rig, rate, self._step_seconds)
        self._rig.system.missing(CATCHING_UP_SECONDS)  # of the step before, which may have been too much
        self._rig.system.left_out()
        teller = self._teller("search", number, rate)
        run = steps.run_step(self._rig, [(self._step_seconds, rate)], self._settings.warm_up_share, teller)
        run = self._with_batches(run, teller)
        result = _judge(run, rate)
        if run.logs and self._settings.may_settle(result):
            result = steps.judge(self._with_batches(steps.go_on(self._rig, run, teller), teller), rate)
        missing = self._rig.system.left_out()
        if missing is None:
            missing = self._settings.why_not_measured(result)
        if missing is None and result.sustained:
            reading_seconds = max(READING_SHARE * self._step_seconds, MIN_READING_SECONDS, self._longest_slide)
            missing = self._rig.system.missing(reading_seconds)
        result = replace(result, sustained=result.sustained and missing is None, missing=missing)
        self._note(steps=(*self._measured.steps, result))
        return result

    def _with_batches(self, run: steps.StepRun, tell: steps.Tell) -> steps.StepRun:
        """Have a step go on until it holds enough batches after its warm-up, as far as that can be."""
        if self._settings.quick:
            return run
        while steps.batches_in(run) < MIN_BATCHES and (seconds := run.end - run.begin) < LONGEST_STEP_SECONDS:
            run = steps.lengthen(self._rig, run, min(seconds, LONGEST_STEP_SECONDS - seconds), tell)
        return run

    def _look_at_latency(self, sustainable: float) -> None:
        """Note latencies and series at a little less than the sustainable throughput."""
        rate = max(1, int(sustainable * self._settings.latency_load))
        busy_before, began = self._rig.system.processor_seconds(), self._rig.clock.now()
        run = self._run([(self._settings.latency_seconds(self._longest_slide), rate)], "latency", rate)
        run = self._with_batches(run, self._teller("latency", 1, rate))
        if busy_before is not None:
            busy_seconds = (self._rig.system.processor_seconds() or busy_before) - busy_before
            self._note(processor_cores=busy_seconds / (self._rig.clock.now() - began))
        result = _judge(run, rate)
        self._note(steps=(*self._measured.steps, result), series=series_of(run))
        if (reason := self._settings.why_not_measured(result)) is not None:
            self._note(not_measured=f"latency {reason}")
            return
        self._note(
            event_time_latency=latency.latency_quantiles(steps.event_time_latencies(run)),
            processing_time_latency=latency.latency_quantiles(steps.processing_time_latencies(run)),
        )

    def _go_through_profile(self, sustainable: float) -> None:
        """Note the series while the rate goes through the workload's profile (thesis 3.6.2.6)."""
        parts = [(self._step_seconds, max(1, int(sustainable * share))) for share in self._workload.profile]
        self._note(series=series_of(self._run(parts, "fluctuation", None)))

    def _run(self, profile: steps.Profile, phase: str, rate: int | None) -> steps.StepRun:
        steps.settle(self._rig, profile[0][1], self._step_seconds)
        return steps.run_step(self._rig, profile, self._settings.warm_up_share, self._teller(phase, 1, rate))

    def _note_settings(self) -> None:
        """Note what the system is configured with."""
        self._note(settings={**self._measured.settings, **self._rig.system.settings()})

    def _note_churn(self, deployment: SystemDeployment) -> None:
        """Note how long queries took to come and to go, and how many did, a second (thesis 4.4.3)."""
        changes = [*deployment.latencies, *deployment.deletions]
        sustained = self._measured.sustained and deployment.seconds > 0
        self._note(
            deployment_latency=latency.quantiles(changes),
            query_throughput=len(changes) / deployment.seconds if sustained else None,
        )

    def _stop(self) -> None:
        self._tell(MeasureProgress("stop"))
        try:
            self._rig.system.stop()
        except SystemFailedError as error:
            self._measured = replace(self._measured, error=self._measured.error or str(error))
        finally:
            steps.stop_load(self._rig)

    @property
    def _moderate_rate(self) -> int:
        return max(1, min(int(self._workload.start_rate * DEPLOYING_SHARE), MAX_WHILE_DEPLOYING))

    @property
    def _longest_slide(self) -> float:
        """How many seconds lie between two windows of a query at most."""
        return max(query.slide_ms for query in self._queries) / 1000

    def _teller(self, phase: str, step: int, rate: int | None) -> steps.Tell:
        return lambda share: self._tell(MeasureProgress(phase, step, share, rate))

    def _note(self, **figures: Any) -> None:
        self._measured = replace(self._measured, **figures)


def _judge(run: steps.StepRun, rate: int) -> StepResult:
    return steps.judge(run, rate) if run.logs else steps.judge_own_generator(run, rate)
