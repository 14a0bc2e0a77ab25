"""Every step of an attempt, and the death of its executor there in the moment that another step publishes to the branch.

On the embedded servers at every step; on the real ones where something is in flight, with and without the fence.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perago.orchestrator.base import WorkflowState
from perago.protocol.steps import BODY, CLAIM, CLEANUP, HAND_OVER, PLAIN_ORDER, PUBLISH, STAGE
from tests.support.faults.observers import KillBeside
from tests.support.tasks.forked_workflows import commits_since, done_by, start, start_worker, tables
from tests.support.tasks.forked_workflows import step as step_of
from tests.support.worlds.worker_world import WorkerWorld

pytestmark = pytest.mark.slow
TWO = (0, 1)
REAL_STEPS = {"soft": (STAGE, HAND_OVER), "hard": (BODY, CLAIM, PUBLISH, HAND_OVER)}
MEETINGS = [
    *(("local", "hard", step.name) for step in PLAIN_ORDER),
    *(
        pytest.param("real", fence, step.name, marks=pytest.mark.servers)
        for fence, steps in REAL_STEPS.items()
        for step in steps
    ),
]


def assert_both_published(world: WorkerWorld, before: str, done: Sequence[WorkflowState]) -> None:
    """Each table holds the file of the attempt that was accepted and no other, and no commit was lost."""
    assert {one.status for one in done} == {"COMPLETED"}, [
        (task.status, task.reason) for one in done for task in one.tasks
    ]
    accepted = [done_by(one, f"w{n}") for n, one in zip(TWO, done, strict=True)]
    assert tables(world) == {
        one["result"]["part"]: f"{n} from in" for n, one in zip(TWO, accepted, strict=True)
    }
    on_branch = [commit.id for commit in commits_since(world, before)]
    assert {one["workspace"]["ref"] for one in accepted} <= set(on_branch)


@pytest.mark.parametrize(("world", "fence", "step"), MEETINGS, indirect=["world"])
def test_an_executor_killed_while_another_step_publishes_takes_nothing_along_and_its_retry_publishes(
    world: WorkerWorld, fence: str, step: str
) -> None:
    if (world.kind, fence) == ("real", "hard"):
        from perago.lake.lakefs.fence import Fence

        Fence(world.lake).install(world.repository, "main")
    before = world.head().id
    reported = world.folder / "told"
    reported.mkdir()
    worker = start_worker(world, slots=2, observe=KillBeside(step, reported))

    # Two workflows: Conductor sometimes ends a JOIN that it evaluates between an arm's failure and its retry.
    started = [start(world, f"alone_{n}", [step_of(world, n)], {}) for n in TWO]
    done = [world.finished(workflow) for workflow in started]

    assert (reported / "killed").exists()
    assert_both_published(world, before, done)
    abandoned = [task.reason for one in done for task in one.tasks if task.status == "FAILED"]
    died = f"the executor died with signal SIGKILL at step {step!r}"
    assert abandoned == ([] if step == CLEANUP.name else [died])
    # Who dies between its publication and its answer leaves a commit, which its retry supersedes.
    left = 1 if step == HAND_OVER.name else 0
    assert len(commits_since(world, before)) == len(TWO) + left
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])
