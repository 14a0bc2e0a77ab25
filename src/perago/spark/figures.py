"""Counts the work that Spark did for an attempt, from the store behind Spark's own UI.

- The jobs counted are those of the body and of the table checks, because both read the attempt's data.  If no other
  attempt is running in this process, every job since the attempt began counts; otherwise, only those in its job group.
- The store keeps a limited number of jobs and stages (`spark.ui.retainedJobs`, `spark.ui.retainedStages`).  If some of the
  attempt's are gone, the figures are partial and say so.
- The figures are read once, after the attempt's work has ended.  An attempt never fails because of them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.protocol.attempt_record import SparkFigures, StageTime

if TYPE_CHECKING:
    from pyspark import SparkContext

    from perago.runtime.attempt.observer import Traffic

log = logging.getLogger("perago.spark")

LONGEST = 3
"""The number of stages that the figures name."""
_LONGEST_NAME = 80
_EVENTS_MILLISECONDS = 2000
"""Time limit for Spark to process the events of the work that has just ended."""
_SUMS = {
    "tasks": "numTasks",
    "failed_tasks": "numFailedTasks",
    "rows_read": "inputRecords",
    "bytes_read": "inputBytes",
    "rows_written": "outputRecords",
    "bytes_written": "outputBytes",
    "shuffle_read": "shuffleReadBytes",
    "shuffle_written": "shuffleWriteBytes",
    "spilled": "diskBytesSpilled",
}
"""The figures that are sums over stages, with Spark's name for each one."""


@contextlib.contextmanager
def counting_work(context: SparkContext, group: str, description: str, traffic: Traffic) -> Iterator[None]:
    """Count the jobs that Spark runs in this block, and record the figures in `traffic`.

    `group` is the only job group to count, or empty if all jobs count.  `description` is the one that Perago gave the jobs.
    """
    jvm_context: Any = context._jsc
    first: int | None = None
    with contextlib.suppress(Exception):
        first = _jobs_so_far(jvm_context)
    try:
        yield
    finally:
        try:
            if first is not None:
                traffic.spark = _figures(context, first, group, description)
        except Exception as error:
            # The body may have stopped Spark, or its JVM may have died.
            log.debug("Spark's figures are unknown", exc_info=error)


@dataclass(slots=True)
class _Stages:
    """The sums over the stages seen so far, and the stages themselves by duration in milliseconds."""

    count: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    peak_memory: int = 0
    timed: list[tuple[int, int, Any]] = field(default_factory=list)

    def add(self, stage: Any) -> None:
        self.count += 1
        for name, theirs in _SUMS.items():
            self.sums[name] += int(getattr(stage, theirs)())
        self.peak_memory = max(self.peak_memory, _peak_memory(stage))
        began, ended = stage.submissionTime(), stage.completionTime()
        if began.isDefined() and ended.isDefined():
            took = ended.get().getTime() - began.get().getTime()
            self.timed.append((int(took), int(stage.stageId()), stage))


def _figures(context: SparkContext, first: int, group: str, description: str) -> SparkFigures:
    jvm: Any = context._jsc.sc()
    with contextlib.suppress(Exception):  # a TimeoutException: count what there is
        jvm.listenerBus().waitUntilEmpty(_EVENTS_MILLISECONDS)
    store, started = jvm.statusStore(), _jobs_so_far(context._jsc) - first
    found = store.jobsList(None).slice(0, started)  # the newest come first
    jobs = [found.apply(number) for number in range(found.size())]
    partial = len(jobs) < started
    if group:
        jobs = [job for job in jobs if job.jobGroup().isDefined() and job.jobGroup().get() == group]
    ids = {int(stage) for job in jobs for stage in job.stageIds().mkString(",").split(",") if stage}
    stages = _Stages()
    for stage_id in sorted(ids):
        if (tries := _tries_of(context, store, stage_id)) is None:
            partial = True
            continue
        for stage in tries:
            if stage.status().toString() != "SKIPPED":
                stages.add(stage)
    longest = sorted(stages.timed, key=lambda one: (-one[0], one[1]))[:LONGEST]
    return SparkFigures(
        jobs=len(jobs),
        stages=stages.count,
        **stages.sums,
        peak_memory=stages.peak_memory,
        longest=tuple(
            StageTime(_name(store, stage, description), milliseconds / 1000)
            for milliseconds, _, stage in longest
        ),
        partial=partial,
    )


def _jobs_so_far(jvm_context: Any) -> int:
    """Return the number of jobs that this context has started, which is the id of the next one."""
    return int(jvm_context.sc().dagScheduler().numTotalJobs())


def _tries_of(context: SparkContext, store: Any, stage_id: int) -> list[Any] | None:
    """Return all tries of a stage, or None if Spark has forgotten it."""
    from py4j.protocol import Py4JJavaError

    gateway: Any = context._gateway
    jvm: Any = context._jvm
    try:
        tries = store.stageData(
            stage_id, False, jvm.java.util.ArrayList(), False, gateway.new_array(jvm.double, 0)
        )
    except Py4JJavaError:  # a NoSuchElementException
        return None
    return [tries.apply(number) for number in range(tries.size())] or None


def _peak_memory(stage: Any) -> int:
    peak = stage.peakExecutorMetrics()
    if peak.isEmpty():
        return 0
    return max(
        0,
        int(peak.get().getMetricValue("JVMHeapMemory")) + int(peak.get().getMetricValue("JVMOffHeapMemory")),
    )


def _name(store: Any, stage: Any, description: str) -> str:
    """Return a short name for a stage: the body's own job description, or else the operations in it."""
    own = stage.description()
    if own.isDefined() and own.get() != description:
        words = " ".join(str(own.get()).split())  # a streaming query's has three lines
        return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 2].rstrip()} …"
    with contextlib.suppress(Exception):  # Spark has forgotten the stage's graph
        clusters = store.operationGraphForStage(stage.stageId()).rootCluster().childClusters()
        names = [str(clusters.apply(number).name()) for number in range(clusters.size())]
        if names:
            return f"stage {stage.stageId()} ({' + '.join(dict.fromkeys(names))})".replace("\n", " ")
    return f"stage {stage.stageId()} ({stage.name()})"
