"""Runs an attempt's Spark work in its own job group, with progress messages and short failure reasons.

Spark tracks job groups per thread, so concurrent attempts in one process stay separate.  Jobs in the group that are
still running when the attempt ends are cancelled, because nothing may write to the attempt's workdir or staging branch
while its result is being published.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perago.declare.user_code import user_code_place
from perago.errors import TaskFailed
from perago.runtime.attempt.observer import Note
from perago.runtime.attempt.place import PlaceRequest
from perago.runtime.periodic import call_periodically
from perago.spark.failures import SPARK_ERRORS, remote_place, short_reason
from perago.spark.figures import counting_work
from perago.spark.session import AttemptSession, why_unusable

if TYPE_CHECKING:
    from pyspark import SparkContext

    from perago.spark.workspace import SparkWorkspace

log = logging.getLogger("perago.spark")

_PROGRESS_SECONDS = 0.5
_SPARK_IS_GONE: tuple[type[Exception], ...] = (*SPARK_ERRORS, AttributeError)
"""Errors that may mean that Spark is gone. `AttributeError` is included because the context has no Java object once the
body has stopped Spark."""


@contextlib.contextmanager
def at_work(session: AttemptSession, request: PlaceRequest, workspace: SparkWorkspace) -> Iterator[None]:
    """Run the checks and the body as one job group. Raises `TaskFailed` with a short reason if Spark fails."""
    spec = request.task.workspace
    stopped: str | None = None
    try:
        with (
            session.in_use() as spark,
            _counting_work(spark.sparkContext, request, session),
            _job_group(spark.sparkContext, request, session),
            _report_progress(spark.sparkContext, request.execution_id, request.traffic.say),
        ):
            session.note_task(request.attempt.task_id)
            try:
                yield
            except _SPARK_IS_GONE:
                stopped = why_unusable(spark)
                raise
            publishes = spec is not None and not spec.read_only
            session.check_final_state(base=workspace.base if publishes else None)
    except _SPARK_IS_GONE as error:
        if stopped is None and not isinstance(error, SPARK_ERRORS):
            raise
        log.debug("Spark failed", exc_info=error)
        if stopped is not None:
            place = user_code_place(error)
            raise TaskFailed(f"{stopped} ({place})" if place else stopped) from error
        reason = short_reason(error, base=workspace.base, tables=workspace.tables)
        if not remote_place(error) and (place := user_code_place(error)):
            reason = f"{reason} ({place})"
        raise TaskFailed(f"Spark failed in task {request.task.name!r}: {reason}") from error


def description_of(request: PlaceRequest) -> str:
    """Return the description of an attempt's jobs, which names its task, workflow and attempt."""
    attempt = request.attempt
    workflow = f"{attempt.workflow_name} {attempt.workflow_instance_id}".strip()
    step = attempt.reference_task_name + (f" (retry {attempt.retry_count})" if attempt.retry_count else "")
    return f"perago {request.task.name}: {step} of {workflow}"


def _counting_work(
    context: SparkContext, request: PlaceRequest, session: AttemptSession
) -> contextlib.AbstractContextManager[None]:
    group = "" if session.is_only_attempt else request.execution_id
    return counting_work(context, group, description_of(request), request.traffic)


@contextlib.contextmanager
def _job_group(context: SparkContext, request: PlaceRequest, session: AttemptSession) -> Iterator[None]:
    jvm_context: Any = context._jsc
    before = jvm_context.sc().getLocalProperties().clone()
    context.setJobGroup(request.execution_id, description_of(request), interruptOnCancel=True)
    try:
        yield
    finally:
        with contextlib.suppress(*_SPARK_IS_GONE):
            _cancel_jobs(context, request.execution_id, only_attempt=session.is_only_attempt)
            # Restore the job group, tags, pool and description, which the body may have changed.
            jvm_context.sc().setLocalProperties(before)


def _cancel_jobs(context: SparkContext, group: str, *, only_attempt: bool) -> None:
    """Cancel the jobs that the body's threads left running.

    If no other attempt is running in this process, jobs in all groups are cancelled; otherwise, only those in the
    attempt's own group.
    """
    tracker = context.statusTracker()
    active = set(tracker.getActiveJobsIds())
    if only_attempt and active:
        context.cancelAllJobs()
    elif active & set(tracker.getJobIdsForGroup(group)):
        context.cancelJobGroup(group)


@contextlib.contextmanager
def _report_progress(context: SparkContext, group: str, note: Note) -> Iterator[None]:
    """Report the progress of the job group's stages while the block runs."""
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

    with call_periodically(report, every=_PROGRESS_SECONDS, name="perago-spark-progress"):
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
