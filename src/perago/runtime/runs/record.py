"""The folder of a run below the root, with everything needed to resume it.

<root>/runs/<run id>/run.json          the task modules, and the workflow that was started
<root>/runs/<run id>/orchestrator.db   the embedded orchestrator's state
<root>/runs/<run id>/run.log           the run's progress and the worker's log
<root>/runs/<run id>/end.json          the run's outcome, as far as this machine knows
<root>/runs/<map id>/map.json          the record of a map run in place of run.json; it has no orchestrator (`map_runs`)
<root>/runs/<run id>/.lock             locked while the run's process lives; the system unlocks it when the process dies
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from perago.errors import RuntimeConfigError
from perago.protocol.ledger import Recompute
from perago.protocol.suggestions import did_you_mean, listed

RECORD = "run.json"
MAP_RECORD = "map.json"
MAP_PREFIXES = ("map-", "backfill-")
"""The beginning of every map run's id: a backfill is one, too."""
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
    input: Mapping[str, Any] | None = None
    """The workflow's input without secrets and with long values truncated; None in records older than this field."""
    resumed: Sequence[float] = ()
    """The times at which the run was resumed, oldest first."""
    full: bool = False
    """True if the run skips nothing, and everything counts as changed."""
    forced: Sequence[str] = ()
    """The steps whose bodies run although nothing has changed."""

    @property
    def recompute(self) -> Recompute:
        """The work that the run does again although nothing has changed."""
        return Recompute(self.full, frozenset(self.forced))

    def with_recompute(self, recompute: Recompute) -> Run:
        """Return the record with other work that is done again."""
        return replace(self, full=recompute.full, forced=sorted(recompute.steps))


@dataclass(frozen=True, slots=True)
class MapRun:
    """The record of a map run on the machine of its command.  The rows' outcomes are in the lake (decision 0020)."""

    id: str
    task: str
    table: str
    outcomes: str
    """`table` and `outcomes`: the two files, as given on the command line."""
    rows: int
    started: float
    folder: str
    """The folder in which the command ran.  Paths in it are relative to it."""
    lake: str = ""
    """The lake's address, without credentials."""
    embedded: bool = True
    command: Sequence[str] = ()
    """The words of the command line that resumes the run; empty if it is unknown."""
    resumed: Sequence[float] = ()
    workspace: str = ""
    """The repository and the branch of a backfill, whose `table` is the text of its `--over`; empty for a map."""

    @property
    def kind(self) -> Literal["map", "backfill"]:
        """The kind of run: a map, whose rows come from a table, or a backfill."""
        return "backfill" if self.workspace else "map"

    @property
    def workflow_name(self) -> str:
        """The name shown in lists, where a workflow's name would be."""
        return f"{self.kind} {self.task}"

    @property
    def title(self) -> str:
        """The run's kind, task and rows, as text."""
        on = f" on {self.workspace}" if self.workspace else ""
        return f"{self.kind} of task {self.task}{on} over {self.table}"

    @property
    def outcomes_path(self) -> Path:
        """The absolute path of the table of outcomes."""
        return Path(self.folder) / self.outcomes

    @property
    def own_files(self) -> Sequence[Path]:
        """The files of the run that are in a place of Perago's own: a backfill's outcomes, and its rows and flags."""
        outcomes = self.outcomes_path
        return () if self.kind == "map" else (outcomes, outcomes.with_name(f"{outcomes.name}.map"))

    @property
    def resume(self) -> str:
        """The command that resumes the run, or an empty string if it is unknown."""
        words = shlex.join(self.command)
        return (
            words if not words or os.getcwd() == self.folder else f"cd {shlex.quote(self.folder)} && {words}"
        )


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The last saved state of a run.  It is saved when the run's worker stops, even if the workflow is unfinished."""

    status: str
    started: float | None
    ended: float | None
    failed: str = ""
    replaced_unsigned: int = 0
    """The number of commits that the run replaced although no task had signed them."""


def runs_folder(root: Path) -> Path:
    """Return the folder that contains all runs below a root."""
    return root / "runs"


def orchestrator_file(root: Path, run_id: str) -> Path:
    """Return the file with the state of a run's embedded orchestrator."""
    return runs_folder(root) / run_id / "orchestrator.db"


def state_is_gone(run_id: str, root: Path) -> str:
    """Return the message for a run whose orchestrator's state no longer exists."""
    return f"the state of {run_id} is gone from {root}; `perago runs rm {run_id}` removes the rest"


def log_file(root: Path, run_id: str) -> Path:
    """Return the path of a run's log."""
    return runs_folder(root) / run_id / "run.log"


def map_log(root: Path, run_id: str) -> Path:
    """Return the file for what the bodies of a map run print on this machine."""
    return root / "maps" / f"{run_id}.log"


def new_run_id(now: float) -> str:
    """Return a unique run id that sorts by time, even among runs started within the same second."""
    started = datetime.fromtimestamp(now, UTC)
    return f"{started:%Y%m%d-%H%M%S}-{started.microsecond * 16**3 // 1_000_000:03x}{secrets.token_hex(3)}"


def save_run(root: Path, run: Run) -> None:
    """Write the run's record atomically."""
    write_json(runs_folder(root) / run.id / RECORD, asdict(run))


