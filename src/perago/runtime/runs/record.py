"""Runs of `perago run`: each has a folder below the root with its orchestrator's state and what it needs to go on.

<root>/runs/<run id>/run.json          the task modules, and the workflow that was started
<root>/runs/<run id>/orchestrator.db   the embedded orchestrator's state
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from perago.errors import RuntimeConfigError

RECORD = "run.json"


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


def runs_folder(root: Path) -> Path:
    """Where the runs of a root are."""
    return root / "runs"


def orchestrator_file(root: Path, run_id: str) -> Path:
    """Where a run on the embedded servers has its orchestrator's state."""
    return runs_folder(root) / run_id / "orchestrator.db"


def new_run_id(now: float) -> str:
    """An id that sorts by time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(3)


def save_run(root: Path, run: Run) -> None:
    """Write the record, whole or not at all."""
    folder = runs_folder(root) / run.id
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{RECORD}.new"
    temporary.write_text(json.dumps(asdict(run), indent=2) + "\n", encoding="utf-8")
    temporary.rename(folder / RECORD)


def find_run(root: Path, run_id: str | None) -> Run:
    """The run of that id, or the newest."""
    records = {path.parent.name: path for path in runs_folder(root).glob(f"*/{RECORD}")}
    if not records:
        raise RuntimeConfigError(f"there is no run to resume below {root}")
    if run_id is None:
        run_id = max(records)
    if run_id not in records:
        raise RuntimeConfigError(f"no run {run_id!r} below {root}; there are: {', '.join(sorted(records))}")
    return Run(**json.loads(records[run_id].read_text(encoding="utf-8")))
