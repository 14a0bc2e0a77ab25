"""Three plain tasks on one workspace: clean song plays, count them by song, and inspect the result."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    TaskControls,
    TaskFailed,
    TimeoutPolicy,
    WorkspaceSpec,
    require_file,
    require_glob,
    task,
)

OWNER = "data@example.com"
QUICK = TaskControls(
    retry=RetryPolicy(count=2, delay_seconds=1), timeout=TimeoutPolicy(response_seconds=60, seconds=600)
)


class CleanParams(BaseModel):
    min_seconds: int = 30


class Cleaned(BaseModel):
    kept: int
    dropped: int


class CountParams(BaseModel):
    top: int = 3


class Counted(BaseModel):
    songs: int
    most_played: str


class Nothing(BaseModel):
    pass


class Audited(BaseModel):
    rows: int


@task(
    name="clean_plays",
    description="Drops plays that are too short or broken.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix="/", pre=[require_glob("raw/*.csv")], post=[require_file("clean/plays.csv")]
    ),
    controls=QUICK,
)
def clean_plays(workspace: Path, params: CleanParams) -> Cleaned:
    kept, dropped = [], 0
    for file in sorted((workspace / "raw").glob("*.csv")):
        with file.open(newline="") as lines:
            for song, seconds in csv.reader(lines):
                if seconds.isdigit() and int(seconds) >= params.min_seconds:
                    kept.append((song, seconds))
                else:
                    dropped += 1
    (workspace / "clean").mkdir(exist_ok=True)
    with (workspace / "clean" / "plays.csv").open("w", newline="") as out:
        csv.writer(out).writerows(kept)
    return Cleaned(kept=len(kept), dropped=dropped)


@task(
    name="count_plays",
    description="Counts plays by song.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        prefix="/", pre=[require_file("clean/plays.csv")], post=[require_file("report/top.txt")]
    ),
    controls=QUICK,
)
def count_plays(workspace: Path, params: CountParams) -> Counted:
    with (workspace / "clean" / "plays.csv").open(newline="") as lines:
        plays = Counter(song for song, _ in csv.reader(lines))
    (workspace / "report").mkdir(exist_ok=True)
    lines = [f"{count:>5}  {song}" for song, count in plays.most_common(params.top)]
    (workspace / "report" / "top.txt").write_text("\n".join(lines) + "\n")
    return Counted(songs=len(plays), most_played=plays.most_common(1)[0][0])


@task(
    name="audit_plays",
    description="Looks, and publishes nothing.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="/clean", read_only=True),
    controls=QUICK,
)
def audit_plays(workspace: Path, params: Nothing) -> Audited:
    rows = (workspace / "plays.csv").read_text().count("\n")
    if rows == 0:
        raise TaskFailed("there are no plays left")
    return Audited(rows=rows)
