"""A whole run on real Conductor and lakeFS: it fails, is retried, rerun from a step, and restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.lake.base import Commit, Lake
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.support.processes.commands import Shell
from tests.support.servers.lakefs import lakefs_lake
from tests.support.worlds.clock import eventually

pytestmark = [pytest.mark.servers, pytest.mark.slow]

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task

CONTROLS = TaskControls(retry=RetryPolicy(count=0), timeout=600)
WORKSPACE = WorkspaceSpec(prefix="/data", unsigned="refuse")


class Nothing(BaseModel):
    pass


@task(name="one_{own}", owner_email="a@example.com", workspace=WORKSPACE, controls=CONTROLS)
def one(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "one.txt").write_text("one")
    return params


@task(name="two_{own}", owner_email="a@example.com", workspace=WORKSPACE, controls=CONTROLS)
def two(workspace: Path, params: Nothing) -> Nothing:
    text = Path({text!r}).read_text()
    if text == "fail":
        raise RuntimeError("told to fail")
    (workspace / "two.txt").write_text(text)
    return params
"""


@dataclass(slots=True)
class Place:
    """A repository, a folder with a workflow of one run, and a worker."""

    shell: Shell
    lake: Lake
    repository: str
    conductor: ConductorServer
    own: str

    @property
    def text(self) -> Path:
        return self.shell.folder / "text"

    def perago(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Not forked: the names of the built-in tasks are read on import.
        return subprocess.run(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.shell.folder,
            env=self.shell.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ended(self, workflow: str, since: int = 0) -> dict[str, Any]:
        """Wait until the workflow has ended, after its last change at `since`."""

        def over() -> dict[str, Any] | None:
            found: dict[str, Any] = self.conductor.call("GET", f"/workflow/{workflow}")
            done = found["status"] not in ("RUNNING", "PAUSED") and found.get("endTime", 0) > since
            return found if done else None

        result: dict[str, Any] = eventually(over, f"workflow {workflow} ends")
        return result

    def history(self) -> list[Commit]:
        return list(self.lake.log(self.repository, "main", 20))

    def files(self) -> dict[str, str]:
        return {
            entry.path: b"".join(self.lake.read(self.repository, "main", entry.path)).decode()
            for entry in self.lake.list(self.repository, "main", "data/")
        }


@pytest.fixture
def place(tmp_path: Path, lakefs_server: LakefsServer, conductor_server: ConductorServer) -> Iterator[Place]:
    own = uuid.uuid4().hex[:10]
    shell = Shell(tmp_path)
    shell.environ |= {
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "PERAGO_RUN_STEPS": f"t{own}",
        "PERAGO_ROOT": str(tmp_path / "root"),
    }
    (tmp_path / "tasks.py").write_text(TASKS.format(own=own, text=str(tmp_path / "text")))
    (tmp_path / "flow.json").write_text(json.dumps(flow(own)))
    with (
        fresh_repository(lakefs_server) as repository,
        closing(lakefs_lake(lakefs_server, tmp_path / "cache")) as lake,
    ):
        made = Place(shell, lake, repository, conductor_server, own)
        registered = made.perago("register", "tasks.py", "flow.json", "--yes")
        assert registered.returncode == 0, registered.stderr
        assert f"t{own}_open" in registered.stdout
        log = (tmp_path / "worker.log").open("w")
        worker = subprocess.Popen(
            [sys.executable, "-m", "perago", "start", "tasks.py", "-j", "2"],
            cwd=tmp_path,
            env=shell.environ,
            stdout=log,
            stderr=log,
        )
        try:
            yield made
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
            log.close()


def flow(own: str) -> dict[str, Any]:
    def step(name: str, reference: str, workspace: str, **params: Any) -> dict[str, Any]:
        given = {"workspace": workspace, "params": params}
        return {"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}

    return {
        "name": f"flow_{own}",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "a@example.com",
        "tasks": [
            step(f"t{own}_open", "open", "${workflow.input.workspace}"),
            step(f"one_{own}", "one", "${open.output.workspace}"),
            step(f"two_{own}", "two", "${one.output.workspace}"),
            step(f"t{own}_publish", "publish", "${two.output.workspace}", origin="${open.output.origin}"),
        ],
        "outputParameters": {"ref": "${publish.output.workspace.ref}"},
    }


def test_a_run_is_retried_rerun_and_restarted_and_stays_one_transaction(place: Place) -> None:
    given = place.history()
    place.text.write_text("fail")
    started = place.perago("submit", f"flow_{place.own}", "--workspace", place.repository, "--yes", "--json")
    assert started.returncode == 0, started.stderr
    submitted = json.loads(started.stdout)
    workflow = submitted["workflow_id"]

    # No commit in the input: the first step looks up the head.
    assert submitted["input"] == {"workspace": {"repository": place.repository, "branch": "main"}}
    failed = place.ended(workflow)
    assert failed["status"] == "FAILED"
    assert place.history() == given

    place.text.write_text("retried")
    retried = place.perago("retry", workflow, "--remote", "--yes")
    assert retried.returncode == 0, retried.stderr
    done = place.ended(workflow, failed["endTime"])
    assert done["status"] == "COMPLETED", done.get("reasonForIncompletion")
    [first, *before] = place.history()
    assert before == given
    assert place.files() == {"data/one.txt": "one", "data/two.txt": "retried"}

    place.text.write_text("rerun")
    [two] = [
        task for task in done["tasks"] if task["referenceTaskName"] == "two" and task["status"] == "COMPLETED"
    ]
    rerun = {"reRunFromWorkflowId": workflow, "reRunFromTaskId": two["taskId"]}
    place.conductor.call("POST", f"/workflow/{workflow}/rerun", rerun)
    again = place.ended(workflow, done["endTime"])
    assert again["status"] == "COMPLETED", again.get("reasonForIncompletion")
    [second, *before] = place.history()
    assert before == [first, *given]
    assert second.metadata["perago.supersedes"] == first.id
    assert again["output"]["ref"] == second.id
    assert place.files() == {"data/one.txt": "one", "data/two.txt": "rerun"}

    # A step below one that has published on the run branch cannot be run again alone, as outside of a run.
    [one] = [task for task in again["tasks"] if task["referenceTaskName"] == "one"]
    place.conductor.call("POST", f"/workflow/{workflow}/rerun", {**rerun, "reRunFromTaskId": one["taskId"]})
    refused = place.ended(workflow, again["endTime"])
    assert refused["status"] == "FAILED"
    assert "step 'two'" in refused["reasonForIncompletion"]
    assert place.history() == [second, first, *given]

    place.text.write_text("restarted")
    place.conductor.call("POST", f"/workflow/{workflow}/restart")
    restarted = place.ended(workflow, refused["endTime"])
    assert restarted["status"] == "COMPLETED", restarted.get("reasonForIncompletion")
    [third, *before] = place.history()
    assert before == [second, first, *given]
    assert place.files() == {"data/one.txt": "one", "data/two.txt": "restarted"}
    assert restarted["output"]["ref"] == third.id

    swept = place.perago("sweep", place.repository, "--remote", "--yes", "--json")
    assert swept.returncode == 0, swept.stderr
    actions = {row["kind"]: row["action"] for row in json.loads(swept.stdout)["leftovers"]}
    assert actions["run"] == "removed"
    assert not list(place.lake.branches(place.repository, "perago-run-"))


def test_the_steps_of_a_sub_workflow_belong_to_the_run(place: Place) -> None:
    place.text.write_text("inside")
    inner = flow(place.own)
    one, two = inner["tasks"][1:3]
    one["inputParameters"]["workspace"] = "${workflow.input.workspace}"
    inner |= {
        "name": f"inner_{place.own}",
        "tasks": [one, two],
        "outputParameters": {"workspace": "${two.output.workspace}"},
    }
    outer = flow(place.own)
    outer |= {"name": f"outer_{place.own}"}
    outer["tasks"][1:3] = [
        {
            "name": "inside",
            "taskReferenceName": "inside",
            "type": "SUB_WORKFLOW",
            "subWorkflowParam": {"name": inner["name"], "version": 1},
            "inputParameters": {"workspace": "${open.output.workspace}"},
        }
    ]
    outer["tasks"][2]["inputParameters"] = {
        "workspace": "${inside.output.workspace}",
        "params": {"origin": "${open.output.origin}", "on_advanced": "rebase"},
    }
    place.conductor.call("PUT", "/metadata/workflow", [inner, outer])

    started = place.perago("submit", outer["name"], "--workspace", place.repository, "--yes", "--json")
    assert started.returncode == 0, started.stderr
    done = place.ended(json.loads(started.stdout)["workflow_id"])

    assert done["status"] == "COMPLETED", done.get("reasonForIncompletion")
    assert place.files() == {"data/one.txt": "one", "data/two.txt": "inside"}
    steps = json.loads(place.history()[0].metadata["perago.run_steps"])
    assert [step for step, _ in steps] == ["one", "two"]


def test_a_worker_without_run_steps_leaves_them_to_others(place: Place) -> None:
    said = (place.shell.folder / "worker.log").read_text

    def serving() -> bool:
        return f"t{place.own}_open" in said()

    eventually(serving, "the worker offers the built-in steps")
    other = place.shell.folder / "other.log"
    with other.open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "perago", "start", "tasks.py", "--no-run-steps"],
            cwd=place.shell.folder,
            env={**place.shell.environ, "PERAGO_ROOT": str(place.shell.folder / "other")},
            stdout=log,
            stderr=log,
        )
        until = time.monotonic() + 60
        while " slots" not in other.read_text() and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait(60)
    assert f"one_{place.own}" in other.read_text()
    assert f"t{place.own}_open" not in other.read_text()
