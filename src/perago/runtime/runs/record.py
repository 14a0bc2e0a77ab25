"""The folder of a run below the root, with everything needed to resume it.

<root>/runs/<run id>/run.json          the task modules, and the workflow that was started
<root>/runs/<run id>/orchestrator.db   the embedded orchestrator's state
<root>/runs/<run id>/run.log           the run's progress and the worker's log
<root>/runs/<run id>/end.json          the run's outcome, as far as this machine knows
<root>/runs/<run id>/.lock             locked while the run's process lives; the system unlocks it when the process dies
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError
from perago.protocol.suggestions import did_you_mean, listed

RECORD = "run.json"
END = "end.json"
LOCK = ".lock"
_LOCK_TRIES = 20
_LOCK_DELAY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """The record of a run, with everything needed to resume the run if its process is killed."""

    id: str
    workflow_id: str
    workflow_name: str
    targets: Sequence[str]
    folder: str
    """The folder in which the run was started.  Targets are relative to it."""
    embedded: bool = True
    """True if the run uses the embedded servers."""
    tasks: Sequence[str] | None = None
    """The tasks that the workflow uses.  None, as in records older than this field, means all tasks in the modules."""
    side_by_side: int | None = None
    """Maximum number of the workflow's steps that can run at the same time; None if unknown."""
    workflow_file: str = ""
    workflow_digest: str = ""
    """`workflow_file` and `workflow_digest`: the workflow's file, and a digest of its definition at the run's start."""
    from_run: str | None = None
    from_step: str | None = None
    """`from_run` and `from_step`: the run and the step that this run was started from."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The last saved state of a run.  It is saved when the run's worker stops, even if the workflow is unfinished."""

    status: str
    started: float | None
    ended: float | None
    failed: str = ""


def runs_folder(root: Path) -> Path:
    """Return the folder that contains all runs below a root."""
    return root / "runs"


def orchestrator_file(root: Path, run_id: str) -> Path:
    """Return the file with the state of a run's embedded orchestrator."""
    return runs_folder(root) / run_id / "orchestrator.db"


def log_file(root: Path, run_id: str) -> Path:
    """Return the path of a run's log."""
    return runs_folder(root) / run_id / "run.log"


def new_run_id(now: float) -> str:
    """Return a unique run id that sorts by time, even among runs started within the same second."""
    started = datetime.fromtimestamp(now, UTC)
    return f"{started:%Y%m%d-%H%M%S}-{started.microsecond * 16**3 // 1_000_000:03x}{secrets.token_hex(3)}"


def save_run(root: Path, run: Run) -> None:
    """Write the run's record atomically."""
    _write(runs_folder(root) / run.id / RECORD, asdict(run))


def save_end(root: Path, run_id: str, end: RunEnd) -> None:
    """Write the outcome of a run, so that listings need not ask its orchestrator."""
    _write(runs_folder(root) / run_id / END, asdict(end))


def find_end(root: Path, run_id: str) -> RunEnd | None:
    """Return the run's last saved outcome, or None if there is none or it cannot be read."""
    try:
        return RunEnd(**json.loads((runs_folder(root) / run_id / END).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def all_runs(root: Path) -> list[Run]:
    """Return the records of all runs, newest first, without the unreadable ones."""
    return list(read_runs(root))


def read_runs(root: Path, skip: int = 0) -> Iterator[Run]:
    """Yield the records of the runs, newest first, starting after the first `skip`.

    Unreadable records are left out and not counted.
    """
    try:
        # Names sort by time, so records that the caller does not consume are never opened.
        names = sorted((one.name for one in os.scandir(runs_folder(root))), reverse=True)
    except OSError:
        return
    for name in names:
        with suppress(OSError, ValueError, TypeError):
            run = Run(**json.loads((runs_folder(root) / name / RECORD).read_text(encoding="utf-8")))
            if skip <= 0:
                yield run
            skip -= 1


def find_run(root: Path, run_id: str | None) -> Run:
    """Return the run with that id, or the newest run.

    Raises `RuntimeConfigError` if the run is missing or its record is unreadable.
    """
    records = {path.parent.name: path for path in runs_folder(root).glob(f"*/{RECORD}")}
    if not records:
        raise RuntimeConfigError(
            f"there is no run below {root}: start one with `perago run WORKFLOW.json --tasks TARGET`, or name the root "
            "that has it with --root"
        )
    if run_id is None:
        run_id = max(records)
    if run_id not in records:
        there = did_you_mean(
            run_id, records, otherwise=f"; there are: {listed(sorted(records, reverse=True))}"
        )
        raise RuntimeConfigError(f"no run {run_id!r} below {root}{there}")
    try:
        return Run(**json.loads(records[run_id].read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        # Do not fall back to an older run: the caller asked for the newest.
        raise RuntimeConfigError(
            f"run {run_id} cannot be resumed: {records[run_id]} is damaged, or another version of Perago wrote it "
            f"({error}); name another run, `{shlex.join(['perago', 'runs', '--root', str(root)])}` lists them"
        ) from error


def resume_command(run: Run, root: Path) -> str:
    """Return a command that resumes the run from any folder."""
    return shlex.join(["perago", "run", "--resume", run.id, "--root", str(root.resolve())])


def forget_end(root: Path, run_id: str) -> None:
    """Remove the stored outcome of a run that is being resumed."""
    (runs_folder(root) / run_id / END).unlink(missing_ok=True)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.rename(path)


@contextmanager
def holding(folder: Path, *, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the run's lock during the block.  Raises `RuntimeConfigError` if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # `is_running` holds the lock for a moment: retry instead of failing.
        for turn in range(_LOCK_TRIES):
            if _try_lock(file, fcntl.LOCK_EX):
                break
            if turn == _LOCK_TRIES - 1:
                raise RuntimeConfigError(f"run {folder.name} is running in another process: wait for its end")
            pause(_LOCK_DELAY_SECONDS)
        yield
    finally:
        os.close(file)


def is_running(folder: Path) -> bool:
    """Return whether a process holds the run's lock."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
