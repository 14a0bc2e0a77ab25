"""The time of an attempt whose view is 1 % of a 10,000-object prefix, compared with one that sees the whole prefix.

Both change one file in the same folder, and their bodies do nothing else.  `first` is an attempt with an empty cache.
`again` is an attempt on the commit that the first one published, with the cache that the first one filled (the embedded
lake has no cache).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lakefs_sdk
from pydantic import BaseModel

from bench import Row
from bench.harness import Context, create_repository, in_turns, lakefs_client, lakefs_lake, timed
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake, Upload
from perago.lake.lakefs.lake import LakeFSLake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor

NAME = "A task whose view is 1 % of its prefix"
SERVERS = True
_FOLDERS = 100
_SIZE = 10 * 1024
_ROUNDS = 3
_numbers = itertools.count()


class Params(BaseModel):
    """A number that makes each attempt's change unique."""

    number: int


class Result(BaseModel):
    """An empty result."""


def change_one(workspace: Path, params: Params) -> Result:
    """Change one file in the folder that both tasks see."""
    (workspace / "d07" / "f0.bin").write_bytes(params.number.to_bytes(8, "big") * (_SIZE // 8))
    return Result()


_CONTROLS = TaskControls(retry=RetryPolicy(count=0))


@task(
    name="whole",
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=_CONTROLS,
)
def whole(workspace: Path, params: Params) -> Result:
    """See everything."""
    return change_one(workspace, params)


@task(
    name="narrow",
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(prefix="/data", reads=("d07",)),
    controls=_CONTROLS,
)
def narrow(workspace: Path, params: Params) -> Result:
    """See one folder out of a hundred."""
    return change_one(workspace, params)


TASKS: Mapping[str, TaskDefinition] = {
    "whole": whole.__perago_task__,  # type: ignore[attr-defined]
    "narrow": narrow.__perago_task__,  # type: ignore[attr-defined]
}


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts on one repository, each in its own workflow."""

    repository: str
    folder: Path
    orchestrator: LocalOrchestrator

    def seconds(self, lake: Lake, name: str) -> float:
        """Return the seconds that one attempt takes, without its poll."""
        ref = lake.head(self.repository, "main").id
        workspace = {"repository": self.repository, "branch": "main", "ref_type": "commit", "ref": ref}
        given = {"workspace": workspace, "params": {"number": next(_numbers)}}
        self.orchestrator.start_workflow(f"flow-{name}", input=given)
        [assignment] = self.orchestrator.poll(name, worker_id="bench", count=1, wait_seconds=0)
        around = AttemptContext(lake, self.orchestrator, self.folder / "work")
        executor = Executor(TASKS, around, "bench", mask=str)
        ended: list[Any] = []
        taken = timed(lambda: ended.append(executor.execute(assignment)))
        if ended[0].outcome.status != "COMPLETED":
            raise SystemExit(f"an attempt failed: {ended[0].outcome}")
        return taken


def run() -> list[Row]:
    """Measure both lakes."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        objects = 1_000 if context.quick else 10_000
        return [*_embedded(context, objects), *_lakefs(context, objects)]


def _embedded(context: Context, objects: int) -> list[Row]:
    context.say("embedded")
    folder = context.folder / "embedded"
    with closing(LocalLake(folder / "lake")) as lake, _attempts("bench", folder) as attempts:
        lake.create_repository("bench", _uploads(folder / "data", objects, "sha256"))
        best = in_turns({name: lambda name=name: attempts.seconds(lake, name) for name in TASKS}, _ROUNDS)
    return _rows(f"embedded lake, {objects} objects", best)


def _lakefs(context: Context, objects: int) -> list[Row]:
    context.say("lakeFS")
    folder, repository = context.folder / "lakefs", f"bench-{uuid.uuid4().hex[:12]}"
    server = lakefs_client(context)
    create_repository(server, repository)
    try:
        with _attempts(repository, folder) as attempts:
            with _lake(context) as lake:
                lake.upload(repository, "main", _uploads(folder / "data", objects, "md5"))
                lake.commit(repository, "main", "many objects", {})
            again: dict[str, list[float]] = {name: [] for name in TASKS}

            def turn(name: str) -> float:
                with _lake(context) as lake:
                    first = attempts.seconds(lake, name)
                    again[name].append(attempts.seconds(lake, name))
                return first

            best = in_turns({name: lambda name=name: turn(name) for name in TASKS}, _ROUNDS)
    finally:
        lakefs_sdk.RepositoriesApi(server).delete_repository(repository, force=True)
    what = f"lakeFS, {objects} objects"
    return [
        *_rows(f"{what}: first", best),
        *_rows(f"{what}: again", {name: min(times) for name, times in again.items()}),
    ]


def _rows(what: str, best: Mapping[str, float]) -> list[Row]:
    return [
        Row(f"{what}: attempt that sees the whole prefix", best["whole"], "s"),
        Row(f"{what}: attempt that sees 1 % of it", best["narrow"], "s"),
        Row(f"{what}: whole / 1 %", best["whole"] / best["narrow"], "times", 5, "at least"),
    ]


def _uploads(folder: Path, objects: int, algorithm: str) -> Sequence[Upload]:
    folder.mkdir(parents=True)
    uploads = []
    for number in range(objects):
        content = os.urandom(_SIZE)
        file = folder / str(number)
        file.write_bytes(content)
        path = f"data/d{number % _FOLDERS:02}/f{number // _FOLDERS}.bin"
        uploads.append(Upload(file, path, _SIZE, hashlib.new(algorithm, content).hexdigest()))
    return uploads


@contextmanager
def _attempts(repository: str, folder: Path) -> Iterator[Attempts]:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
        orchestrator.register_taskdefs([build_taskdef(definition) for definition in TASKS.values()])
        for name in TASKS:
            given = {key: f"${{workflow.input.{key}}}" for key in ("workspace", "params")}
            step = {"name": name, "taskReferenceName": "step", "type": "SIMPLE", "inputParameters": given}
            orchestrator.register_workflow(
                {"name": f"flow-{name}", "version": 1, "schemaVersion": 2, "tasks": [step]}
            )
        yield Attempts(repository, folder, orchestrator)


@contextmanager
def _lake(context: Context) -> Iterator[LakeFSLake]:
    """Yield our adapter with an empty cache."""
    with lakefs_lake(context, context.folder / uuid.uuid4().hex) as lake:
        yield lake
