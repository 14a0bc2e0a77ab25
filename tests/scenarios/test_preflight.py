"""The preflight: no body runs if its result could never be published, and no attempt ends that could still publish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import LakeForbidden, LakeUnavailable
from perago.orchestrator.base import Assignment
from perago.protocol.names import claim_branch_name
from perago.protocol.refusal import BODY_NOT_RUN, USELESS
from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.ports import Wrapped, before, recording, refusing
from tests.support.worlds.world import World, change_nothing, make_task, published_ref, write_result

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]


class Counted:
    """A body that notes that it ran."""

    def __init__(self, body: Callable[[Path, Any], Any] = write_result) -> None:
        self.runs = 0
        self._body = body

    def __call__(self, workspace: Path, params: Any) -> Any:
        self.runs += 1
        return self._body(workspace, params)


def start_fork(world: World, definition: TaskDefinition) -> tuple[str, Assignment, Assignment]:
    """A workflow with two steps side by side, `left` and `right`, both from main's head; polled."""
    world.orchestrator.register_taskdefs([build_taskdef(definition)])
    workspace = {
        "repository": world.repository,
        "branch": "main",
        "ref_type": "commit",
        "ref": world.head().id,
    }

    def step(reference: str) -> dict[str, Any]:
        inputs = {"workspace": "${workflow.input.workspace}", "params": {"text": reference}}
        return {
            "name": definition.name,
            "taskReferenceName": reference,
            "type": "SIMPLE",
            "inputParameters": inputs,
        }

    fork = {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN"}
    join = {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["left", "right"]}
    world.orchestrator.register_workflow(
        {
            "name": "side-by-side",
            "version": 1,
            "schemaVersion": 2,
            "tasks": [{**fork, "forkTasks": [[step("left")], [step("right")]]}, join],
        }
    )
    workflow = world.orchestrator.start_workflow("side-by-side", input={"workspace": workspace})
    polled = {
        one.attempt.reference_task_name: one for one in (world.poll(definition), world.poll(definition))
    }
    return workflow, polled["left"], polled["right"]


def refused(world: World, settled: ExecutionResult, head: str) -> str:
    """The attempt failed at the fence, and the branch is where it was; returns the reason."""
    assert (settled.outcome.status, settled.refused) == ("FAILED", True), settled.outcome
    assert (world.head().id, world.leftovers(), world.workdirs()) == (head, [], [])
    return settled.outcome.reason or ""


class TestTwoStepsOfOneWorkflow:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_the_second_ends_before_its_body_and_is_told_how_to_build_the_workflow(
        self, world: World, policy: str
    ) -> None:
        body = Counted()
        definition = make_task(body, on_abandoned=policy, retries=0)
        _, left, right = start_fork(world, definition)
        made = published_ref(world.execute(definition, left))
        reason = refused(world, world.execute(definition, right), made)
        assert body.runs == 1
        assert reason.startswith("step 'left' of this same workflow moved branch 'main' of ")
        for part in (
            BODY_NOT_RUN,
            "'left' of this same workflow",
            "side by side",
            "${left.output.workspace}",
        ):
            assert part in reason

    @pytest.mark.parametrize("call", ["create_branch", "merge"])
    def test_a_step_that_loses_while_it_publishes_gets_the_same_reason(self, world: World, call: str) -> None:
        definition = make_task(on_abandoned="supersede", retries=0)
        _, left, right = start_fork(world, definition)
        made: list[str] = []
        lake = before(world.lake, call, lambda: made.append(published_ref(world.execute(definition, left))))
        reason = refused(world, world.execute(definition, right, lake=lake), made[0])
        assert "'left' of this same workflow" in reason
        assert "side by side" in reason


class TestAnotherWorkflow:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_an_accepted_publication_of_the_step_ends_the_attempt_before_its_body(
        self, world: World, policy: str
    ) -> None:
        body = Counted()
        definition, a = make_task(body, on_abandoned=policy), world.head().id
        made = published_ref(world.run(definition, text="first"))
        settled = world.run(definition, text="second", ref=a)
        refused(world, settled, made)
        assert body.runs == 1

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_second_run_of_the_same_step_from_the_same_input_gets_an_explanation(
        self, world: World, policy: str
    ) -> None:
        definition, a = make_task(on_abandoned=policy), world.head().id
        first = world.start(definition)
        made = published_ref(world.execute(definition, world.poll(definition)))
        # A retried SUB_WORKFLOW starts over with a new workflow id and the parent's input.
        reason = refused(world, world.run(definition, ref=a), made)
        for part in (f"workflow {first}", "retried SUB_WORKFLOW", "from the current head"):
            assert part in reason

    @pytest.mark.parametrize("policy", POLICIES)
    def test_an_unaccepted_publication_may_still_be_removed_so_the_body_runs(
        self, world: World, policy: str
    ) -> None:
        theirs, ours = make_task(), make_task(change_nothing, on_abandoned=policy)
        a = world.head().id
        world.start(theirs)
        lost = world.poll(theirs)
        orchestrator = refusing(world.orchestrator, "complete", error=RuntimeError("the worker dies here"))
        with pytest.raises(RuntimeError, match="dies here"):
            world.execute(theirs, lost, orchestrator=orchestrator)
        retry = world.retry(theirs)
        world.start(ours, ref=a)
        # Their retry changes nothing and takes its abandoned publication off the branch while our body runs.
        undo = Counted(
            lambda *given: world.execute(make_task(change_nothing), retry) and change_nothing(*given)
        )
        settled = world.execute(make_task(undo, on_abandoned=policy), world.poll(ours))
        assert (published_ref(settled), undo.runs, world.head().id) == (a, 1, a)


class TestACommitMadeByHand:
    """Only `replace` may take it for an abandoned publication, so for all others the body would run in vain."""

    @pytest.mark.parametrize("policy", POLICIES)
    def test_ends_the_attempt_before_its_body_unless_it_may_be_replaced(
        self, world: World, policy: str
    ) -> None:
        body = Counted()
        definition, a = make_task(body, on_abandoned=policy), world.head().id
        by_hand = world.commit({"data/by-hand.txt": "x"})
        settled = world.run(definition, ref=a)
        if policy == "replace":
            assert (body.runs, world.replaced()) == (1, [by_hand])
            published_ref(settled)
            return
        assert BODY_NOT_RUN in refused(world, settled, by_hand)
        assert (body.runs, world.replaced()) == (0, [])

    def test_a_later_head_may_still_save_an_attempt_that_a_running_step_refused(self, world: World) -> None:
        """The retry of that step may take the commit away, so retrying is not useless."""
        theirs, ours = make_task(), make_task(unsigned="refuse")
        a = world.head().id
        world.start(theirs)
        lost = world.poll(theirs)
        orchestrator = refusing(world.orchestrator, "complete", error=RuntimeError("the worker dies here"))
        with pytest.raises(RuntimeError, match="dies here"):
            world.execute(theirs, lost, orchestrator=orchestrator)
        settled = world.run(ours, ref=a)
        assert (settled.outcome.status, settled.outcome.final) == ("FAILED", False)
        assert "useless" not in (settled.outcome.reason or "")

    def test_a_refusal_after_the_body_says_it_too(self, world: World) -> None:
        definition = make_task(unsigned="refuse")
        world.start(definition)
        assignment = world.poll(definition)
        lake = before(world.lake, "create_branch", lambda: world.commit({"data/by-hand.txt": "x"}))
        settled = world.execute(definition, assignment, lake=lake)
        assert settled.outcome.final
        assert USELESS in (settled.outcome.reason or "")


class TestTheBranch:
    def test_a_branch_that_is_not_there_is_told_before_the_body(self, world: World) -> None:
        body = Counted()
        definition = make_task(body)
        workspace = {
            "repository": world.repository,
            "branch": "mian",
            "ref_type": "commit",
            "ref": world.head().id,
        }
        world.start_with(definition, {"workspace": workspace, "params": {}})
        settled = world.execute(definition, world.poll(definition))
        assert (settled.outcome.status, body.runs) == ("FAILED", 0)
        assert "branch 'mian' of repository" in (settled.outcome.reason or "")
        assert "workspace.branch" in (settled.outcome.reason or "")
        assert world.leftovers() == []

    @pytest.mark.parametrize("policy", POLICIES)
    def test_usually_the_head_is_read_once_and_the_ref_is_not_looked_up(
        self, world: World, policy: str
    ) -> None:
        definition, calls = make_task(on_abandoned=policy), []
        world.start(definition)
        settled = world.execute(definition, world.poll(definition), lake=recording(world.lake, calls))
        published_ref(settled)
        assert calls[0] == "head"
        # Past a soft fence it is read again, to decide by.
        soft = settled.fence_level == "soft"
        assert (calls.count("head"), calls.count("commit_at"), calls.count("log")) == (1 + soft, 0, 0)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_no_op_reads_the_head_to_decide_since_the_lake_compares_nothing_for_it(
        self, world: World, policy: str
    ) -> None:
        definition, calls = make_task(change_nothing, on_abandoned=policy), []
        world.start(definition)
        published_ref(world.execute(definition, world.poll(definition), lake=recording(world.lake, calls)))
        assert (calls.count("head"), calls.count("commit_at")) == (2, 0)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_preflight_that_cannot_be_made_ends_nothing(self, world: World, policy: str) -> None:
        definition, seen = make_task(on_abandoned=policy), []

        def first_two_fail(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
            seen.append(name)
            if name == "head" and seen.count(name) <= 2:
                raise LakeForbidden("head: 403") if seen.count(name) == 1 else LakeUnavailable("head: cut")
            return call(*arguments)

        world.start(definition)
        lake = Wrapped(world.lake, first_two_fail)
        assert published_ref(world.execute(definition, world.poll(definition), lake=lake)) == world.head().id


class TestTwins:
    """A FAILED that is sent for an attempt ends its twins' work, too."""

    def test_a_twin_keeps_silent_where_another_execution_is_the_publisher(self, world: World) -> None:
        definition, a = make_task(), world.head().id
        world.run(definition, text="first")
        workflow = world.start(definition, text="second", ref=a)
        assignment = world.poll(definition)
        world.lake.create_branch(world.repository, claim_branch_name(assignment.attempt, "main"), a)
        settled = world.execute(definition, assignment)
        assert settled.outcome.status == "LOST_TO_TWIN"
        assert world.workflow(workflow).running

    def test_a_stale_attempt_keeps_silent(self, world: World) -> None:
        definition, a = make_task(), world.head().id
        world.run(definition, text="first")
        world.start(definition, text="second", ref=a)
        assignment = world.poll(definition)
        world.retry(definition)
        settled = world.execute(definition, assignment)
        assert not settled.outcome.send
        assert world.leftovers() == []
