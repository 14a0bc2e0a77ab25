"""Run an attempt's Spark work in its own job group, with progress messages and short failure reasons.

Spark tracks job groups per thread, so concurrent attempts of one process stay apart.  Jobs of the group that still run
when the attempt ends are cancelled: nothing may write to a place whose result is being published.
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
from perago.runtime.periodic import repeating
from perago.spark.failures import SPARK_ERRORS, remote_place, short_reason
from perago.spark.session import AttemptSession, why_gone

if TYPE_CHECKING:
    from pyspark import SparkContext

    from perago.spark.workspace import SparkWorkspace

log = logging.getLogger("perago.spark")

_PROGRESS_SECONDS = 0.5
_SPARK_IS_GONE: tuple[type[Exception], ...] = (*SPARK_ERRORS, AttributeError)
"""`AttributeError` is raised if the body stopped Spark: the context then has no Java object."""


@contextlib.contextmanager
def at_work(session: AttemptSession, site: Site, workspace: SparkWorkspace) -> Iterator[None]:
    """Run checks and body as one job group. Raises `TaskFailed` with a short reason for failures of Spark."""
    spec = site.task.workspace
    stopped: str | None = None
    try:
        with (
            session.in_use() as spark,
            _job_group(spark.sparkContext, site, session),
            _report_progress(spark.sparkContext, site.execution_id, site.traffic.say),
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
            # Restore job group, tags, pool and description, which the body may have changed.
            jvm_context.sc().setLocalProperties(before)


def _cancel_jobs(context: SparkContext, group: str, *, alone: bool) -> None:
    """Cancel jobs that threads of the body left running; of all groups if no other attempt has jobs."""
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobsIds())
    if alone and active:
        context.cancelAllJobs()
    elif active & set(tracker.getJobIdsForGroup(group)):
        context.cancelJobGroup(group)


@contextlib.contextmanager
def _report_progress(context: SparkContext, group: str, note: Note) -> Iterator[None]:
    """Report the progress of the group's stages while the block runs."""
    reported = ""

    def report() -> bool:
        nonlocal reported
        try:
            text = _progress(context, group)
        except _SPARK_IS_GONE:
            return False
        if text and text != reported:
            reported = text
            note(text)
        return True

    with repeating(report, every=_PROGRESS_SECONDS, name="perago-spark-progress"):
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
