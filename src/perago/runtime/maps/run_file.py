"""The run file `OUTCOMES.map`, which is next to the table of outcomes, and the lock on that file.

The file names the run, so that `--resume` can find the run's record in the lake.  Everything else is in that record.

Only one driver at a time may hold the lock.  The lock is released when its process dies, so a killed driver leaves no
lock behind.  Two drivers on different machines may both get the lock.  This is harmless, because rows are claimed in
the record.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from perago.errors import RuntimeConfigError
from perago.runtime.maps.rows import Row


@dataclass(frozen=True, slots=True)
class MapRunFile:
    """The content of the run file: the id, task, lake and table of a map run."""

    run: str
    started: int
    task: str
    lake: str
    """The lake's address, without credentials."""
    table: str
    """A digest of all rows in the table."""
    rows: int
    backfill: Mapping[str, Any] | None = None
    """The rows and flags of a backfill, as JSON (`runtime/backfill/record`); None for a map, whose table has its rows."""

    @property
    def command(self) -> str:
        """The command that wrote the file."""
        return "perago map" if self.backfill is None else "perago backfill"


def new_run_id(now: float, kind: Literal["map", "backfill"] = "map") -> str:
    """Return a unique run id that sorts by time."""
    return f"{kind}-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def run_file_path(outcomes: Path) -> Path:
    """Return the path of the run file for a table of outcomes."""
    return outcomes.with_name(outcomes.name + ".map")


def digest_of(rows: Sequence[Row]) -> str:
    """Return a digest of the table's rows."""
    total = hashlib.sha256()
    for row in rows:
        fields = asdict(row)
        # The key is part of the digest in every run file, so it must stay when the attribute is renamed.
        fields["mistake"] = fields.pop("diagnostic")
        if not fields["partition"]:
            del fields["partition"]  # which run files of older versions do not have
        total.update(json.dumps(fields, sort_keys=True).encode("utf-8", "surrogatepass") + b"\n")
    return total.hexdigest()


@contextmanager
def locked_run_file(outcomes: Path, fresh: MapRunFile, *, resume: bool) -> Iterator[MapRunFile]:
    """Lock the run file and yield the run: `fresh`, or the existing run if it is to be resumed.

    Raises `RuntimeConfigError` if another driver holds the lock, if there is no run to resume or that run has a
    different task, lake or table, or if a new run would overwrite an existing one.
    """
    path = run_file_path(outcomes)
    if not resume and (outcomes.exists() or path.exists()):
        raise RuntimeConfigError(
            f"{outcomes if outcomes.exists() else path} already exists: add --resume to resume that run, or name "
            "another table of outcomes"
        )
    if resume and not path.exists():
        raise RuntimeConfigError(
            f"there is no run to resume: {path} is missing; leave out --resume to start one"
        )
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RuntimeConfigError(
            f"{path} cannot be written: {error.strerror}; name a folder that is there and that you may write to with -o"
        ) from error
    try:
        _lock(file, path, fresh)
        yield _read(path, fresh) if resume else _write(file, fresh)
    finally:
        os.close(file)


def _lock(file: int, path: Path, now: MapRunFile) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RuntimeConfigError(
            f"another `{now.command}` is writing these outcomes (it holds {path}): wait for it, or stop it"
        ) from None


def _write(file: int, run_file: MapRunFile) -> MapRunFile:
    os.pwrite(file, json.dumps(asdict(run_file), indent=1).encode(), 0)
    os.fsync(file)
    return run_file


def read_run_file(path: Path) -> MapRunFile:
    """Read a run file.  Raises an `OSError`, `ValueError` or `TypeError` if there is none, or if it is something else."""
    return MapRunFile(**json.loads(path.read_text(encoding="utf-8")))


def _read(path: Path, now: MapRunFile) -> MapRunFile:
    try:
        found = read_run_file(path)
    except (ValueError, TypeError) as error:
        raise RuntimeConfigError(f"{path} was not written by `{now.command}`: {error}") from None
    for name, what in (("task", "the task"), ("lake", "the lake"), ("table", "the table")):
        if getattr(found, name) != getattr(now, name):
            shown = "" if name == "table" else f": {getattr(found, name)}, now {getattr(now, name)}"
            raise RuntimeConfigError(
                f"{what} is not the one that run {found.run} began with{shown}; give the same one, or name another table "
                "of outcomes to start a new run"
            )
    return found
