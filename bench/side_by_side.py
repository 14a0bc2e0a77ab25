"""Eight steps that publish to one branch side by side, compared with the same eight in sequence: commits per second.

Each step writes one small file into its own folder.  If the bodies do nothing, there is little to gain: publications to
one branch happen one after the other anyway, and the threads share one Python process.  So the same is also measured
with bodies that take a second, like a body that waits for Spark.  In sequence, each step starts from the commit of the
previous one.
"""

from __future__ import annotations

import itertools
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lakefs_sdk
from pydantic import BaseModel

from bench import Row
from bench.harness import Context, create_repository, in_turns, lakefs_client, lakefs_lake, timed
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake
from perago.lake.lakefs.fence import Fence
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor

NAME = "Eight publishers on one branch"
SERVERS = True
EIGHT = 8
_ROUNDS = 5
_numbers = itertools.count()


class Params(BaseModel):
    """A number that makes each attempt's change unique, and the duration of its body."""

    number: int
    seconds: float


class Result(BaseModel):
    """An empty result."""


def _publisher(number: int) -> TaskDefinition:
    @task(
        name=f"publisher_{number}",
        owner_email="bench@example.com",
        workspace=WorkspaceSpec(
            prefix="/data",
            reads=(f"t{number}",),
            on_advanced="rebase",
            on_abandoned="supersede",
        ),
        controls=TaskControls(retry=RetryPolicy(count=0)),
    )
    def publish(workspace: Path, params: Params) -> Result:
        time.sleep(params.seconds)
        (workspace / f"t{number}").mkdir(exist_ok=True)
        (workspace / f"t{number}" / "file.txt").write_text(str(params.number))
        return Result()

    definition: TaskDefinition = publish.__perago_task__  # type: ignore[attr-defined]
    return definition


TASKS: Mapping[str, TaskDefinition] = {f"publisher_{number}": _publisher(number) for number in range(EIGHT)}


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch that all eight tasks publish to."""

    lake: Lake
    orchestrator: LocalOrchestrator
    repository: str
    folder: Path

    def assigned(self, name: str, seconds: float) -> Assignment:
        """Return an attempt of this task that starts from the current head."""
        ref = self.lake.head(self.repository, "main").id
        workspace = {"repository": self.repository, "branch": "main", "ref_type": "commit", "ref": ref}
        params = {"number": next(_numbers), "seconds": seconds}
        self.orchestrator.start_workflow(f"flow-{name}", input={"workspace": workspace, "params": params})
        [assignment] = self.orchestrator.poll(name, worker_id="bench", count=1, wait_seconds=0)
        return assignment

    def execute(self, assignment: Assignment) -> None:
        """Run the whole attempt. Exits if it does not publish."""
        around = AttemptContext(self.lake, self.orchestrator, self.folder / "work")
        ended = Executor(TASKS, around, "bench", mask=str).execute(assignment)
        if ended.outcome.status != "COMPLETED":
            raise SystemExit(f"an attempt failed: {ended.outcome}")

    def side_by_side(self, seconds: float) -> float:
        """Return the seconds until all eight have published, if all start at once from the same commit."""
        assignments = [self.assigned(name, seconds) for name in TASKS]
        with ThreadPoolExecutor(EIGHT) as pool:
            return timed(lambda: list(pool.map(self.execute, assignments)))

    def one_by_one(self, seconds: float) -> float:
        """Return the seconds until all eight have published, if each starts when the previous one is done."""
        return timed(lambda: [self.execute(self.assigned(name, seconds)) for name in TASKS])

    def rows(self, what: str, context: Context) -> list[Row]:
        """Measure both ways, without and with work in the bodies."""
        found = []
        for seconds, bodies in ((0.0, "bodies that take no time"), (1.0, "bodies of 1 s")):
            turns = {
                "side by side": partial(self.side_by_side, seconds),
                "one after the other": partial(self.one_by_one, seconds),
            }
            best = in_turns(turns, 1 if context.quick else _ROUNDS)
            found += [Row(f"{what}, {bodies}: {way}", EIGHT / best[way], "commits/s") for way in turns]
            ratio = best["one after the other"] / best["side by side"]
            found.append(Row(f"{what}, {bodies}: side by side / one after the other", ratio, "times"))
        return found


def run() -> list[Row]:
    """Measure both lakes, the real one with and without the fence."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        rows = _embedded(context)
        for fenced in (False, True):
            rows += _lakefs(context, fenced=fenced)
        return rows


def _embedded(context: Context) -> list[Row]:
    context.say("embedded")
    folder = context.folder / "embedded"
    with closing(LocalLake(folder / "lake")) as lake, _orchestrator(folder) as orchestrator:
        lake.create_repository("bench")
        return Branch(lake, orchestrator, "bench", folder).rows("embedded lake", context)


def _lakefs(context: Context, *, fenced: bool) -> list[Row]:
    what = f"lakeFS {'with' if fenced else 'without'} the fence"
    context.say(what)
    folder, repository = context.folder / uuid.uuid4().hex, f"bench-{uuid.uuid4().hex[:12]}"
    server = lakefs_client(context)
    create_repository(server, repository)
    try:
        with lakefs_lake(context, folder / "cache") as lake, _orchestrator(folder) as orchestrator:
            if fenced:
                Fence(lake).install(repository, "main")
            return Branch(lake, orchestrator, repository, folder).rows(what, context)
    finally:
        lakefs_sdk.RepositoriesApi(server).delete_repository(repository, force=True)


@contextmanager
def _orchestrator(folder: Path) -> Iterator[LocalOrchestrator]:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
        orchestrator.register_taskdefs([build_taskdef(definition) for definition in TASKS.values()])
        for name in TASKS:
            given = {key: f"${{workflow.input.{key}}}" for key in ("workspace", "params")}
            step = {"name": name, "taskReferenceName": "step", "type": "SIMPLE", "inputParameters": given}
            orchestrator.register_workflow(
                {"name": f"flow-{name}", "version": 1, "schemaVersion": 2, "tasks": [step]}
            )
        yield orchestrator
