"""Sweeping run branches: what a workflow may still need stays."""

from __future__ import annotations

from perago.declare.run_steps import OPEN, PUBLISH
from perago.errors import LakeUnavailable
from perago.lake.base import Lake
from perago.protocol.names import run_branch_name
from perago.runtime.sweep.branches import Owners, Verdict, find_leftovers, judge, remove
from tests.support.faults.ports import refusing
from tests.support.tasks.workflows import switch
from tests.support.worlds.run_world import FIRST, RunWorld, opening, publishing, running, writing
from tests.support.worlds.world import World

HOUR = 3600.0
STEPS = [opening(), running(FIRST), publishing("first")]


def verdicts(
    world: World, *, runs: bool = False, older_than: float = HOUR, known: bool = True
) -> list[Verdict]:
    owners = Owners([world.orchestrator] if known else [], complete=known)
    leftovers = find_leftovers(world.lake, [world.repository], tags=False, runs=runs)
    now = world.clock.now
    return judge(world.lake, leftovers, owners, now=now, older_than=older_than, runs=runs)


def swept(world: World, **given) -> list[str]:
    return [one.leftover.kind for one, error in remove(world.lake, verdicts(world, **given)) if not error]


def test_the_branch_of_a_running_workflow_stays_whatever_its_age(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start(STEPS)
    runs.until("publish")
    world.clock.sleep(60)
    assert swept(world, runs=True, older_than=0) == []
    [verdict] = [one for one in verdicts(world) if one.leftover.kind == "run"]
    assert verdict.why == f"workflow {workflow} is RUNNING"


def test_a_paused_workflow_keeps_its_branch(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start(STEPS)
    runs.until("first")
    world.orchestrator.pause_workflow(workflow)
    world.clock.sleep(HOUR * 24)
    assert "run" not in swept(world, runs=True, older_than=0)


def test_a_branch_of_a_dead_open_attempt_goes_when_it_is_old(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.start(STEPS)
    runs.die_before_completing(runs.poll(OPEN))
    dead = runs.run_branch()
    runs.execute(world.retry(OPEN))
    assert "run" not in swept(world)
    world.clock.sleep(HOUR * 2)
    going = [one.leftover.name for one in verdicts(world) if one.goes and one.leftover.kind == "run"]
    assert going == [dead]


def test_a_branch_that_is_being_opened_stays_whatever_the_age_of_its_commit(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.start(STEPS)
    attempt = runs.poll(OPEN).attempt
    # Without the marker's commit, the branch is as old as the commit from which the run starts.
    world.lake.create_branch(world.repository, run_branch_name(attempt), world.head().id)
    world.clock.sleep(60)
    assert swept(world, older_than=0) == []
    runs.execute(world.retry(OPEN))
    assert swept(world, older_than=0) == ["run"]


def test_the_branch_of_a_published_run_goes_at_once_and_its_tag_on_request(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.finish(runs.start(STEPS))
    assert swept(world) == ["run"]
    [tag] = world.lake.tags(world.repository, "perago-published-")
    assert world.files(tag.name)["data/first.txt"] == "made"
    assert swept(world, runs=True) == []
    world.clock.sleep(HOUR * 2)
    assert swept(world, runs=True) == ["run tag"]


def test_a_tag_stays_as_long_as_a_task_may_repeat_a_result_that_only_the_runs_own_commits_have(
    world: World,
) -> None:
    skips = writing("first", skip_unchanged=True)
    runs = RunWorld.of(world, [skips])
    runs.finish(runs.start(STEPS))
    [tag] = world.lake.tags(world.repository, "perago-published-")
    world.clock.sleep(HOUR * 2)
    assert swept(world, runs=True) == ["run"]

    world.commit({"data/first.txt": "edited"})
    runs.finish(runs.start(STEPS))
    world.clock.sleep(HOUR * 2)

    assert sorted(swept(world, runs=True)) == ["run", "run tag"]
    assert tag.name not in {one.name for one in world.lake.tags(world.repository, "perago-published-")}


def test_a_failed_run_stays_until_it_is_asked_for_and_a_retry_then_says_so(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start(STEPS)
    attempt = runs.until("publish")
    world.commit({"other/later.txt": "later"})
    runs.execute(attempt)
    world.orchestrator.terminate_workflow(workflow, "enough")
    world.clock.sleep(HOUR * 2)

    [verdict] = [one for one in verdicts(world) if one.leftover.kind == "run"]
    assert not verdict.goes
    assert "`perago sweep --runs --older-than AGE` removes it" in verdict.why
    assert swept(world) == []
    assert swept(world, runs=True, older_than=3 * HOUR) == []
    assert swept(world, runs=True) == ["run"]

    world.orchestrator.retry_workflow(workflow)
    ended = runs.execute(runs.poll(PUBLISH))
    assert ended.outcome.status == "FAILED"
    assert "is gone" in (ended.outcome.reason or "")
    assert "Start a new workflow" in (ended.outcome.reason or "")


def test_a_step_of_a_run_whose_branch_was_swept_says_so(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.start(STEPS)
    attempt = runs.until("first")
    world.lake.drop_branch(world.repository, runs.run_branch())
    ended = runs.execute(attempt)
    assert ended.outcome.status == "FAILED"
    assert "the run branch is gone" in (ended.outcome.reason or "")


def test_a_run_that_ended_without_publishing_stays(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    chosen = {"inputParameters": {"x": "b"}, "decisionCases": {"a": [publishing("first")]}}
    workflow = runs.start([opening(), running(FIRST), switch("which", **chosen)])
    assert runs.finish(workflow).status == "COMPLETED"
    assert swept(world) == []


def test_a_run_of_an_unknown_workflow_goes_only_on_request(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.start(STEPS)
    runs.until("first")
    world.clock.sleep(HOUR * 2)
    assert "run" not in swept(world, known=False)
    assert "run" in swept(world, known=False, runs=True)


def left_with_a_claim(world: World) -> RunWorld:
    """Leave a run whose worker died at a step, with its claim into the run branch, and whose workflow is terminated."""
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start(STEPS)
    attempt = runs.until("first")
    runs.die_before_completing(attempt)
    world.orchestrator.terminate_workflow(workflow, "enough")
    world.clock.sleep(HOUR * 2)
    return runs


def test_claims_into_a_run_branch_go_first(world: World) -> None:
    left_with_a_claim(world)
    kinds = swept(world, runs=True)
    assert "claim" in kinds
    assert kinds[-1] == "run"


def test_the_run_branch_stays_while_a_claim_into_it_cannot_go(world: World) -> None:
    runs = left_with_a_claim(world)
    lake: Lake = refusing(world.lake, "barrier", error=LakeUnavailable("no answer"))
    ended = [one.leftover.kind for one, error in remove(lake, verdicts(world, runs=True)) if error is None]
    assert "run" not in ended
    assert runs.run_branch()
