"""Around the work of one attempt: a job group of its own, words on its progress, and short reasons for failures.

Spark keeps job groups by thread, so attempts that run at once in one process stay apart.  Whatever of the group is
still running when the attempt leaves is cancelled: nothing writes to a place whose result is being published.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perago.declare.user_code import where
from perago.errors import TaskFailed
from perago.runtime.attempt.observer import Note
from perago.runtime.attempt.place import Site
from perago.runtime.periodic import looking
from perago.spark.failures import SPARK_ERRORS, remote_place, short_reason
from perago.spark.session import AttemptSession, why_gone

if TYPE_CHECKING:
    from pyspark import SparkContext

    from perago.spark.workspace import SparkWorkspace

log = logging.getLogger("perago.spark")

_LOOK_SECONDS = 0.5
_SPARK_IS_GONE: tuple[type[Exception], ...] = (*SPARK_ERRORS, AttributeError)
"""The last one where the body has stopped Spark, which leaves a context without its Java half."""


@contextlib.contextmanager
def at_work(session: AttemptSession, site: Site, workspace: SparkWorkspace) -> Iterator[None]:
    """Run checks and body as one job group; Spark's failures come out as `TaskFailed` with a short reason."""
    spec = site.task.workspace
    stopped: str | None = None
    try:
        with (
            session.in_use() as spark,
            _job_group(spark.sparkContext, site, session),
            _telling(spark.sparkContext, site.execution_id, site.traffic.say),
        ):
            try:
                yield
            except _SPARK_IS_GONE:
                stopped = why_gone(spark)
                raise
            session.check_left(publishes=spec is not None and not spec.read_only)
    except _SPARK_IS_GONE as error:
        if stopped is None and not isinstance(error, SPARK_ERRORS):
            raise
        log.debug("Spark failed", exc_info=error)
        if stopped is not None:
            place = where(error)
            raise TaskFailed(f"{stopped} ({place})" if place else stopped) from error
        reason = short_reason(error, base=workspace.base, tables=workspace.tables)
        if not remote_place(error) and (place := where(error)):
            reason = f"{reason} ({place})"
        raise TaskFailed(f"Spark failed in task {site.task.name!r}: {reason}") from error


@contextlib.contextmanager
def _job_group(context: SparkContext, site: Site, session: AttemptSession) -> Iterator[None]:
    jvm_context: Any = context._jsc
    before = jvm_context.sc().getLocalProperties().clone()
    context.setJobGroup(site.execution_id, f"perago {site.task.name}", interruptOnCancel=True)
    try:
        yield
    finally:
        with contextlib.suppress(*_SPARK_IS_GONE):
            _cancel_jobs(context, site.execution_id, alone=session.alone)
            # Job group, tags, pool and description: the body may have set others than ours.
            jvm_context.sc().setLocalProperties(before)


def _cancel_jobs(context: SparkContext, group: str, *, alone: bool) -> None:
    """End what threads of the body left running; in groups of its own too, where nobody else has jobs."""
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobsIds())
    if alone and active:
        context.cancelAllJobs()
    elif active & set(tracker.getJobIdsForGroup(group)):
        context.cancelJobGroup(group)


@contextlib.contextmanager
def _telling(context: SparkContext, group: str, note: Note) -> Iterator[None]:
    """Say how far the group's stages are, for as long as the block runs."""
    said = ""

    def look() -> bool:
        nonlocal said
        try:
            text = _progress(context, group)
        except _SPARK_IS_GONE:
            return False
        if text and text != said:
            said = text
            note(text)
        return True

    with looking(look, every=_LOOK_SECONDS, name="perago-spark-progress"):
        yield


def _progress(context: SparkContext, group: str) -> str:
    tracker = context.statusTracker()
    stages = []
    for job_id in sorted(tracker.getJobIdsForGroup(group)):
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING":
            continue
        for stage_id in job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None and stage.numActiveTasks > 0:
                stages.append(f"stage {stage_id} {stage.numCompletedTasks}/{stage.numTasks}")
    return f"Spark {', '.join(stages)}" if stages else ""
