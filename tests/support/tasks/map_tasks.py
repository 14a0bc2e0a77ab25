"""Tasks for maps: rows that fail until a file exists, kill their process, or wait inside the body."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, task

LONGEST_WAIT = 300.0


class Song(BaseModel):
    title: str
    fails_without: str = ""
    """A file; the row fails until it exists."""
    kills: bool = False
    waits_for: str = ""
    """A file; the body waits for it, and writes its process ids to `<file>.inside`."""


class Tagged(BaseModel):
    title: str


@task(
    name="tag_song",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/"),
    controls=TaskControls(retry=RetryPolicy(count=0, delay_seconds=0)),
)
def tag_song(workspace: Path, params: Song) -> Tagged:
    print(f"tagging {params.title}")
    if params.fails_without and not Path(params.fails_without).exists():
        raise TaskFailed(f"{params.title} cannot be tagged yet")
    if params.kills:
        os._exit(9)
    if params.waits_for:
        _wait(Path(params.waits_for))
    (workspace / "tag.txt").write_text(params.title)
    return Tagged(title=params.title)


def _wait(file: Path) -> None:
    daemon = os.getppid()
    jvm = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    inside = file.with_name(file.name + ".inside")
    inside.with_suffix(".new").write_text(f"{os.getpid()} {daemon} {jvm}")
    inside.with_suffix(".new").replace(inside)
    ends = time.monotonic() + LONGEST_WAIT
    while not file.exists() and time.monotonic() < ends:
        time.sleep(0.05)
