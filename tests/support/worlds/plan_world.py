"""Plans a workflow and then runs it, on the world of a scenario, and compares the two."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perago.assembly import open_planner
from perago.declare.run_steps import with_run_steps
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.protocol.ledger import NOTHING_FORCED, Recompute
from perago.runtime.plan.planner import Plan
from tests.support.tasks.workflows import simple, workflow
from tests.support.worlds.world import World

_names = itertools.count()
INPUT = "${workflow.input.workspace}"


def step(reference: str, task: TaskDefinition | str, workspace: Any = INPUT, **params: Any) -> dict[str, Any]:
    """Return a step with these params.  `workspace` may be the reference of the step before it."""
    given = workspace
    if isinstance(workspace, str) and not workspace.startswith("$"):
        given = f"${{{workspace}.output.workspace}}"
    name = task if isinstance(task, str) else task.name
    return simple(reference, name=name, inputParameters={"workspace": given, "params": params})


@dataclass(slots=True)
class PlanWorld:
    """A workflow of some tasks on a world."""

    world: World
    tasks: Sequence[TaskDefinition]
    steps: Sequence[Mapping[str, Any]]
    branch: str = "main"
    ref: str | None = None
    more_input: Mapping[str, Any] = field(default_factory=dict)

    def planned(self, recompute: Recompute = NOTHING_FORCED) -> Plan:
        """Plan a run from the branch's head."""
        definition, by_name = self._definition(), self._by_name()
        with open_planner(self.world.lake, list(by_name.values()), recompute) as planner:
            return planner.plan(definition, self._payload())

    def plan(self, recompute: Recompute = NOTHING_FORCED) -> dict[str, str]:
        """Return the decision about each step, with its reason."""
        return {
            one.reference: f"{'skip' if one.skips else 'run'}: {one.reason}"
            for one in self.planned(recompute).steps
        }

    def run(
        self, recompute: Recompute = NOTHING_FORCED, *, status: str | None = "COMPLETED"
    ) -> dict[str, str]:
        """Run the workflow, and return for each step whether its body was skipped.  Any status will do if it is None."""
        orchestrator, by_name = self.world.orchestrator, self._by_name()
        orchestrator.register_taskdefs([{**build_taskdef(one), "retryCount": 0} for one in by_name.values()])
        definition = self._definition()
        orchestrator.register_workflow(definition)
        workflow_id = orchestrator.start_workflow(definition["name"], input=self._payload())
        done: dict[str, str] = {}
        while True:
            polled = [
                one
                for name in by_name
                for one in orchestrator.poll(name, worker_id="tests", count=1, wait_seconds=0)
            ]
            if not polled:
                break
            for assignment in polled:
                attempt = assignment.attempt
                ended = self.world.execute(by_name[attempt.task_name], assignment, recompute=recompute)
                done[attempt.reference_task_name] = "skip" if ended.seen.skipped else "run"
        state = orchestrator.workflow(workflow_id)
        assert status in (None, state.status), state.reason
        return done

    def agrees(self, recompute: Recompute = NOTHING_FORCED, *, status: str = "COMPLETED") -> dict[str, str]:
        """Return the plan, after the run has done exactly that, and after nothing was left by planning."""
        head, left = self.world.head(self.branch).id, self.world.leftovers()
        planned = self.plan(recompute)
        assert (self.world.head(self.branch).id, self.world.leftovers()) == (head, left)
        done = self.run(recompute, status=status)
        assert {name: text.partition(":")[0] for name, text in planned.items()} == done, planned
        return planned

    def _by_name(self) -> dict[str, TaskDefinition]:
        return {one.name: one for one in with_run_steps(self.tasks, {"tasks": self.steps})}

    def _definition(self) -> dict[str, Any]:
        return {**workflow(*self.steps), "name": f"planned-{next(_names)}"}

    def _payload(self) -> dict[str, Any]:
        ref = self.ref or self.world.head(self.branch).id
        named = {"repository": self.world.repository, "branch": self.branch}
        return {"workspace": {**named, "ref_type": "commit", "ref": ref}, **self.more_input}
