"""Runs attempts of Spark tasks for benches, in this process and in one Spark session, beside plain PySpark code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from bench.harness import Context, in_turns, timed
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.settings import Settings, load_settings
from perago.spark.places import SparkPlaces
from perago.spark.s3a import s3a_packages
from perago.spark.session import Sessions


@dataclass(frozen=True, slots=True)
class SparkBench:
    """A Spark session, and the settings of the attempts that use it."""

    context: Context
    settings: Settings
    sessions: Sessions

    @classmethod
    @contextmanager
    def open(cls, context: Context, conf: str = "") -> Iterator[Self]:
        """Open a bench whose session can also write to the real lakeFS.  The session ends with the block."""
        environ = {**os.environ, "PERAGO_SPARK_CONF": conf}
        settings = load_settings(environ, root=context.folder / "root")
        made = cls(context, settings, Sessions(settings, s3a_packages(os.environ)))
        try:
            yield made
        finally:
            made.sessions.get().stop()

    def new_branch(self, lake: Lake, repository: str) -> str:
        """Create a branch at the head of `main`, and return its name."""
        branch = f"run-{os.urandom(4).hex()}"
        lake.create_branch(repository, branch, "main", hidden=False)
        return branch

    def alone(
        self, lake: Lake, repository: str, definition: TaskDefinition, params: Mapping[str, Any]
    ) -> float:
        """Return the seconds that one attempt takes, on a branch of its own at the head of `main`."""
        branch = self.new_branch(lake, repository)
        took = self.attempt(lake, repository, branch, definition, params)
        lake.drop_branch(repository, branch)
        return took

    def attempt(
        self, lake: Lake, repository: str, branch: str, definition: TaskDefinition, params: Mapping[str, Any]
    ) -> float:
        """Return the seconds that one attempt takes, from the branch's head to its result on the branch."""
        head = lake.head(repository, branch).id
        workspace = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
        folder = self.context.folder
        with closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
            _start(orchestrator, definition, {"workspace": workspace, "params": params})
            places = SparkPlaces(self.settings, self.sessions, embedded=isinstance(lake, LocalLake))
            around = AttemptContext(lake, orchestrator, folder / "work", open_place=places)
            executor = Executor({definition.name: definition}, around, "bench", mask=str)
            [assignment] = orchestrator.poll(definition.name, worker_id="bench", count=1, wait_seconds=0)
            return timed(lambda: _completed(executor.execute(assignment).outcome))

    def turns(self, contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
        """Return each contender's best time, as `in_turns`, and print every turn."""

        def told(name: str, turn: Callable[[], float]) -> Callable[[], float]:
            def take() -> float:
                seconds = turn()
                self.context.say(f"{name}: {seconds:.1f} s")
                return seconds

            return take

        return in_turns({name: told(name, turn) for name, turn in contenders.items()}, rounds)


def _start(orchestrator: LocalOrchestrator, definition: TaskDefinition, payload: Mapping[str, Any]) -> None:
    # Leases are not extended here, and the large steps take longer than one.
    patient = {"responseTimeoutSeconds": 3600, "timeoutSeconds": 7200}
    orchestrator.register_taskdefs([{**build_taskdef(definition), **patient}])
    step = {
        "name": definition.name,
        "taskReferenceName": "step",
        "type": "SIMPLE",
        "inputParameters": {key: f"${{workflow.input.{key}}}" for key in payload},
    }
    name = f"bench-{definition.name}"
    orchestrator.register_workflow({"name": name, "version": 1, "schemaVersion": 2, "tasks": [step]})
    orchestrator.start_workflow(name, input=payload)


def _completed(outcome: Outcome) -> None:
    if outcome.status != "COMPLETED":
        raise SystemExit(f"the attempt ended {outcome.status}: {outcome.reason}")
