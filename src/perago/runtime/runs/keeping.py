"""What is kept of a run while it is driven: that it goes on, its log, and how it stood in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from perago.errors import RuntimeConfigError
from perago.orchestrator.base import WorkflowState
from perago.runtime.observe.masking import Masker, secrets_of
from perago.runtime.runs.alive import holding
from perago.runtime.runs.attempts import worker_tasks
from perago.runtime.runs.record import Run, RunEnd, forget_end, log_file
from perago.runtime.runs.run_log import RunLog
from perago.runtime.runs.words import who
from perago.settings import Settings

_WELL = frozenset({"COMPLETED", "SKIPPED", "SCHEDULED", "IN_PROGRESS", "CANCELED"})


@contextmanager
def kept_run(settings: Settings, run: Run) -> Iterator[RunLog]:
    """The run's log; for as long as the block runs, everybody can see that the run goes on."""
    path = log_file(settings.root, run.id)
    with holding(path.parent):
        try:
            file = path.open("a", encoding="utf-8", errors="replace")
        except OSError as error:
            raise RuntimeConfigError(
                f"cannot write {path}: {error.strerror}; make room, or give --root"
            ) from error
        forget_end(settings.root, run.id)
        with file:
            log = RunLog(file, Masker(secrets_of(settings)))
            log.write(f"run {run.id} of workflow {run.workflow_name}, {run.workflow_id}; times are in UTC")
            yield log


def end_of(state: WorkflowState) -> RunEnd:
    """How a workflow stands, for listings."""
    return RunEnd(state.status, state.started, state.ended, failed_step(state))


def failed_step(state: WorkflowState) -> str:
    """Which attempt ended the workflow and why, in a line; empty where it did not fail."""
    if state.running or state.status == "COMPLETED":
        return ""
    bad = [task for task in worker_tasks(state) if task.status not in _WELL]
    if not bad:
        return first_line(state.reason)
    return f"{who(bad[-1].reference, bad[-1].retry_count)}: {first_line(bad[-1].reason) or bad[-1].status}"


def first_line(text: str | None) -> str:
    """A text's first line."""
    return (text or "").strip().partition("\n")[0]
