"""A whole run as one transaction on lakeFS: what opening and publishing cost, and how that grows with the distance.

The attempts run in this process, on the embedded orchestrator, so the times are those of Perago and lakeFS.  The commits on
the run branch and on the target are made directly, each with one small object.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import Row
from bench.harness import Context, create_repository, lakefs_client, timed
from perago.declare.run_steps import OPEN, PUBLISH, RUN_STEPS
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake
from perago.lake.lakefs.lake import LakeFSLake
from perago.orchestrator.base import Assignment
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.metadata import KEY
from perago.protocol.outcome import completed
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.testing.lake import put_objects
from tests.support.faults.proxy import FaultProxy, fault_proxy

NAME = "A whole run as one transaction"
SERVERS = True
DISTANCES = (1, 100, 1000)
_ROUNDS = 5
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs on one repository: opened and published by attempts, with commits in between that are made directly."""

    lake: Lake
    repository: str
    folder: Path
    orchestrator: LocalOrchestrator

    def open(self, **params: str) -> tuple[float, dict[str, Any]]:
        """Open a run in a workflow of its own.  Returns the seconds, and the step's output."""
        given = {
            "workspace": {"repository": self.repository, "branch": "main"},
            "publish": {"on_advanced": "refuse", **params},
        }
        self.orchestrator.start_workflow("run", input=given)
        return self._execute(self._poll(OPEN.name))

    def publish(self) -> float:
        """Publish the run.  Returns the seconds."""
        return self._execute(self._poll(PUBLISH.name))[0]

    def commit(self, branch: str, count: int, workflow: str = "") -> str:
        """Make commits on a branch, signed by a step of the workflow.  Returns the last one."""
        made = ""
        for _ in range(count):
            name = f"made/{next(_numbers):06}.txt"
            put_objects(self.lake, self.repository, branch, {name: name}, folder=self.folder / "uploads")
            signed = {KEY: f"{workflow}/step"} if workflow else {}
            made = self.lake.commit(self.repository, branch, name, signed)
        return made

    def hand_over(self, assignment: Assignment, ref: str) -> None:
        """Complete the step between open and publish: it publishes `ref`."""
        workspace = {**assignment.input["workspace"], "ref": ref}
        view = {"reads": ["made/"], "writes": ["made/"]}
        outcome = completed({"workspace": workspace, "result": {}, "view": view})
        self.orchestrator.complete(assignment.attempt, outcome, worker_id="bench")

    def step(self) -> Assignment:
        """Return the attempt of the step between open and publish."""
        return self._poll("step")

    def _poll(self, name: str) -> Assignment:
        [assignment] = self.orchestrator.poll(name, worker_id="bench", count=1, wait_seconds=0)
        return assignment

    def _execute(self, assignment: Assignment) -> tuple[float, dict[str, Any]]:
        around = AttemptContext(self.lake, self.orchestrator, self.folder / "work")
        executor = Executor(RUN_STEPS, around, "bench", mask=str)
        ended: list[Any] = []
        taken = timed(lambda: ended.append(executor.execute(assignment)))
        outcome = ended[0].outcome
        if outcome.status != "COMPLETED":
            raise SystemExit(f"an attempt failed: {outcome}")
        return taken, dict(outcome.output)


def run() -> list[Row]:
    """Measure calls, times and distances."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        distances = (1, 10) if context.quick else DISTANCES
        return [*_calls(context), *_long_runs(context, distances), *_far_targets(context, distances)]


def _calls(context: Context) -> Iterator[Row]:
    with (
        fault_proxy(context.needed("LAKECTL_SERVER_ENDPOINT_URL")) as proxy,
        _runs(context, proxy.url) as runs,
    ):
        opens, publishes = [], []
        counted: dict[str, int] = {}
        for _ in range(_ROUNDS):
            opens.append(_counted(proxy, counted, "open", lambda: runs.open()[0]))
            attempt = runs.step()
            runs.hand_over(
                attempt,
                runs.commit(attempt.input["workspace"]["branch"], 1, attempt.attempt.workflow_instance_id),
            )
            publishes.append(_counted(proxy, counted, "publish", runs.publish))
    yield Row("opening a run: calls to lakeFS", counted["open"], "calls")
    yield Row("opening a run, median", median(opens) * 1000, "ms")
    yield Row("publishing a run of one commit: calls to lakeFS", counted["publish"], "calls")
    yield Row("publishing a run of one commit, median", median(publishes) * 1000, "ms")


def _counted(proxy: FaultProxy, counted: dict[str, int], name: str, work: Any) -> float:
    proxy.answered.clear()
    seconds: float = work()
    counted[name] = len(proxy.answered)
    return seconds


def _long_runs(context: Context, distances: tuple[int, ...]) -> Iterator[Row]:
    for count in distances:
        with _runs(context) as runs:
            runs.open()
            attempt = runs.step()
            branch = attempt.input["workspace"]["branch"]
            runs.hand_over(attempt, runs.commit(branch, count, attempt.attempt.workflow_instance_id))
            context.say(f"a run of {count} commits")
            yield Row(f"publishing a run of {count} commits", runs.publish() * 1000, "ms")


def _far_targets(context: Context, distances: tuple[int, ...]) -> Iterator[Row]:
    for count in distances:
        with _runs(context) as runs:
            runs.open(on_advanced="rebase")
            attempt = runs.step()
            branch = attempt.input["workspace"]["branch"]
            runs.hand_over(attempt, runs.commit(branch, 1, attempt.attempt.workflow_instance_id))
            for number in range(count):
                name = f"elsewhere/{number:06}.txt"
                put_objects(runs.lake, runs.repository, "main", {name: name}, folder=runs.folder / "uploads")
                runs.lake.commit(runs.repository, "main", name, {})
            context.say(f"a target that is {count} commits ahead")
            yield Row(f"publishing over {count} commits of others (rebase)", runs.publish() * 1000, "ms")


@contextmanager
def _runs(context: Context, url: str = "") -> Iterator[Runs]:
    folder = Path(tempfile.mkdtemp(dir=context.folder))
    repository = f"bench-run-{os.urandom(4).hex()}"
    create_repository(lakefs_client(context), repository)
    lake = LakeFSLake(
        url or context.needed("LAKECTL_SERVER_ENDPOINT_URL"),
        access_key_id=context.needed("LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
        secret_access_key=context.needed("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
        cache_dir=folder / "cache",
        cache_bytes=0,
    )
    with closing(lake), closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
        orchestrator.register_taskdefs([*map(build_taskdef, RUN_STEPS.values()), {"name": "step"}])
        orchestrator.register_workflow(_definition())
        yield Runs(lake, repository, folder, orchestrator)


def _definition() -> dict[str, Any]:
    def step(name: str, reference: str, workspace: str, params: Any) -> dict[str, Any]:
        given = {"workspace": workspace, "params": params}
        return {"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}

    publish = {"origin": "${open.output.origin}", "on_advanced": "${workflow.input.publish.on_advanced}"}
    return {
        "name": "run",
        "version": 1,
        "schemaVersion": 2,
        "tasks": [
            step(OPEN.name, "open", "${workflow.input.workspace}", {}),
            step("step", "step", "${open.output.workspace}", {}),
            step(PUBLISH.name, "publish", "${step.output.workspace}", publish),
        ],
    }
