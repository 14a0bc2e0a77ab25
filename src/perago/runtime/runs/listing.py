"""Lists the runs below a root or the workflows on Conductor, newest first, and removes old runs.

A running run is never removed.  A stopped run can be resumed until it is removed.  A run's age is counted from the last
write to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from perago.errors import OrchestratorError, RuntimeConfigError, storage_remedy
from perago.orchestrator.base import WorkflowState, WorkflowSummary
from perago.protocol.suggestions import did_you_mean
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.root.workdirs import remove_tree
from perago.runtime.runs.inspect import STOPPED, ReadOnlyBackend, RunHandle
from perago.runtime.runs.map_runs import PROGRESS
from perago.runtime.runs.record import (
    END,
    MAP_RECORD,
    RECORD,
    MapRun,
    Run,
    RunEnd,
    complete_id,
    find_end,
    holding,
    is_running,
    map_log,
    read_records,
    read_runs,
    resume_command,
    runs_folder,
)
from perago.runtime.runs.run import end_of, first_line
from perago.runtime.runs.run_input import WorkspaceRef, recorded_input, workspaces_in

UNKNOWN = "unknown"
_FILES = (RECORD, MAP_RECORD, END, PROGRESS, "orchestrator.db")
_RUNNING = "keep: it is running"
_CONDUCTORS_REASON = re.compile(r"Task \S+ failed with status: \w+ and reason: '(.*?)'?", re.DOTALL)


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
    input: Mapping[str, Any] = field(default_factory=dict)
    """The workflow's input, without secrets.  Long values are truncated."""
    from_run: str | None = None
    from_step: str | None = None
    """`from_run` and `from_step`: the run and the step that the run was started from."""
    resumed: Sequence[float] = ()
    """The times at which the run was resumed."""
    kind: Literal["workflow", "map", "backfill"] = "workflow"
    replaced_unsigned: int = 0
    """The number of commits that the run replaced although no task had signed them."""

    @property
    def marks(self) -> str:
        """The run's origin, whether it was resumed, and what it replaced, as text; empty for an ordinary run."""
        parts = [f"from {self.from_step} of {self.from_run}"] if self.from_run else []
        if self.resumed:
            parts.append("resumed" if len(self.resumed) == 1 else f"resumed {len(self.resumed)} times")
        if self.replaced_unsigned:
            one = self.replaced_unsigned == 1
            parts.append(
                f"replaced {'a commit' if one else f'{self.replaced_unsigned} commits'} that no task made"
            )
        return ", ".join(parts)

    @property
    def workspaces(self) -> Sequence[WorkspaceRef]:
        """The workspaces in the input."""
        return workspaces_in(self.input)

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
    root = servers.settings.root
    records: Iterator[Run | MapRun] = read_records(root, start.runs)
    if not servers.embedded:
        # Conductor lists its workflows itself.  The maps on lakeFS are known from their records alone.
        maps = (one for one in read_records(root) if isinstance(one, MapRun) and not one.embedded)
        records = islice(maps, start.runs, None)
    runs = [
        _row(servers, one) if isinstance(one, Run) else map_row(root, one)
        for one in islice(records, count + 1)
    ]
    known = {id(row) for row in runs}
    found = sorted([*workflows, *runs], key=lambda row: row.started or 0.0, reverse=True)
    shown = found[:count]
    of_runs = sum(id(row) in known for row in shown)
    following = PageStart(start.runs + of_runs, start.workflows + len(shown) - of_runs)
    return RunPage(shown, following if len(found) > count else None)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run that may be removed, its size on disk, and the reason why it must be kept; empty if it may go."""

    run: Run | MapRun
    bytes: int
    last_write: float
    keep: str


def judge_runs(root: Path, *, older_than: float, now: float) -> list[Judged]:
    """Return every run, each with the reason why it must be kept.

    The reason is empty if the run is not running and was last written at least `older_than` seconds ago.
    """
    return [_judge(root, run, older_than=older_than, now=now) for run in read_records(root)]


def chosen_runs(root: Path, names: Sequence[str]) -> list[Judged]:
    """Return the runs with these ids, of which unique beginnings are enough.

    Raises `RuntimeConfigError` if one is missing or running.
    """
    ids = {run.id: run for run in read_records(root)}
    by_workflow = {run.workflow_id: run for run in ids.values() if isinstance(run, Run)}
    chosen: dict[str, Judged] = {}
    for name in names:
        found = complete_id(name, {*ids, *by_workflow})
        if found is None:
            hint = did_you_mean(name, ids, otherwise="; `perago runs` lists them")
            raise RuntimeConfigError(
                f"no run {name!r} below {root} that `perago run` or `perago map` has started{hint}"
            )
        run = ids.get(found) or by_workflow[found]
        chosen[run.id] = _judge(root, run, older_than=0, now=math.inf)
        if chosen[run.id].keep:
            raise RuntimeConfigError(f"run {run.id} is running: stop it first; nothing was removed")
    return list(chosen.values())


def remove_run(root: Path, run: Run | MapRun) -> str:
    """Remove a run's folder, unless the run was resumed in the meantime.  Returns the result as text."""
    folder = runs_folder(root) / run.id
    try:
        with holding(folder):
            map_log(root, run.id).unlink(missing_ok=True)
            for file in run.own_files if isinstance(run, MapRun) else ():
                file.unlink(missing_ok=True)
            # Remove the record last: after a kill, what is left is still listed as a run and can be removed again.
            remove_tree(folder, last=RECORD if isinstance(run, Run) else MAP_RECORD)
    except RuntimeConfigError:
        return _RUNNING
    except OSError as error:
        return f"failed: {error.filename or folder}: {error.strerror or error}{storage_remedy(error)}"
    return "removed"


