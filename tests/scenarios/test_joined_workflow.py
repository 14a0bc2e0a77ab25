"""A whole workflow on the embedded servers: two writers of one branch in a fork, and a step that sees what both made."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.testing import TrialWorker
from tests.support.tasks.workflows import fork, join, simple, workflow


class Nothing(BaseModel):
    pass


class Seen(BaseModel):
    files: list[str]


def writer(name: str) -> object:
    spec = WorkspaceSpec(reads=("in.txt",), writes=(name,), on_abandoned="supersede", on_advanced="rebase")

    @task(name=name, owner_email="tests@example.com", workspace=spec)
    def run(workspace: Path, params: Nothing) -> Nothing:
        (workspace / name).mkdir()
        (workspace / name / "made.txt").write_text(name)
        return params

    return run


@task(name="look", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/"))
def look(workspace: Path, params: Nothing) -> Seen:
    files = sorted(path.relative_to(workspace).as_posix() for path in workspace.glob("*/made.txt"))
    (workspace / "seen.json").write_text(json.dumps(files))
    return Seen(files=files)


def test_the_joined_step_sees_both_and_history_is_one_line(perago_worker: TrialWorker) -> None:
    perago_worker.lake.commit({"in.txt": "in"})
    given = {"workspace": "${workflow.input.workspace}", "params": {}}
    both = ["${left.output.workspace}", "${right.output.workspace}"]
    definition = workflow(
        fork(
            "fork",
            [simple("left", name="left", inputParameters=given)],
            [simple("right", name="right", inputParameters=given)],
        ),
        join("join", "left", "right"),
        simple("look", name="look", inputParameters={"workspace": both, "params": {}}),
    )
    trial = perago_worker.try_workflow(definition, [writer("left"), writer("right"), look])
    assert trial.status == "COMPLETED", trial.reason
    assert trial.steps["look"].output["result"] == {"files": ["left/made.txt", "right/made.txt"]}
    assert {"left/made.txt", "right/made.txt", "seen.json"} <= trial.files.keys()
