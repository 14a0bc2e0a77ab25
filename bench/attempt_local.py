"""The cost of one tiny attempt on the embedded servers: everything except the body, with one file."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel

from bench import Row
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.declare.taskdef import build_taskdef
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.runtime.folder_upload import folder_uploads

NAME = "One tiny attempt on the embedded servers"
SERVERS = False
ROUNDS = 200


class Params(BaseModel):
    number: int


class Result(BaseModel):
    number: int


@task(
    name="tiny",
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(prefix="/"),
    controls=TaskControls(retry=RetryPolicy(count=0)),
)
def tiny(workspace: Path, params: Params) -> Result:
    """Change the only file."""
    (workspace / "file.txt").write_text(str(params.number))
    return Result(number=params.number)


def run() -> list[Row]:
    """Time the poll, transaction and completion of many attempts, as a whole and by step."""
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> list[Row]:
    (folder / "data").mkdir()
    (folder / "data" / "file.txt").write_text("first")
    lake = LocalLake(folder / "lake")
    lake.create_repository("bench", folder_uploads(folder / "data", "sha256", leave_out=folder / "lake"))
    orchestrator = LocalOrchestrator(folder / "orchestrator.db")
    definition = tiny.__perago_task__
    orchestrator.register_taskdefs([build_taskdef(definition)])
    step = {
        "name": "tiny",
        "taskReferenceName": "step",
        "type": "SIMPLE",
        "inputParameters": {"workspace": "${workflow.input.workspace}", "params": "${workflow.input.params}"},
    }
    orchestrator.register_workflow({"name": "flow", "version": 1, "schemaVersion": 2, "tasks": [step]})
    executor = Executor(
        {"tiny": definition}, AttemptContext(lake, orchestrator, folder / "work"), "bench", mask=str
    )
    totals, steps = [], {}
    for number in range(ROUNDS):
        ref = lake.head("bench", "main").id
        workspace = {"repository": "bench", "branch": "main", "ref_type": "commit", "ref": ref}
        orchestrator.start_workflow("flow", input={"workspace": workspace, "params": {"number": number}})
        began = time.perf_counter()
        (assignment,) = orchestrator.poll("tiny", worker_id="bench", count=1, wait_seconds=0)
        settled = executor.execute(assignment)
        total = time.perf_counter() - began
        if settled.outcome.status != "COMPLETED":
            raise SystemExit(f"an attempt failed: {settled.outcome}")
        totals.append(1000 * (total - settled.seconds["body"]))
        for name, seconds in settled.seconds.items():
            steps.setdefault(name, []).append(1000 * seconds)
    rows = [Row("Perago's own time for one attempt, median", statistics.median(totals), "ms", 15)]
    rows.append(Row("the same, 95th percentile", statistics.quantiles(totals, n=20)[-1], "ms"))
    return rows + [
        Row(f"of it: {name}", statistics.median(times), "ms")
        for name, times in steps.items()
        if name != "body"
    ]