def _judge(root: Path, run: Run | MapRun, *, older_than: float, now: float) -> Judged:
    folder = runs_folder(root) / run.id
    files = [file for file in (*folder.rglob("*"), map_log(root, run.id)) if file.is_file()]
    # Files that readers touch, such as SQLite's, do not count as activity.
    own = [file for file in files if file.name in _FILES or file.suffix == ".log"]
    written = max((file.stat().st_mtime for file in own), default=0.0)
    keep = _RUNNING if is_running(folder) else ""
    keep = keep or ("keep: it is not that old" if now - written < older_than else "")
    return Judged(run, sum(file.stat().st_size for file in files), written, keep)


def _workflows(servers: ReadOnlyBackend, count: int, start: int) -> Iterator[RunRow]:
    """Yield the workflows on Conductor or, on the embedded servers, those of a worker started with `--local`."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return
    mask = Masker(secrets_of(servers.settings))
    # Runs of `perago run` on Conductor are in both lists: their records know more than Conductor does.
    runs = {} if servers.embedded else {run.workflow_id: run for run in read_runs(servers.settings.root)}
    with closing(orchestrator):
        for one in orchestrator.workflows(count, start=start):
            row = _summary_row(one, recorded_input(one.input, mask), embedded=servers.embedded)
            run = runs.get(one.id)
            yield row if run is None or run.embedded else _with_record(servers, row, run)


def _summary_row(one: WorkflowSummary, given: Mapping[str, Any], *, embedded: bool) -> RunRow:
    failed = "" if one.status == "COMPLETED" else first_line(_own_reason(one.reason or ""))
    return RunRow(
        one.id, one.name, one.id, one.status, one.started, one.ended, failed, embedded=embedded, input=given
    )


def _own_reason(reason: str) -> str:
    """Return the reason of the attempt that ended a workflow, without the task id and status that Conductor adds."""
    found = _CONDUCTORS_REASON.fullmatch(reason.strip())
    return reason if found is None else found[1]


def _with_record(servers: ReadOnlyBackend, row: RunRow, run: Run) -> RunRow:
    end = find_end(servers.settings.root, run.id)
    stopped = row.ended is None and not RunHandle(servers, run.workflow_id, run).may_progress
    return replace(
        row,
        status=STOPPED if stopped else row.status,
        resume=resume_command(run, servers.settings.root) if stopped else "",
        from_run=run.from_run,
        from_step=run.from_step,
        resumed=run.resumed,
        replaced_unsigned=end.replaced_unsigned if end is not None else 0,
    )


def _row(servers: ReadOnlyBackend, run: Run) -> RunRow:
    found = RunHandle(servers.of_run(run.id), run.workflow_id, run)
    end = find_end(servers.settings.root, run.id)
    # Resuming a run deletes its stored outcome, so a stored one is final and needs no query.
    if run.embedded and (end is None or end.ended is None) and (state := _state(found)):
        end = end_of(state)
    end = end or RunEnd(UNKNOWN, None, None)
    over = end.ended is not None or end.status == UNKNOWN
    resume = "" if over or found.may_progress else resume_command(run, servers.settings.root)
    return RunRow(
        run.id,
        run.workflow_name,
        run.workflow_id,
        STOPPED if resume else end.status,
        end.started,
        end.ended,
        end.failed,
        resume=resume,
        embedded=run.embedded,
        input=run.input or {},
        from_run=run.from_run,
        from_step=run.from_step,
        resumed=run.resumed,
        replaced_unsigned=end.replaced_unsigned,
    )


def map_row(root: Path, run: MapRun) -> RunRow:
    """Return a map run as a row of the list."""
    end = find_end(root, run.id) or RunEnd(STOPPED, run.started, None)
    running = is_running(runs_folder(root) / run.id)
    status = "RUNNING" if running else end.status
    return RunRow(
        run.id,
        run.workflow_name,
        run.id,
        status,
        run.started,
        None if running else end.ended,
        "" if running else end.failed,
        resume=run.resume if status == STOPPED else "",
        embedded=run.embedded,
        input={"over" if run.workspace else "table": run.table, "rows": run.rows},
        resumed=run.resumed,
        kind=run.kind,
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
