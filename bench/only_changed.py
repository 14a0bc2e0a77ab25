"""A daily step over a year of files, reading all of them or only the new one; the ledger over long histories; skipped steps.

The attempts run in this process, on the embedded orchestrator, and on lakeFS without a content cache.  The workflow of ten
steps runs by `perago run`, as a user runs it: the second time nothing has changed.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bench import Row
from bench.harness import Context, create_repository, lakefs_client, lakefs_lake, timed
from perago import RetryPolicy, TaskControls, WorkspaceSpec, changes, task
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.ledger import EntryKey
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.ledger import Ledger
from perago.testing.lake import put_objects

NAME = "Only what changed"
SERVERS = True
_STEPS = 10
_names = itertools.count()
_DAY = "".join(f"song {number},{number}\n" for number in range(20_000))
"""A day of plays: about 300 KB."""


class NoParams(BaseModel):
    """No params."""


class Total(BaseModel):
    """The number of rows."""

    rows: int


def add_up(table: Path, files: list[Path], *, anew: bool) -> Total:
    """Count the rows of some files, and append a line for each of them to a table."""
    counted = {file.name: len(file.read_text().splitlines()) for file in sorted(files)}
    table.parent.mkdir(exist_ok=True)
    with table.open("w" if anew else "a") as opened:
        opened.writelines(f"{name},{rows}\n" for name, rows in counted.items())
    return Total(rows=sum(counted.values()))


_CONTROLS = TaskControls(retry=RetryPolicy(count=0))


@task(
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(reads=("raw",), writes=("all",)),
    controls=_CONTROLS,
)
def all_days(workspace: Path, params: NoParams) -> Total:
    """Read every day again."""
    return add_up(workspace / "all/rows.csv", list((workspace / "raw").iterdir()), anew=True)


@task(
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(reads=("raw",), writes=("new",), changes_only=("raw",)),
    controls=_CONTROLS,
)
def new_days(workspace: Path, params: NoParams) -> Total:
    """Read the days that are new."""
    found = changes(workspace, "raw")
    files = [workspace / path for path in found.present]
    return add_up(workspace / "new/rows.csv", files, anew=found.since is None)


@dataclass(frozen=True, slots=True)
class Place:
    """A lake with a repository, and an orchestrator for attempts on it."""

    lake: Lake
    repository: str
    folder: Path
    orchestrator: LocalOrchestrator

    def commit(self, files: Mapping[str, str]) -> None:
        """Commit files by hand."""
        put_objects(self.lake, self.repository, "main", files, folder=self.folder / "uploads")
        self.lake.commit(self.repository, "main", "by hand", {})

    def run(self, definition: TaskDefinition) -> ExecutionResult:
        """Run one attempt from the head."""
        self.orchestrator.register_taskdefs([build_taskdef(definition)])
        given = {"workspace": "${workflow.input.workspace}", "params": {}}
        name = f"flow{next(_names)}"
        step = {
            "name": definition.name,
            "taskReferenceName": "step",
            "type": "SIMPLE",
            "inputParameters": given,
        }
        self.orchestrator.register_workflow({"name": name, "version": 1, "schemaVersion": 2, "tasks": [step]})
        head = self.lake.head(self.repository, "main").id
        workspace = {"repository": self.repository, "branch": "main", "ref": head}
        self.orchestrator.start_workflow(name, input={"workspace": workspace})
        [assignment] = self.orchestrator.poll(definition.name, worker_id="bench", count=1, wait_seconds=0)
        context = AttemptContext(self.lake, self.orchestrator, self.folder / "work")
        ended = Executor({definition.name: definition}, context, "bench", mask=str).execute(assignment)
        if ended.outcome.status != "COMPLETED":
            raise SystemExit(f"an attempt failed: {ended.outcome}")
        return ended


def run() -> list[Row]:
    """Measure on the embedded lake and on lakeFS, and then a workflow in which nothing has changed."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        rows: list[Row] = []
        for kind in ("embedded", "lakeFS"):
            rows += _daily(context, kind)
            rows += _ledger(context, kind)
        return [*rows, *_unchanged_workflow(context)]


def _daily(context: Context, kind: str) -> Iterator[Row]:
    days = 10 if context.quick else 365
    with ExitStack() as opened:
        place = _place(context, kind, opened)
        # Different bytes for each day, which no lake stores or sends once for all.
        place.commit({f"raw/day{day:03}.csv": f"day {day},0\n{_DAY}" for day in range(days - 1)})
        tasks = {"new": definition_of(new_days), "all": definition_of(all_days)}
        for definition in tasks.values():
            place.run(definition)
        place.commit({f"raw/day{days:03}.csv": f"day {days},0\n{_DAY}"})
        took: dict[str, float] = {}
        moved: dict[str, int] = {}
        for name, definition in tasks.items():
            took[name], ended = _timed_run(place, definition)
            moved[name] = ended.moved.downloaded
        context.say(f"{kind}: a daily step")
        yield Row(f"{kind}: a daily step over {days} days, all files", took["all"], "s")
        yield Row(f"{kind}: the same, only the new file", took["new"], "s")
        yield Row(f"{kind}: only the new file beside all files", took["new"] / took["all"], "times", 1.0)
        yield Row(f"{kind}: bytes downloaded, all files", moved["all"] / 1e6, "MB")
        yield Row(f"{kind}: bytes downloaded, only the new file", moved["new"] / 1e6, "MB")