def save_map(root: Path, run: MapRun) -> None:
    """Write the record of a map run atomically."""
    write_json(runs_folder(root) / run.id / MAP_RECORD, asdict(run))


def save_end(root: Path, run_id: str, end: RunEnd) -> None:
    """Write the outcome of a run, so that listings need not ask its orchestrator."""
    write_json(runs_folder(root) / run_id / END, asdict(end))


def find_end(root: Path, run_id: str) -> RunEnd | None:
    """Return the run's last saved outcome, or None if there is none or it cannot be read."""
    try:
        return RunEnd(**json.loads((runs_folder(root) / run_id / END).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def all_runs(root: Path) -> list[Run]:
    """Return the records of all runs, newest first, without the unreadable ones."""
    return list(read_runs(root))


def read_runs(root: Path) -> Iterator[Run]:
    """Yield the records of the runs of workflows, newest first, without the unreadable ones."""
    return (one for one in read_records(root) if isinstance(one, Run))


def read_records(root: Path, skip: int = 0) -> Iterator[Run | MapRun]:
    """Yield the records of all runs, maps included, newest first, starting after the first `skip`.

    Unreadable records are left out and not counted.
    """
    try:
        names = [one.name for one in os.scandir(runs_folder(root))]
    except OSError:
        return
    # Names sort by time, so records that the caller does not consume are never opened.
    for name in sorted(names, key=_time_of, reverse=True):
        if (record := read_record(root, name)) is not None:
            if skip <= 0:
                yield record
            skip -= 1


def _time_of(run_id: str) -> str:
    for prefix in MAP_PREFIXES:
        run_id = run_id.removeprefix(prefix)
    return run_id


def read_record(root: Path, name: str) -> Run | MapRun | None:
    """Return the record in one folder below the runs, or None if there is none or it cannot be read."""
    folder = runs_folder(root) / name
    with suppress(OSError, ValueError, TypeError):
        if name.startswith(MAP_PREFIXES):
            return MapRun(**json.loads((folder / MAP_RECORD).read_text(encoding="utf-8")))
        return Run(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    return None


def find_run(root: Path, run_id: str | None) -> Run:
    """Return the run with that id or workflow id, of which a unique beginning is enough; by default the newest run.

    Raises `RuntimeConfigError` if the run is missing or its record is unreadable.
    """
    records = {path.parent.name: path for path in runs_folder(root).glob(f"*/{RECORD}")}
    if run_id is not None and (mapped := map_named(root, run_id)) is not None:
        raise RuntimeConfigError(f"{mapped.id} is a {mapped.kind}; continue it with `{mapped.resume}`")
    if not records:
        raise RuntimeConfigError(
            f"there is no run below {root}: start one with `perago run WORKFLOW --tasks TARGET`, or name the root "
            "that has it with --root"
        )
    found = max(records) if run_id is None else complete_id(run_id, records) or _run_of_workflow(root, run_id)
    if found is None:
        there = _instead_of(run_id or "", sorted(records, reverse=True))
        raise RuntimeConfigError(f"no run {run_id!r} below {root} that `perago run` has started{there}")
    run_id = found
    try:
        return Run(**json.loads(records[run_id].read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        # Do not fall back to an older run: the caller asked for the newest.
        raise RuntimeConfigError(
            f"run {run_id} cannot be resumed: {records[run_id]} is damaged, or another version of Perago wrote it "
            f"({error}); name another run, `{shlex.join(['perago', 'runs', '--root', str(root)])}` lists them"
        ) from error


def _instead_of(name: str, runs: list[str]) -> str:
    """Return the remedy for a name that no run has."""
    if ":" in name or name.endswith((".json", ".py")):
        return "; name a run and not a workflow, or leave it out for the newest run"
    return did_you_mean(name, runs, otherwise=f"; there are: {listed(runs)}")


def map_named(root: Path, name: str) -> MapRun | None:
    """Return the map run with that id, of which a unique beginning is enough, or None if there is none.

    Raises `RuntimeConfigError` if several ids begin with the name.
    """
    if not name.startswith(MAP_PREFIXES):
        return None
    maps = {one.id: one for one in read_records(root) if isinstance(one, MapRun)}
    found = complete_id(name, maps)
    return maps[found] if found is not None else None


def complete_id(text: str, ids: Iterable[str]) -> str | None:
    """Return the id that is equal to `text` or, if there is none, the only one that begins with it.

    Returns None if no id does.  Raises `RuntimeConfigError` if several do.
    """
    known = set(ids)
    if text in known or not text:
        return text if text in known else None
    found = sorted(one for one in known if one.startswith(text))
    if len(found) > 1:
        raise RuntimeConfigError(f"several ids begin with {text!r}: {listed(found)}; give more characters")
    return found[0] if found else None


def _run_of_workflow(root: Path, text: str) -> str | None:
    runs = {run.workflow_id: run.id for run in read_runs(root)}
    found = complete_id(text, runs)
    return None if found is None else runs[found]


def resume_command(run: Run, root: Path) -> str:
    """Return a command that resumes the run from any folder."""
    return shlex.join(["perago", "run", "--resume", run.id, "--root", str(root.resolve())])


def forget_end(root: Path, run_id: str) -> None:
    """Remove the stored outcome of a run that is being resumed."""
    (runs_folder(root) / run_id / END).unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file of a run atomically, and create its folder if necessary."""
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
