"""A world for whole workers: a lake, an orchestrator, a repository, and worker processes on them.

The same test runs on the embedded servers and on the real ones; only this file knows which.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from perago.lake.base import Commit, Lake, Upload
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Orchestrator, WorkflowState
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.attempt.workdir import hash_file
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.support.processes.fork_server import Forked, Launch, fork_server
from tests.support.processes.processes import descendants, name_of
from tests.support.servers.lakefs import lakefs_lake
from tests.support.worlds.clock import LONGEST_WAIT, eventually

# For tests that wait until a lease ends.  The others have one that does not end even on a busy machine.
SHORT_LEASE = 3
# For workers that print nothing when they are up.
UP_SECONDS = 30


@dataclass(slots=True)
class Worker:
    """A worker process of a test."""

    process: Forked
    log: Path

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(LONGEST_WAIT)

    def drain(self) -> int:
        """Wait until the worker handles signals, send SIGTERM, and return its exit code."""
        until = time.monotonic() + UP_SECONDS
        while " slots" not in self.said() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        self.signal(signal.SIGTERM)
        return self.wait()

    def said(self) -> str:
        return self.log.read_text()

    def executors(self) -> list[int]:
        """Return the pids of the worker's executor processes."""
        return [pid for pid in descendants(self.process.pid) if name_of(pid) == "perago-executor"]


@dataclass(slots=True)
class WorkerWorld:
    """Servers, a repository with one file in the tasks' prefix, and the questions a test asks about them."""

    kind: str
    lake: Lake
    orchestrator: Orchestrator
    repository: str
    folder: Path
    environ: Mapping[str, str]
    requeue: Callable[[str], object]
    terminate: Callable[[str], object]
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:10])
    workers: list[Worker] = field(default_factory=list)
    response_seconds: int = 60

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def notes(self) -> Path:
        return self.folder / "notes.txt"

    # --- given -----------------------------------------------------------------------------------------------

    def start_worker(
        self,
        *,
        observe: Callable[[str], None] | None = None,
        slots: int = 2,
        name: str = "root",
        **environ: str,
    ) -> Worker:
        """Start a worker on the workspace root of that name; a second one on it continues after the first."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        log.touch()
        observer = pickle.dumps(observe).hex() if observe else ""
        environ = {
            **os.environ,
            **self.environ,
            "PERAGO_WORKSPACE_ROOT": str(self.folder / name / "workspaces"),
            "TEST_SUFFIX": self.suffix,
            "TEST_NOTES": str(self.notes),
            "TEST_RESPONSE_SECONDS": str(self.response_seconds),
            **environ,
        }
        launch = Launch("worker", (str(self.root), str(slots), self.kind, observer), environ)
        with open(os.devnull) as nothing, log.open("ab") as said:
            process = fork_server().begin(launch, (nothing.fileno(), said.fileno(), said.fileno()))
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def registered(self, steps: int = 1) -> list[str]:
        """Wait until a worker has registered the first steps' tasks, and return their names."""
        names = [f"worker_step_{number}_{self.suffix}" for number in range(1, steps + 1)]
        eventually(lambda: all(self.orchestrator.taskdef(one) for one in names), "TaskDefs are registered")
        return names

    def start_workflow(self, *params: Mapping[str, Any], branch: str = "main") -> str:
        """Start a workflow with a step for each of the params, refs chained from step to step."""
        name = f"flow_{len(params)}_{self.suffix}"
        registered = self.registered(len(params))
        self.orchestrator.register_workflow(
            {
                "name": name,
                "version": 1,
                "schemaVersion": 2,
                "ownerEmail": "tests@example.com",
                "timeoutPolicy": "ALERT_ONLY",
                "timeoutSeconds": 0,
                "tasks": [self._step(number, registered[number - 1]) for number in range(1, len(params) + 1)],
                "outputParameters": {"ref": f"${{s{len(params)}.output.workspace.ref}}"},
            }
        )
        workspace = {
            "repository": self.repository,
            "branch": branch,
            "ref_type": "commit",
            "ref": self.lake.head(self.repository, branch).id,
        }
        given = {f"p{number}": dict(one) for number, one in enumerate(params, 1)}
        return self.orchestrator.start_workflow(name, input={"workspace": workspace, **given})

    def _step(self, number: int, task_name: str) -> dict[str, Any]:
        workspace = "${workflow.input.workspace}" if number == 1 else f"${{s{number - 1}.output.workspace}}"
        return {
            "name": task_name,
            "taskReferenceName": f"s{number}",
            "type": "SIMPLE",
            "inputParameters": {"workspace": workspace, "params": f"${{workflow.input.p{number}}}"},
        }

    # --- then ------------------------------------------------------------------------------------------------

    def workflow(self, workflow_id: str) -> WorkflowState:
        return self.orchestrator.workflow(workflow_id)

    def finished(self, workflow_id: str) -> WorkflowState:
        """Wait until the workflow is over, and return it."""

        def over() -> WorkflowState | None:
            for worker in self.workers:
                code = worker.process.poll()
                assert code is None or code <= 0, f"a worker left with {code}:\n{worker.said()}"
            state = self.workflow(workflow_id)
            return None if state.running else state

        found: WorkflowState = eventually(over, f"workflow {workflow_id} is over")
        return found

    def task_log(self, task_id: str) -> list[str]:
        return [line.text for line in self.orchestrator.task_log(task_id)]

    def head(self) -> Commit:
        return self.lake.head(self.repository, "main")

    def history(self) -> list[Commit]:
        """Return main's commits, newest first."""
        return list(self.lake.log(self.repository, "main", 50))

    def files(self) -> dict[str, str]:
        return {
            entry.path: b"".join(self.lake.read(self.repository, "main", entry.path)).decode()
            for entry in self.lake.list(self.repository, "main", "")
        }

    def branches(self) -> list[str]:
        """Return the staging and claim branches."""
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]

    def workdirs(self, name: str = "root") -> list[str]:
        folder = self.folder / name / "workspaces"
        return sorted(
            one.name for one in folder.iterdir() if one.name not in {".lock", "outbox", "in-flight"}
        )

    def outbox(self, name: str = "root") -> list[str]:
        """Return all files of the outbox, partly written ones included."""
        return sorted(one.name for one in (self.folder / name / "workspaces" / "outbox").iterdir())

    def stored_results(self) -> list[str]:
        """Return the results in the outbox that survive the worker: a file that is still being written does not."""
        return [name for name in self.outbox() if not name.startswith(".")]

    def bodies(self) -> list[str]:
        """Return a line for each time that a body ran."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def noted(self, word: str) -> list[int]:
        """Return the pids that bodies noted with this word."""
        return [int(line.split()[1]) for line in self.bodies() if line.startswith(f"{word} ")]

    def body(self, text: str) -> int:
        """Wait until a body with this text runs, and return its pid."""

        def pids() -> list[int]:
            words = [line.split() for line in self.bodies()]
            return [int(word[1]) for word in words if word[2:] == [text]]

        [pid, *_] = eventually(pids, f"the body {text!r} runs")
        return int(pid)

    def close(self) -> None:
        """Kill the workers that still run."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()


