"""Where a worker test takes place: a lake, an orchestrator, a repository, and worker processes on them.

The same test runs on the embedded servers and on the real ones; only this file knows which.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perago.lake.base import Commit, Lake
from perago.orchestrator.base import Orchestrator, WorkflowState
from tests.support.processes.fork_server import Birth, Forked, nursery
from tests.support.processes.processes import descendants, name_of
from tests.support.worlds.clock import LONGEST_WAIT, eventually

# For tests that wait until a lease ends.  The others have one that no busy machine lets run out.
SHORT_LEASE = 3
# For workers that say nothing when they are up.
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
        """Ask it to finish, once a signal drains it, and return its exit code."""
        until = time.monotonic() + UP_SECONDS
        while " slots" not in self.said() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        self.signal(signal.SIGTERM)
        return self.wait()

    def said(self) -> str:
        return self.log.read_text()

    def executors(self) -> list[int]:
        """The pids of its executor processes."""
        return [pid for pid in descendants(self.process.pid) if name_of(pid) == "perago-executor"]


@dataclass(slots=True)
class Site:
    """Servers, a repository with one file in the tasks' prefix, and what a test asks of them."""

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
        """A worker on a workspace root of that name; a second one on it takes up where the first one left."""
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
        birth = Birth("worker", (str(self.root), str(slots), self.kind, observer), environ)
        with open(os.devnull) as nothing, log.open("ab") as said:
            process = nursery().begin(birth, (nothing.fileno(), said.fileno(), said.fileno()))
        worker = Worker(process, log)
        self.workers.append(worker)
        return worker

    def registered(self, steps: int = 1) -> list[str]:
        """The names of the first steps' tasks, once a worker has registered them: it has started by then."""
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
        """The workflow when it is over."""

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
        """Main's commits, newest first."""
        return list(self.lake.log(self.repository, "main", 50))

    def files(self) -> dict[str, str]:
        return {
            entry.path: b"".join(self.lake.read(self.repository, "main", entry.path)).decode()
            for entry in self.lake.list(self.repository, "main", "")
        }

    def branches(self) -> list[str]:
        """Staging and claim branches."""
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]

    def workdirs(self, name: str = "root") -> list[str]:
        folder = self.folder / name / "workspaces"
        return sorted(one.name for one in folder.iterdir() if one.name not in {".lock", "outbox"})

    def outbox(self, name: str = "root") -> list[str]:
        return sorted(one.name for one in (self.folder / name / "workspaces" / "outbox").iterdir())

    def bodies(self) -> list[str]:
        """A line for each time that a body ran."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def noted(self, word: str) -> list[int]:
        """The pids that bodies have noted with this word."""
        return [int(line.split()[1]) for line in self.bodies() if line.startswith(f"{word} ")]

    def body(self, text: str) -> int:
        """The process of the first body with this text, once it runs."""

        def pids() -> list[int]:
            words = [line.split() for line in self.bodies()]
            return [int(word[1]) for word in words if word[2:] == [text]]

        [pid, *_] = eventually(pids, f"the body {text!r} runs")
        return int(pid)

    def close(self) -> None:
        """End what the test has left running."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
