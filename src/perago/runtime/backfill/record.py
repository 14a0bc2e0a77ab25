"""The record of a backfill: the input commit, the rows and the flags are fixed once, and every session uses the same.

A backfill is a map run whose table was made from `--over`.  Its record in the lake, its claims and its outcomes are those of
a map (`runtime/maps/record`).  The rows are kept in the header of that record, so any machine can tell which partitions
failed; on the machine of its command they are also in the run file:

<root>/backfills/<run id>.jsonl        the outcome of each row, once a session has ended
<root>/backfills/<run id>.jsonl.map    the run file, with rows and flags, and the lock of the command that runs them
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from perago.declare.task import TaskDefinition
from perago.errors import LakeNotFound, RuntimeConfigError
from perago.lake.base import Lake
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.backfill.partitions import Partition, partition_of
from perago.runtime.maps.record import HEADER, REPOSITORY, MapRecord
from perago.runtime.maps.rows import Row, RowOutcome
from perago.runtime.maps.run_file import MapRunFile, read_run_file
from perago.runtime.runs.record import complete_id, find_end, is_running, runs_folder

Only = Literal["missing", "failed", "all"]
Order = Literal["asc", "desc"]
PREFIX = "backfill-"
_FOLDER = "backfills"
_SUFFIX = ".jsonl.map"
MOST_RECORDS = 100
"""The number of newest backfills whose records are read to find out which partitions failed."""


@dataclass(frozen=True, slots=True)
class BackfillRow:
    """One row: its params as JSON values, and the params that name its partition, as text."""

    params: Mapping[str, Any]
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a backfill, as the command line gives them."""

    over: Sequence[str] = ()
    jobs: int | None = None
    only: Only = "missing"
    order: Order = "asc"
    full: bool = False
    force: bool = False
    retries: int | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """All that is fixed when a backfill begins."""

    repository: str
    branch: str
    ref: str
    """The branch's head when the backfill began, from which all rows read."""
    paths: Mapping[str, Any]
    """What the task declared about its paths, so that a resumed backfill works on the same ones."""
    rows: Sequence[BackfillRow]
    """The rows in the order in which they run."""
    flags: Flags = field(default_factory=Flags)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Backfill:
        """Return a backfill from a run file.  Raises a `TypeError` or `KeyError` if it is something else."""
        rows = [BackfillRow(**one) for one in values["rows"]]
        return cls(**{**values, "rows": rows, "flags": Flags(**values["flags"])})

    def to_json(self) -> dict[str, Any]:
        """Return the backfill as JSON values."""
        return asdict(self)

    @property
    def rebases(self) -> bool:
        """True if the rows publish on top of each other's commits, and can run at once."""
        return bool(self.paths["on_advanced"] == "rebase")

    @property
    def sequential(self) -> bool:
        """True if a row begins only after the one before it has ended."""
        return self.flags.jobs == 1 or not self.rebases

    def table(self) -> list[Row]:
        """Return the rows of the map.  Those that do not rebase start from the branch's head, one after another.

        A backfill that is one transaction has one more, which publishes it.
        """
        ref = self.ref if self.rebases else ""
        rows = [
            Row(number, self.repository, self.branch, ref, row.params, partition=row.partition)
            for number, row in enumerate(self.rows, start=1)
        ]
        return [*rows, Row(len(rows) + 1, self.repository, self.branch)] if self.flags.atomic else rows


def rows_of(partitions: Sequence[Partition]) -> list[BackfillRow]:
    """Return partitions as rows."""
    return [BackfillRow(dict(one.params), dict(one.names)) for one in partitions]


def paths_of(task: TaskDefinition) -> dict[str, Any]:
    """Return what a task declares about its paths, as JSON values."""
    spec = task.workspace
    assert spec is not None  # noqa: S101 - checked by `check_task`
    reads, writes = (None if paths is None else list(paths) for paths in (spec.reads, spec.writes))
    return {"prefix": spec.prefix, "reads": reads, "writes": writes, "on_advanced": spec.on_advanced}


def check_paths(task: TaskDefinition, backfill: Backfill, run: str) -> None:
    """Raise `RuntimeConfigError` if the task works on other paths than those that the backfill began with."""
    now = paths_of(task)
    for name, before in backfill.paths.items():
        if now.get(name) != before:
            raise RuntimeConfigError(
                f"backfill {run} began with WorkspaceSpec({name}={before!r}), and task {task.name!r} now has "
                f"{now.get(name)!r}: restore it, or start a new backfill"
            )