# --- on the embedded servers, or on the real ones ------------------------------------------------------------------


@contextmanager
def _local(folder: Path) -> Iterator[WorkerWorld]:
    root = folder / "root"
    with (
        closing(LocalLake(root / "lake")) as lake,
        closing(LocalOrchestrator(root / "orchestrator.db")) as flow,
    ):
        lake.create_repository("songs")
        environ = dict.fromkeys(
            (
                "CONDUCTOR_SERVER_URL",
                "LAKECTL_SERVER_ENDPOINT_URL",
                "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
            ),
            "",
        )
        calls = (flow.requeue, lambda workflow: flow.terminate_workflow(workflow, "by the test"))
        yield WorkerWorld("local", lake, flow, "songs", folder, environ, *calls)


@contextmanager
def _real(lakefs: LakefsServer, conductor: ConductorServer, folder: Path) -> Iterator[WorkerWorld]:
    # Imported here because the embedded servers do not need the adapter's libraries.
    from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

    environ = {
        "CONDUCTOR_SERVER_URL": conductor.url,
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs.secret_access_key,
    }

    def requeue(task_id: str) -> object:
        found = conductor.call("GET", f"/tasks/{task_id}")
        # An update to IN_PROGRESS that does not extend the lease puts the task back into its queue.
        update = {
            "workflowInstanceId": found["workflowInstanceId"],
            "taskId": task_id,
            "status": "IN_PROGRESS",
        }
        return conductor.call("POST", "/tasks", update)

    def terminate(workflow: str) -> object:
        try:
            return conductor.call("DELETE", f"/workflow/{workflow}")
        except HTTPError as error:
            # The workflow is over already.
            if error.code != HTTPStatus.CONFLICT:
                raise
            return None

    with (
        fresh_repository(lakefs) as repository,
        closing(lakefs_lake(lakefs, folder / "cache")) as lake,
        closing(ConductorOrchestrator(conductor.url)) as flow,
    ):
        yield WorkerWorld("real", lake, flow, repository, folder, environ, requeue, terminate)


def _open(request: pytest.FixtureRequest, kind: str, folder: Path) -> AbstractContextManager[WorkerWorld]:
    """Open a world by kind: `own` is `real` on servers that the test may stop, `production` on the production set."""
    value = request.getfixturevalue
    if kind == "local":
        return _local(folder)
    if kind == "own":
        return _real(value("own_servers").lakefs, value("own_servers").conductor, folder)
    if kind == "production":
        production = value("production_servers")
        return _real(production.lakefs, production.conductor, folder)
    return _real(value("lakefs_server"), value("conductor_server"), folder)


@contextmanager
def open_worker_world(request: pytest.FixtureRequest, kind: str, folder: Path) -> Iterator[WorkerWorld]:
    """Open a world of that kind with one file in the tasks' prefix; its workers are killed afterwards."""
    with _open(request, kind, folder) as made:
        source = folder / "input.txt"
        source.write_text("in")
        state = hash_file(source, made.lake.checksum_algorithm)
        upload = Upload(source, "data/input.txt", state.size, state.checksum or "")
        made.lake.upload(made.repository, "main", [upload])
        made.lake.commit(made.repository, "main", "input", {})
        try:
            yield made
        finally:
            made.close()
