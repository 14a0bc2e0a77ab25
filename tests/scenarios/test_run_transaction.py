"""A run as one transaction: readers of the target see all of it or nothing, whatever dies on the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perago.declare.run_steps import OPEN, PUBLISH
from perago.errors import OrchestratorUnavailable, UnpublishedRun
from perago.lake.base import Merge
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.names import is_run_branch, run_branch_name
from perago.protocol.run_steps import MARKER_PATH, RUN_KEY
from perago.runtime.attempt.context import ask_until_answered
from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.ports import Wrapped, before
from tests.support.tasks.workflows import loop, simple
from tests.support.worlds.run_world import (
    FIRST,
    FIVE,
    LEFT,
    ORIGIN,
    RIGHT,
    RunWorld,
    five_steps,
    opening,
    publishing,
    running,
)
from tests.support.worlds.world import Made, World, change_nothing, make_task, published_ref

MADE = {
    "data/first.txt": "made",
    "data/last.txt": "made",
    "data/left/made.txt": "made",
    "data/right/made.txt": "made",
}


def test_readers_see_nothing_of_a_run_until_all_of_it_is_there(world: World) -> None:
    runs, given, head = RunWorld.of(world, FIVE), world.files(), world.head().id
    seen = []
    workflow = runs.start(five_steps())

    ended = runs.finish(workflow, lambda: seen.append(world.files()))

    assert ended.status == "COMPLETED", ended.reason
    assert [one for one in seen if one != given] == [given | MADE]
    assert ended.output["ref"] == world.head().id
    assert world.history()[:2] == [world.head().id, head]
    assert MARKER_PATH not in world.files()


def test_readers_who_poll_the_embedded_lake_all_the_time_never_see_a_part_of_a_run(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("songs")
    world = World(lake, "songs", tmp_path)
    world.commit({"data/input.txt": "in"})
    runs, given = RunWorld.of(world, FIVE), world.files()
    over, seen = threading.Event(), []

    def read() -> None:
        with closing(LocalLake(tmp_path / "lake")) as own:
            while not over.is_set():
                seen.append({entry.path for entry in own.list("songs", own.head("songs", "main").id, "")})

    reader = threading.Thread(target=read)
    reader.start()
    ended = runs.finish(runs.start(five_steps()))
    over.set()
    reader.join()
    world.orchestrator.close()
    lake.close()

    assert ended.status == "COMPLETED", ended.reason
    assert set(given) in seen
    assert [paths for paths in seen if paths not in (set(given), {*given, *MADE})] == []


def test_the_published_commit_names_the_run_and_its_commits_stay(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps())
    runs.finish(workflow)

    published = world.head()
    steps = dict(json.loads(published.metadata["perago.run_steps"]))
    [tag] = world.lake.tags(world.repository, "perago-published-")
    world.lake.drop_branch(world.repository, runs.run_branch())

    assert list(steps) in (["first", "left", "right", "last"], ["first", "right", "left", "last"])
    assert workflow in published.message
    assert all(f"{step} {commit[:12]}" in published.message for step, commit in steps.items())
    assert published.metadata["perago.run_commit"] == tag.commit == steps["last"]
    kept = [commit.id for commit in world.lake.log(world.repository, tag.name, 10)]
    assert set(steps.values()) <= set(kept)


def test_a_run_opens_at_the_head_or_at_the_commit_that_it_is_given(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    first = world.head()
    runs.start(five_steps())
    opened = runs.execute(runs.poll(OPEN)).outcome.output
    assert opened is not None
    marked = world.lake.commit_at(world.repository, opened["workspace"]["ref"])

    later = world.commit({"data/later.txt": "later"})
    runs.start(five_steps(), ref=first.id[:20])
    again = runs.execute(runs.poll(OPEN)).outcome.output

    assert opened["origin"] == {
        "repository": world.repository,
        "branch": "main",
        "ref_type": "commit",
        "ref": first.id,
    }
    assert is_run_branch(opened["workspace"]["branch"])
    assert (marked.parents, marked.metadata["perago.logical_task_key"]) == ((first.id,), RUN_KEY)
    assert again is not None
    assert again["origin"]["ref"] == first.id != later


def test_without_isolation_every_step_publishes_by_itself(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start([opening(isolate=False), running(FIRST), publishing("first")])

    opened = runs.execute(runs.poll(OPEN)).outcome.output
    assert opened is not None
    assert opened["workspace"] == opened["origin"]
    ended = runs.finish(workflow)

    assert (ended.status, ended.output["ref"]) == ("COMPLETED", world.head().id)
    assert world.files()["data/first.txt"] == "made"
    assert not world.lake.branches(world.repository, "perago-run-")


def test_a_run_that_changes_nothing_publishes_nothing(world: World) -> None:
    quiet = make_task(lambda workspace, params: _made(params.text), name="quiet")
    runs, head = RunWorld.of(world, [quiet]), world.head().id
    workflow = runs.start([opening(), running(quiet), publishing("quiet")])

    ended = runs.finish(workflow)

    assert (ended.status, ended.output["ref"], world.head().id) == ("COMPLETED", head, head)


def test_a_run_that_changes_nothing_ends_with_its_origin_wherever_the_target_is(world: World) -> None:
    quiet = make_task(change_nothing, name="quiet")
    runs, origin = RunWorld.of(world, [quiet]), world.head().id
    workflow = runs.start([opening(), running(quiet), publishing("quiet")])
    attempt = runs.until("publish")
    by_hand = world.commit({"data/later.txt": "later"})

    runs.execute(attempt)

    state = world.workflow(workflow)
    assert (state.status, state.output["ref"], world.head().id) == ("COMPLETED", origin, by_hand)


def _made(text: str):
    return Made(said=text)


def test_a_failed_run_leaves_the_target_as_it_was_and_a_retry_goes_on_there(world: World) -> None:
    fails_once = iter([True, False])

    def body(workspace, params):
        (workspace / "second.txt").write_text("made")
        if next(fails_once):
            raise RuntimeError("broken")
        return _made("done")

    second = make_task(body, name="second", retries=0)
    runs, given = RunWorld.of(world, [FIRST, second]), world.files()
    workflow = runs.start([opening(), running(FIRST), running(second, "first"), publishing("second")])

    failed = runs.finish(workflow)
    untouched = world.files()
    on_the_branch = world.files(runs.run_branch())
    world.orchestrator.retry_workflow(workflow)
    ended = runs.finish(workflow)

    assert failed.status == "FAILED"
    assert untouched == given
    assert on_the_branch["data/first.txt"] == "made"
    assert ended.status == "COMPLETED", ended.reason
    assert world.files() == given | {"data/first.txt": "made", "data/second.txt": "made"}


def test_a_replacing_step_recovers_inside_a_run(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start([opening(), running(FIRST), publishing("first")])
    attempt = runs.until("first")
    runs.die_before_completing(attempt)
    abandoned = world.head(runs.run_branch()).id
    ended = runs.execute(world.retry(FIRST))

    assert published_ref(ended) != abandoned
    assert world.replaced() == [abandoned]
    assert runs.finish(workflow).status == "COMPLETED"


def test_publishing_again_finds_what_a_dead_worker_published(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps())
    attempt = runs.until("publish")
    runs.die_before_completing(attempt)
    published = world.head().id
    by_hand = world.commit({"data/later.txt": "later"})
    ended = runs.execute(world.retry(PUBLISH))

    assert published_ref(ended) == published
    assert world.head().id == by_hand
    assert world.workflow(workflow).status == "COMPLETED"


def test_opening_again_makes_a_branch_of_its_own(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps())
    attempt = runs.poll(OPEN)
    runs.die_before_completing(attempt)
    ended = runs.execute(world.retry(OPEN))

    assert ended.outcome.output is not None
    assert ended.outcome.output["workspace"]["branch"] != run_branch_name(attempt.attempt)
    assert runs.finish(workflow).status == "COMPLETED"


def test_an_execution_that_finds_the_run_branch_without_its_marker_finishes_it(world: World) -> None:
    runs, head = RunWorld.of(world, FIVE), world.head().id
    workflow = runs.start(five_steps())
    attempt = runs.poll(OPEN)
    world.lake.create_branch(world.repository, run_branch_name(attempt.attempt), head)

    ended = runs.execute(attempt)

    assert ended.outcome.status == "COMPLETED", ended.outcome
    assert MARKER_PATH in world.files(runs.run_branch())
    assert runs.finish(workflow).status == "COMPLETED"


def test_a_run_never_opens_with_the_marker_of_another_run(world: World) -> None:
    runs, origin = RunWorld.of(world, FIVE), world.head().id
    runs.start(five_steps())
    runs.until("first")
    other = runs.run_branch()
    # Somebody moves the target to a commit of the run: a hard reset, about which no hook is asked.
    world.lake.relocate(world.repository, "main", other, origin, 30)
    world.lake.drop_branch(world.repository, other)
    runs.start(five_steps())

    marked = runs.execute(runs.poll(OPEN))
    assert marked.outcome.status == "FAILED"
    assert f"`perago branch {world.repository} main --remove-marker`" in (marked.outcome.reason or "")

    head = world.commit({MARKER_PATH: None})
    attempt = world.retry(OPEN)
    world.lake.create_branch(world.repository, run_branch_name(attempt.attempt), head)
    opened = runs.execute(attempt).outcome.output
    assert opened is not None
    assert opened["origin"]["ref"] == head
    assert world.head(run_branch_name(attempt.attempt)).parents == (head,)


def test_a_commit_by_hand_below_the_marker_is_not_published(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    runs.start(five_steps())
    attempt = runs.poll(OPEN)
    branch = run_branch_name(attempt.attempt)

    def commit() -> None:
        world.commit({"data/foreign.txt": "by hand"}, branch=branch)

    ended = runs.execute(attempt, lake=before(world.lake, "create_object", commit))

    assert ended.outcome.status == "FAILED"
    assert "somebody else has committed there" in (ended.outcome.reason or "")


def test_a_target_that_moved_is_refused_with_both_commits(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    origin = world.head().id
    runs.start(five_steps())
    attempt = runs.until("publish")
    by_hand = world.commit({"other/later.txt": "later"})

    ended = runs.execute(attempt)

    assert ended.outcome.status == "FAILED"
    assert origin in (ended.outcome.reason or "")
    assert by_hand in (ended.outcome.reason or "")
    assert world.head().id == by_hand


def test_a_target_that_moved_elsewhere_is_rebased_on(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps(on_advanced="rebase"))
    attempt = runs.until("publish")
    by_hand = world.commit({"other/later.txt": "later"})

    runs.execute(attempt)

    assert world.workflow(workflow).status == "COMPLETED"
    assert world.history()[1] == by_hand
    assert world.files().items() >= (MADE | {"other/later.txt": "later"}).items()


def test_a_change_to_what_a_read_only_step_has_read_is_refused(world: World) -> None:
    looks = make_task(change_nothing, name="looks", prefix="/reference", read_only=True)
    world.commit({"reference/codes.txt": "old"})
    runs = RunWorld.of(world, [FIRST, looks])
    steps = [opening(), running(looks), running(FIRST, "looks"), publishing("first", on_advanced="rebase")]
    runs.start(steps)
    attempt = runs.until("publish")
    world.commit({"reference/codes.txt": "new"})

    ended = runs.execute(attempt)

    assert ended.outcome.status == "FAILED"
    assert "reference/codes.txt" in (ended.outcome.reason or "")


def test_a_step_that_read_the_target_itself_counts_as_seeing_everything(world: World) -> None:
    looks = make_task(change_nothing, name="looks", prefix="/reference", read_only=True)
    runs = RunWorld.of(world, [FIRST, looks])
    given = {"workspace": ORIGIN, "params": {"text": "made"}}
    look = simple("looks", name="looks", inputParameters=given)
    runs.start([opening(), look, running(FIRST), publishing("first", on_advanced="rebase")])
    attempt = runs.until("publish")
    world.commit({"other/later.txt": "later"})

    ended = runs.execute(attempt)

    assert ended.outcome.status == "FAILED"
    assert "other/later.txt" in (ended.outcome.reason or "")


def test_a_run_branch_that_somebody_else_wrote_to_is_not_published(world: World) -> None:
    runs, given = RunWorld.of(world, FIVE), world.files()
    runs.start(five_steps())
    attempt = runs.until("publish")
    foreign = world.commit({"data/foreign.txt": "by hand"}, branch=runs.run_branch())

    ended = runs.execute(attempt)

    assert ended.outcome.status == "FAILED"
    assert foreign in (ended.outcome.reason or "")
    assert world.files() == given


def test_a_foreign_commit_below_the_last_one_is_named(world: World) -> None:
    runs, given = RunWorld.of(world, [FIRST]), world.files()
    runs.start([opening(), running(FIRST), publishing("first")])
    attempt = runs.until("first")
    foreign = world.commit({"elsewhere/foreign.txt": "by hand"}, branch=runs.run_branch())
    given_foreign = attempt.input["workspace"] | {"ref": foreign}
    adopted = type(attempt)(attempt.attempt, {**attempt.input, "workspace": given_foreign})
    runs.execute(adopted)

    ended = runs.execute(runs.poll(PUBLISH))

    assert ended.outcome.status == "FAILED"
    assert foreign in (ended.outcome.reason or "")
    assert "no step of this workflow made" in (ended.outcome.reason or "")
    assert world.files() == given


def test_a_run_branch_that_is_gone_is_not_published(world: World) -> None:
    runs, given = RunWorld.of(world, FIVE), world.files()
    runs.start(five_steps())
    attempt = runs.until("publish")
    world.lake.drop_branch(world.repository, runs.run_branch())

    ended = runs.execute(attempt)

    assert ended.outcome.status == "FAILED"
    assert "is gone" in (ended.outcome.reason or "")
    assert world.files() == given


@pytest.mark.parametrize("meanwhile", ["gone", "written to"])
def test_a_retry_finds_what_was_published_whatever_became_of_the_run_branch(
    world: World, meanwhile: str
) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps())
    attempt = runs.until("publish")
    runs.die_before_completing(attempt)
    published, branch = world.head().id, runs.run_branch()
    if meanwhile == "gone":
        world.lake.drop_branch(world.repository, branch)
    else:
        world.commit({"data/foreign.txt": "by hand"}, branch=branch)

    ended = runs.execute(world.retry(PUBLISH))

    assert published_ref(ended) == published == world.head().id
    assert world.workflow(workflow).status == "COMPLETED"


def test_publishing_waits_for_an_orchestrator_that_is_away(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    workflow = runs.start([opening(), running(FIRST), publishing("first")])
    attempt, away = runs.until("publish"), iter([True, True])

    def answer(name: str, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if name == "workflow" and next(away, False):
            raise OrchestratorUnavailable("away")
        return call(*given)

    orchestrator = Wrapped(world.orchestrator, answer)
    ask = partial(ask_until_answered, sleep=world.clock.sleep)
    runs.execute(attempt, orchestrator=orchestrator, retry_query=ask)

    assert world.workflow(workflow).status == "COMPLETED"


def test_each_run_of_a_loop_rebases_by_what_its_own_steps_saw(world: World) -> None:
    steps = [opening(), running(LEFT), publishing("left", on_advanced="rebase")]
    runs = RunWorld.of(world, [LEFT])
    workflow = runs.start([loop("each", *steps)])
    published = 0
    while (attempt := runs.next()) is not None:
        if attempt.attempt.task_name == OPEN.name:
            world.commit({"data/left/made.txt": "old"})
        if attempt.attempt.task_name == PUBLISH.name:
            published += 1
            world.commit({f"other/{published}.txt": "later"})
        runs.execute(attempt)

    assert world.workflow(workflow).status == "COMPLETED"
    assert published == 2
    assert world.files()["data/left/made.txt"] == "made"


def test_the_views_in_a_sub_workflow_count_and_not_its_output(world: World) -> None:
    view = {"reads": ["data/input.txt"], "writes": ["data/left/"]}
    state = seen_by(world, inner(view))
    assert state.outcome.status == "COMPLETED", state.outcome
    assert world.files()["other/later.txt"] == "later"


def test_a_sub_workflow_whose_step_does_not_say_what_it_saw_saw_everything(world: World) -> None:
    ended = seen_by(world, inner(None))
    assert ended.outcome.status == "FAILED"
    assert "other/later.txt" in (ended.outcome.reason or "")


def test_a_loop_that_forgets_its_iterations_saw_everything(world: World) -> None:
    def forgetting(state: WorkflowState) -> dict[str, WorkflowState]:
        each = TaskState("each", "loop", "DO_WHILE", "t9", "COMPLETED", 0, 0, 9, input={"keepLastN": 1})
        return {state.id: replace(state, tasks=[*state.tasks, each])}

    ended = seen_by(world, forgetting)
    assert ended.outcome.status == "FAILED"
    assert "other/later.txt" in (ended.outcome.reason or "")


States = Callable[[WorkflowState], dict[str, WorkflowState]]


def inner(view: dict[str, list[str]] | None) -> States:
    """Move the step of the run into a sub-workflow, with this view in its output."""

    def moved(state: WorkflowState) -> dict[str, WorkflowState]:
        [left] = [task for task in state.tasks if task.reference == "left"]
        output = {name: value for name, value in left.output.items() if name != "view"}
        output |= {"view": view} if view is not None else {}
        around = {"subWorkflowId": "inner", "workspace": left.output["workspace"]}
        sub = replace(left, task_type="SUB_WORKFLOW", task_name="inner", output=around)
        tasks = [sub if task is left else task for task in state.tasks]
        within = replace(state, id="inner", tasks=[replace(left, output=output)])
        return {state.id: replace(state, tasks=tasks), "inner": within}

    return moved


def seen_by(world: World, states: States) -> ExecutionResult:
    """Publish a run over a commit by hand, with other workflows than the orchestrator has."""
    runs = RunWorld.of(world, [LEFT])
    workflow = runs.start([opening(), running(LEFT), publishing("left", on_advanced="rebase")])
    attempt = runs.until("publish")
    world.commit({"other/later.txt": "later"})
    found = states(world.workflow(workflow))

    class Instead:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.orchestrator, name)

        def workflow(self, workflow_id: str) -> WorkflowState:
            return found[workflow_id]

    return runs.execute(attempt, orchestrator=Instead())


@pytest.mark.parametrize("on_advanced", ["refuse", "rebase"])
def test_of_two_runs_from_one_head_the_second_is_refused_or_rebased(world: World, on_advanced: str) -> None:
    runs = RunWorld.of(world, [LEFT, RIGHT])
    first = runs.start([opening(), running(LEFT), publishing("left")])
    attempt = runs.until("publish")
    second = runs.start([opening(), running(RIGHT), publishing("right", on_advanced=on_advanced)])
    later = runs.until("publish")

    assert len(world.lake.branches(world.repository, "perago-run-")) == 2
    published = published_ref(runs.execute(attempt))
    ended = runs.execute(later)

    assert world.workflow(first).status == "COMPLETED"
    assert world.files()["data/left/made.txt"] == "made"
    if on_advanced == "rebase":
        assert world.workflow(second).status == "COMPLETED"
        assert world.head().first_parent == published
        assert world.files()["data/right/made.txt"] == "made"
    else:
        assert f"workflow {first}" in (ended.outcome.reason or "")
        assert world.head().id == published


@pytest.mark.parametrize("way", ["run branch", "fork", "fork with more"])
def test_an_unpublished_run_cannot_be_merged(world: World, way: str) -> None:
    runs, given = RunWorld.of(world, FIVE), world.files()
    runs.start(five_steps())
    runs.until("last")
    source = runs.run_branch()
    if way != "run branch":
        world.lake.create_branch(world.repository, "fork", source, hidden=False)
        source = "fork"
    if way == "fork with more":
        world.commit({"data/more.txt": "more"}, branch="fork")

    with pytest.raises(UnpublishedRun):
        world.lake.merge(world.repository, Merge(source, "main", world.head().id, "by hand", {}, 30))

    assert world.files() == given