def outcomes_file(root: Path, run: str) -> Path:
    """Return the place for a backfill's outcomes."""
    return root / _FOLDER / f"{run}.jsonl"


# --- the records in the lake -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EarlierBackfill:
    """A backfill as its record in the lake has it."""

    run: str
    started: float
    backfill: Backfill
    record: MapRecord

    def partitions(self, task: TaskDefinition) -> Iterator[tuple[int, Partition]]:
        """Yield the number and the partition of each row whose params the task still takes."""
        for number, row in enumerate(self.backfill.rows, start=1):
            with suppress(RuntimeConfigError):
                yield number, partition_of(task, row.params)

    def outcomes(self, rows: Container[int]) -> Iterator[RowOutcome]:
        """Yield the outcomes of those among these rows that have ended.

        Rows that are done, but whose backfill has not published them yet, have none.
        """
        last = len(self.backfill.rows) + 1
        unpublished = self.backfill.flags.atomic and not any(
            one.done for one in self.record.outcomes((last,))
        )
        return (one for one in self.record.outcomes(rows) if not (unpublished and one.done))


def earlier_backfills(lake: Lake, task: str, repository: str, branch: str) -> Iterator[EarlierBackfill]:
    """Yield the backfills of a task on a branch, newest first, from whichever machine they were started."""
    try:
        names = [one.name for one in lake.branches(REPOSITORY, PREFIX)]
    except LakeNotFound:
        return  # no map and no backfill has run on this lake yet
    for name in islice(sorted(names, reverse=True), MOST_RECORDS):
        header = _header(lake, name)
        if header is None or header.get("task") != task:
            continue
        try:
            backfill = Backfill.of_json(header["backfill"])
            started = float(header["started"]) / 1000
        except (TypeError, KeyError, ValueError):
            continue  # another version of Perago wrote it
        if (backfill.repository, backfill.branch) == (repository, branch):
            yield EarlierBackfill(name, started, backfill, MapRecord(lake, name))


def _header(lake: Lake, run: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(b"".join(lake.read(REPOSITORY, run, HEADER)))
    except (LakeNotFound, ValueError):
        return None  # a command that was killed at once, or a record that is being removed
    return found if isinstance(found, dict) else None


# --- the records on this machine ---------------------------------------------------------------------------------


def find_to_resume(root: Path, name: str | None, task: str, lake: str, at: tuple[str, str]) -> MapRunFile:
    """Return the run file of the backfill to resume: the named one, or the newest unfinished one of a task on a branch.

    `name` may be a unique beginning of an id, and `at` is the repository and the branch.
    """
    where = f"{at[0]}@{at[1]}"
    files = {path.name.removesuffix(_SUFFIX): path for path in (root / _FOLDER).glob(f"{PREFIX}*{_SUFFIX}")}
    if name is not None:
        found = complete_id(name, files)
        if found is None:
            ids = sorted(files, reverse=True)
            there_are = f"; there are: {listed(ids)}"
            raise RuntimeConfigError(
                f"there is no backfill {name!r} below {root}{did_you_mean(name, ids, otherwise=there_are)}"
            )
        chosen = _checked_run_file(files[found])
        if not _is_of(chosen, task, lake, at):
            began = chosen.backfill or {}
            raise RuntimeConfigError(
                f"backfill {found} is of task {chosen.task!r} on {began.get('repository')}@{began.get('branch')} in "
                f"{chosen.lake}, and not of {task!r} on {where} in {lake}"
            )
        return chosen
    running = False
    for run in sorted(files, reverse=True):
        end = find_end(root, run)
        if end is not None and end.status == "COMPLETED":
            continue
        with suppress(RuntimeConfigError):
            if _is_of(chosen := _checked_run_file(files[run]), task, lake, at):
                if not is_running(runs_folder(root) / run):
                    return chosen
                running = True
    raise RuntimeConfigError(
        f"every unfinished backfill of task {task!r} on {where} is running: wait for it, or stop it"
        if running
        else f"there is no unfinished backfill of task {task!r} on {where} below {root}: leave out --resume to start one"
    )


def _checked_run_file(path: Path) -> MapRunFile:
    try:
        found = read_run_file(path)
        Backfill.of_json(found.backfill or {})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RuntimeConfigError(
            f"{path} is damaged, or another version of Perago wrote it: {error}"
        ) from None
    return found


def _is_of(run_file: MapRunFile, task: str, lake: str, at: tuple[str, str]) -> bool:
    backfill = run_file.backfill or {}
    same = (run_file.task, run_file.lake) == (task, lake)
    return same and (backfill.get("repository"), backfill.get("branch")) == at
