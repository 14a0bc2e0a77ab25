"""Runs of `perago run`: each has a folder below the root with its orchestrator's state and what it needs to go on.

<root>/runs/<run id>/run.json          the task modules, and the workflow that was started
<root>/runs/<run id>/orchestrator.db   the embedded orchestrator's state
<root>/runs/<run id>/run.log           what it showed and did
<root>/runs/<run id>/end.json          how it ended, as far as this machine knows

Whether a run's process is alive, by a lock on the run's folder that the system gives back when its holder dies.

What is kept of a run while it is driven: that it goes on, its log, and how it stood in the end.
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


@dataclass(frozen=True, slots=True)
class Run:
    """What a killed run needs to go on."""

    id: str
    workflow_id: str
    workflow_name: str
    targets: Sequence[str]
    folder: str
    """The current folder when it was started: targets are relative to it."""
    embedded: bool = True
    """Whether it is on the embedded servers."""
    tasks: Sequence[str] | None = None
    """The tasks that its workflow uses; None, in records from before there was this field: all of the modules."""
    side_by_side: int | None = None
    """How many of its steps can run at the same time; None where nobody can tell."""
    workflow_file: str = ""
    workflow_digest: str = ""
    """The file that its workflow came from, and what it held then."""
    from_run: str | None = None
    from_step: str | None = None
    """The run, and the step of it, where this one began."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run stood when its process left it."""

    status: str
    started: float | None
    ended: float | None
    failed: str = ""


def runs_folder(root: Path) -> Path:
    """Where the runs of a root are."""
    return root / "runs"


def orchestrator_file(root: Path, run_id: str) -> Path:
    """Where a run on the embedded servers has its orchestrator's state."""
    return runs_folder(root) / run_id / "orchestrator.db"


def log_file(root: Path, run_id: str) -> Path:
    """Where a run's log is."""
    return runs_folder(root) / run_id / "run.log"


def new_run_id(now: float) -> str:
    """An id that no other run has, and that sorts by time, also among runs that begin within a second."""
    begun = datetime.fromtimestamp(now, UTC)
    return f"{begun:%Y%m%d-%H%M%S}-{begun.microsecond * 16**3 // 1_000_000:03x}{secrets.token_hex(3)}"


def save_run(root: Path, run: Run) -> None:
    """Write the record, whole or not at all."""
    _write(runs_folder(root) / run.id / RECORD, asdict(run))


def save_end(root: Path, run_id: str, end: RunEnd) -> None:
    """Keep how a run ended, for listings that do not ask its orchestrator."""
    _write(runs_folder(root) / run_id / END, asdict(end))


def find_end(root: Path, run_id: str) -> RunEnd | None:
    """How a run ended when it was driven last; None where that is not known."""
    try:
        return RunEnd(**json.loads((runs_folder(root) / run_id / END).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def all_runs(root: Path) -> list[Run]:
    """The records of all runs, newest first; what cannot be read is left out."""
    return list(read_runs(root))


def read_runs(root: Path, skip: int = 0) -> Iterator[Run]:
    """The records of the runs, newest first, one after the other, without the first `skip`.

    What cannot be read is left out, and does not count.
    """
    try:
        # By name, which sorts by time: those that nobody asks for are not opened.
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
    """The run of that id, or the newest."""
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
        # The newest is not passed over for an older one: nobody asked for that.
        raise RuntimeConfigError(
            f"run {run_id} cannot be resumed: {records[run_id]} is damaged, or another version of Perago wrote it "
            f"({error}); name another run, `{shlex.join(['perago', 'runs', '--root', str(root)])}` lists them"
        ) from error


def resume_command(run: Run, root: Path) -> str:
    """The command that goes on with a run, to be pasted in any folder."""
    return shlex.join(["perago", "run", "--resume", run.id, "--root", str(root.resolve())])


def forget_end(root: Path, run_id: str) -> None:
    """The run goes on: how it ended before is no news any more."""
    (runs_folder(root) / run_id / END).unlink(missing_ok=True)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.rename(path)


LOCK = ".lock"
_TRIES = 20
_PAUSE_SECONDS = 0.05


@contextmanager
def holding(folder: Path, *, pause: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Say, for as long as the block runs, that the run goes on; `RuntimeConfigError` where it does elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # Whoever looks holds it for a moment: that is not worth an error.
        for turn in range(_TRIES):
            if _locked(file, fcntl.LOCK_EX):
                break
            if turn == _TRIES - 1:
                raise RuntimeConfigError(
                    f"run {folder.name} is going on in another process: wait for its end"
                )
            pause(_PAUSE_SECONDS)
        yield
    finally:
        os.close(file)


def is_running(folder: Path) -> bool:
    """Whether a process holds the run."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