def definition_of(fn: object) -> TaskDefinition:
    """Return the definition of a function that `@task` declares."""
    found: TaskDefinition = fn.__perago_task__  # type: ignore[attr-defined]
    return found


def _timed_run(place: Place, definition: TaskDefinition) -> tuple[float, ExecutionResult]:
    began = time.perf_counter()
    ended = place.run(definition)
    return time.perf_counter() - began, ended


def _ledger(context: Context, kind: str) -> Iterator[Row]:
    with ExitStack() as opened:
        place = _place(context, kind, opened)
        place.commit({"raw/day.csv": "song,1\n"})
        definition = definition_of(new_days)
        place.run(definition)
        assert definition.workspace is not None  # noqa: S101 - declared above
        key = EntryKey.of(definition.name, definition.workspace.view, {})
        made = 0
        for count in (10, 20) if context.quick else (100, 1_000, 9_990):
            while made < count:
                place.commit({"other/file.txt": f"{made}"})
                made += 1
            head = place.lake.head(place.repository, "main").id
            found: list[str] = []
            took = min(
                timed(lambda: found.append(Ledger(place.lake, place.repository, head).find(key).kind))  # noqa: B023
                for _ in range(3)
            )
            if found[-1] != "standing":
                raise SystemExit(f"the entry was not found over {count} commits: {found[-1]}")
            context.say(f"{kind}: the ledger over {count} commits")
            yield Row(f"{kind}: finding an entry {count:,} commits back", took * 1000, "ms")


def _place(context: Context, kind: str, opened: ExitStack) -> Place:
    folder = Path(tempfile.mkdtemp(dir=context.folder))
    orchestrator = opened.enter_context(closing(LocalOrchestrator(folder / "orchestrator.db")))
    if kind == "embedded":
        lake: Lake = opened.enter_context(closing(LocalLake(folder / "lake")))
        lake.create_repository("bench")
        return Place(lake, "bench", folder, orchestrator)
    repository = f"bench-changed-{os.urandom(4).hex()}"
    create_repository(lakefs_client(context), repository)
    lake = opened.enter_context(closing(lakefs_lake(context, folder / "cache", cache_bytes=0)))
    return Place(lake, repository, folder, orchestrator)


_MODULE = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class P(BaseModel):
    number: int

class R(BaseModel):
    pass

@task(
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(reads=("raw.txt",), writes=("made{number}.txt",)),
    skip_unchanged=True,
)
def made(workspace: Path, params: P) -> R:
    (workspace / f"made{params.number}.txt").write_text("made")
    return R()
"""


def _unchanged_workflow(context: Context) -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(dir=context.folder))
    (folder / "data").mkdir()
    (folder / "data/raw.txt").write_text("raw")
    (folder / "tasks.py").write_text(_MODULE)
    (folder / "flow.json").write_text(json.dumps(_ten_steps()))
    environ = {**os.environ, "PERAGO_SERVERS": "embedded"}

    def perago(*words: str) -> Any:
        said = subprocess.run(
            [sys.executable, "-m", "perago", *words],
            cwd=folder,
            env=environ,
            check=True,
            stdout=subprocess.PIPE,
        )
        return said.stdout

    perago("put", "songs", "data", "--create")
    run = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs", "--json")
    first = json.loads(perago(*run))
    again = [json.loads(perago(*run)) for _ in range(3)]
    skipped = [record for task in again[-1]["tasks"] for record in task["records"] if record.get("skipped")]
    if len(skipped) != _STEPS:
        raise SystemExit(f"{len(skipped)} of {_STEPS} steps were skipped")
    yield Row("a workflow of ten steps, first run, a step", first["seconds"] / _STEPS, "s")
    best = min(one["seconds"] for one in again)
    yield Row("the same when nothing has changed, a step", best / _STEPS, "s", 0.2)


def _ten_steps() -> dict[str, Any]:
    steps = []
    for number in range(_STEPS):
        before = f"step{number - 1}.output" if number else "workflow.input"
        given = {"workspace": f"${{{before}.workspace}}", "params": {"number": number}}
        reference = f"step{number}"
        steps.append(
            {"name": "made", "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}
        )
    return {
        "name": "ten",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "bench@example.com",
        "tasks": steps,
    }
