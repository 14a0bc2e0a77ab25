"""Lists the runs below a root or the workflows on Conductor, newest first, and removes old runs.

A running run is never removed.  A stopped run can be resumed until it is removed.  A run's age is counted from the last
write to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perago.errors import OrchestratorError, RuntimeConfigError
from perago.orchestrator.base import WorkflowState, WorkflowSummary
from perago.runtime.root.workdirs import remove_tree
from perago.runtime.runs.inspect import ReadOnlyBackend, RunHandle
from perago.runtime.runs.record import (
    END,
    RECORD,
    Run,
    RunEnd,
    all_runs,
    find_end,
    holding,
    is_running,
    read_runs,
    resume_command,
    runs_folder,
)
from perago.runtime.runs.run import end_of, first_line

UNKNOWN = "unknown"
_RUNNING = "keep: it is running"
_FILES = (RECORD, END, "run.log", "orchestrator.db")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in a list.  `id` is the argument for `show` and `logs`."""

    id: str
    workflow: str
    workflow_id: str
    status: str
    started: float | None
    ended: float | None
    failed: str = ""
    """The attempt whose failure ended the run, and the reason."""
    resume: str = ""
    """The command that resumes the run, if its process is gone but its workflow has not finished."""
    embedded: bool = True

    @property
    def seconds(self) -> float | None:
        """The run's duration in seconds, or None if it is unknown."""
        return None if self.started is None or self.ended is None else max(0.0, self.ended - self.started)


@dataclass(frozen=True, slots=True)
class PageStart:
    """The start of a page: how many runs of `perago run`, and how many other workflows, to skip."""

    runs: int = 0
    workflows: int = 0


@dataclass(frozen=True, slots=True)
class RunPage:
    """One page of runs, newest first, and the start of the next page, if any."""

    rows: Sequence[RunRow]
    following: PageStart | None


def list_runs(servers: ReadOnlyBackend, count: int) -> list[RunRow]:
    """Return the newest runs below the root, including those on Conductor.

    If Conductor is selected, returns its newest workflows instead.
    """
    return list(page_of_runs(servers, count, PageStart()).rows)


def page_of_runs(servers: ReadOnlyBackend, count: int, start: PageStart) -> RunPage:
    """Return one page of all runs.  Reads only that page, plus enough to know whether another one follows."""
    workflows = list(_workflows(servers, count + 1, start.workflows))
    runs = (
        [_row(servers, run) for run in islice(read_runs(servers.settings.root, start.runs), count + 1)]
        if servers.embedded
        else []
    )
    known = {id(row) for row in runs}
    found = sorted([*workflows, *runs], key=lambda row: row.started or 0.0, reverse=True)
    shown = found[:count]
    of_runs = sum(id(row) in known for row in shown)
    following = PageStart(start.runs + of_runs, start.workflows + len(shown) - of_runs)
    return RunPage(shown, following if len(found) > count else None)


def judge_runs(root: Path, *, older_than: float, now: float) -> list[tuple[Run, str]]:
    """Return every run, each with the reason why it must be kept.

    The reason is empty if the run is not running and was last written at least `older_than` seconds ago.
    """
    judged = []
    for run in all_runs(root):
        folder = runs_folder(root) / run.id
        if is_running(folder):
            keep = _RUNNING
        else:
            keep = "keep: it is not that old" if now - _last_write(folder) < older_than else ""
        judged.append((run, keep))
    return judged


def remove_run(root: Path, run: Run) -> str:
    """Remove a run's folder, unless the run was resumed in the meantime.  Returns the result as text."""
    folder = runs_folder(root) / run.id
    try:
        with holding(folder):
            # Remove the record last: after a kill, what is left is still listed as a run and can be removed again.
            remove_tree(folder, last=RECORD)
    except RuntimeConfigError:
        return _RUNNING
    except OSError as error:
        return f"failed: {error}"
    return "removed"


def _last_write(folder: Path) -> float:
    files = [folder / name for name in _FILES]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def _workflows(servers: ReadOnlyBackend, count: int, start: int) -> Iterator[RunRow]:
    """Yield the workflows on Conductor or, on the embedded servers, those of a worker started with `--local`."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return
    with closing(orchestrator):
        for one in orchestrator.workflows(count, start=start):
            yield _summary_row(one, embedded=servers.embedded)


def _summary_row(one: WorkflowSummary, *, embedded: bool) -> RunRow:
    failed = "" if one.status == "COMPLETED" else first_line(one.reason)
    return RunRow(one.id, one.name, one.id, one.status, one.started, one.ended, failed, embedded=embedded)


def _row(servers: ReadOnlyBackend, run: Run) -> RunRow:
    found = RunHandle(servers.of_run(run.id), run.workflow_id, run)
    end = find_end(servers.settings.root, run.id)
    # Resuming a run deletes its stored outcome, so a stored one is final and needs no query.
    if run.embedded and (end is None or end.ended is None) and (state := _state(found)):
        end = end_of(state)
    end = end or RunEnd(UNKNOWN, None, None)
    over = end.ended is not None or end.status == UNKNOWN
    return RunRow(
        run.id,
        run.workflow_name,
        run.workflow_id,
        end.status,
        end.started,
        end.ended,
        end.failed,
        resume="" if over or found.may_progress else resume_command(run, servers.settings.root),
        embedded=run.embedded,
    )


def _state(found: RunHandle) -> WorkflowState | None:
    """Return the state of a run's workflow.

    Returns None if the state cannot be read, so that one broken run does not hide the others.
    """
    try:
        with closing(found.open()) as orchestrator:
            return orchestrator.workflow(found.workflow_id)
    except (OrchestratorError, RuntimeConfigError):
        return None
