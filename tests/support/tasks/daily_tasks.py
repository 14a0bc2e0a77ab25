"""Tasks with a partition for each day: rows that fail until a file exists, kill their process, or wait inside the body."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, task

LONGEST_WAIT = 300.0
_ONCE = TaskControls(retry=RetryPolicy(count=0, delay_seconds=0))


class Day(BaseModel):
    day: date
    fails_without: str = ""
    """A file; the days that `fails_on` names fail until it exists."""
    fails_on: str = ""
    """Days of the month, such as `3,7`."""
    kills_on: int = 0
    """A day of the month; its body kills its process until the file `fails_without` exists."""
    waits_on: int = 0
    """A day of the month; its body waits for the file `fails_without`, and notes its process ids beside it."""


class Cleaned(BaseModel):
    lines: int


@task(
    name="clean_day",
    owner_email="tests@example.com",
    controls=_ONCE,
    workspace=WorkspaceSpec(
        reads=("raw/day={day}",),
        writes=("clean/day={day}",),
        on_abandoned="supersede",
        on_advanced="rebase",
    ),
)
def clean_day(workspace: Path, params: Day) -> Cleaned:
    return _clean(workspace, params)


@task(
    name="clean_in_order",
    owner_email="tests@example.com",
    controls=_ONCE,
    workspace=WorkspaceSpec(reads=("raw/day={day}",), writes=("clean/day={day}",)),
)
def clean_in_order(workspace: Path, params: Day) -> Cleaned:
    return _clean(workspace, params)


def _clean(workspace: Path, params: Day) -> Cleaned:
    fixed = bool(params.fails_without) and Path(params.fails_without).exists()
    print(f"cleaning {params.day}")
    if str(params.day.day) in params.fails_on.split(",") and not fixed:
        raise TaskFailed(f"{params.day} cannot be cleaned yet")
    if params.day.day == params.kills_on and not fixed:
        os._exit(9)
    if params.day.day == params.waits_on:
        _wait(Path(params.fails_without))
    lines = [
        line
        for file in sorted((workspace / "raw" / f"day={params.day}").glob("*"))
        for line in file.read_text().splitlines()
    ]
    folder = workspace / "clean" / f"day={params.day}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part.csv").write_text("\n".join(lines))
    return Cleaned(lines=len(lines))


def _wait(file: Path) -> None:
    daemon = os.getppid()
    inside = file.with_name(file.name + ".inside")
    inside.with_suffix(".new").write_text(f"{os.getpid()} {daemon}")
    inside.with_suffix(".new").replace(inside)
    ends = time.monotonic() + LONGEST_WAIT
    while not file.exists() and time.monotonic() < ends:
        time.sleep(0.05)
