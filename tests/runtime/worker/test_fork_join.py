"""Eight writers at once on one branch, through a real worker: as the arms of one fork, and as workflows of their own.

On the embedded servers, and on the real ones with and without the fence.  All eight bodies have begun before any of them
continues, so that nothing is published until all of them run.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from perago.orchestrator.base import WorkflowState
from tests.support.tasks.forked_steps import EIGHT
from tests.support.tasks.forked_workflows import commits_since, done_by, forked, joined, start, step, tables
from tests.support.worlds.worker_world import WorkerWorld

pytestmark = pytest.mark.slow


@pytest.fixture
def branch(crowd: WorkerWorld) -> str:
    """A branch for this test."""
    name = f"b-{uuid.uuid4().hex[:8]}"
    crowd.lake.create_branch(crowd.repository, name, "main", hidden=False)
    return name


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Create the folder in which the bodies wait for each other."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


def eight_workflows(
    world: WorkerWorld, writers: Sequence[int], branch: str, gate: Path
) -> list[WorkflowState]:
    """Run a workflow of one step for each of these writers, all from one commit; returns their final states."""
    params = {"gate": str(gate), "crowd": EIGHT}
    started = [start(world, f"alone_{n}", [step(world, n)], params, branch) for n in writers]
    return [world.finished(workflow) for workflow in started]


def attempts_of(states: Sequence[WorkflowState]) -> list[tuple[str, str | None]]:
    return [(one.status, one.reason) for state in states for one in state.tasks]


def test_eight_arms_of_a_fork_publish_to_one_branch_and_the_joined_step_sees_all(
    crowd: WorkerWorld, branch: str, gate: Path
) -> None:
    before = crowd.lake.head(crowd.repository, branch).id
    tasks = [*forked(crowd, range(EIGHT)), joined(crowd, range(EIGHT))]

    done = crowd.finished(start(crowd, "eight", tasks, {"gate": str(gate), "crowd": EIGHT}, branch))

    assert done.status == "COMPLETED", attempts_of([done])
    assert {(one.status, one.retry_count) for one in done.tasks} == {("COMPLETED", 0)}
    commits = commits_since(crowd, before, branch)
    made = {done_by(done, f"w{n}")["workspace"]["ref"] for n in range(EIGHT)}
    assert {commit.id for commit in commits} == made
    assert len(commits) == EIGHT
    wanted = {done_by(done, f"w{n}")["result"]["part"]: f"{n} from in" for n in range(EIGHT)}
    assert tables(crowd, branch) == wanted
    assert done_by(done, "joined")["result"]["parts"] == wanted
    assert done_by(done, "joined")["workspace"]["ref"] == commits[-1].id


def test_eight_workflows_at_once_with_views_apart_all_publish(
    crowd: WorkerWorld, branch: str, gate: Path
) -> None:
    before = crowd.lake.head(crowd.repository, branch).id

    ended = eight_workflows(crowd, range(EIGHT), branch, gate)

    assert [status for status, _ in attempts_of(ended)] == ["COMPLETED"] * EIGHT, attempts_of(ended)
    refs = [done_by(state, f"w{n}")["workspace"]["ref"] for n, state in enumerate(ended)]
    assert sorted(refs) == sorted(commit.id for commit in commits_since(crowd, before, branch))
    assert len(tables(crowd, branch)) == EIGHT


def test_of_two_workflows_with_one_view_one_fails_and_its_reason_names_commit_and_path(
    crowd: WorkerWorld, branch: str, gate: Path
) -> None:
    """Eight at once, two of them on each of four tables."""
    writers = [n % 4 for n in range(EIGHT)]

    ended = eight_workflows(crowd, writers, branch, gate)

    won = {n: state for n, state in zip(writers, ended, strict=True) if state.status == "COMPLETED"}
    assert Counter(state.status for state in ended) == {"COMPLETED": 4, "FAILED": 4}, attempts_of(ended)
    assert sorted(won) == [0, 1, 2, 3]
    for n, lost in zip(writers, ended, strict=True):
        if lost.status == "COMPLETED":
            continue
        winner = done_by(won[n], f"w{n}")
        reason = lost.tasks[-1].reason or ""
        assert f" changed 'data/{winner['result']['part']}' (this task sees it) on branch " in reason, reason
        assert f"(commit {winner['workspace']['ref'][:12]})" in reason, reason
