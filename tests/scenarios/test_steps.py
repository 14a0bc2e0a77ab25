"""Whole attempts against the table of steps: which come, in which order, and what is in the lake at each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perago.declare.task import TaskDefinition
from perago.protocol.names import InternalBranch, parse_internal_branch
from perago.protocol.steps import (
    BODY,
    CLAIM,
    CLEANUP,
    DOWNLOAD,
    HAND_OVER,
    INPUT,
    PLAIN_ORDER,
    POST_CHECKS,
    PRE_CHECKS,
    RESULT,
    REUSE,
    REVOKE,
    STAGE,
    VERIFY,
    WORKDIR,
    Step,
    step_named,
)
from perago.runtime.attempt.place import WorkdirPlace
from tests.support.worlds.world import World, change_nothing, make_task

UP_TO_THE_BODY = [INPUT, INPUT, REVOKE, REUSE, WORKDIR, DOWNLOAD, PRE_CHECKS, BODY]


def steps_of(world: World, definition: TaskDefinition, **changed: Any) -> list[Step]:
    """Run an attempt; what is in the lake when a step ends must be what the table allows it."""
    walked: list[Step] = []

    def begin(name: str) -> None:
        if walked:
            assert_allowed(world, walked[-1])
        walked.append(step_named(name))

    world.execute(definition, world.poll(definition), observe=begin, **changed)
    return walked


def assert_allowed(world: World, step: Step) -> None:
    kinds = {branch.kind for branch in own_branches(world)}
    assert "staging" not in kinds or step.may_have_staging, step
    assert "claim" not in kinds or step.claim != "none", step


def own_branches(world: World) -> Sequence[InternalBranch]:
    parsed = [parse_internal_branch(name) for name in world.leftovers()]
    return [branch for branch in parsed if branch is not None]


def test_an_attempt_that_publishes_takes_every_step_in_the_order_of_the_table(world: World) -> None:
    definition = make_task()
    world.start(definition)

    # The input is read before the workspace in it is resolved.
    assert steps_of(world, definition) == [INPUT, *PLAIN_ORDER]


def test_an_attempt_without_a_change_takes_the_same_steps(world: World) -> None:
    definition = make_task(change_nothing)
    world.start(definition)

    assert steps_of(world, definition) == [INPUT, *PLAIN_ORDER]


def test_a_read_only_attempt_takes_no_step_that_writes_to_the_lake(world: World) -> None:
    definition = make_task(read_only=True)
    world.start(definition)

    walked = steps_of(world, definition)

    assert walked == [
        *(INPUT, INPUT, WORKDIR, DOWNLOAD, PRE_CHECKS, BODY, RESULT, POST_CHECKS, VERIFY),
        *(HAND_OVER, CLEANUP),
    ]


def test_an_attempt_that_fails_the_preflight_claims_instead_of_running_its_body(world: World) -> None:
    definition = make_task()
    world.start(definition)
    world.commit({"data/fence.txt": "x"}, metadata={"perago.logical_task_key": "perago-fence"})

    assert steps_of(world, definition) == [*UP_TO_THE_BODY[:-2], CLAIM, HAND_OVER, CLEANUP]


def test_a_direct_place_has_its_staging_branch_where_the_table_allows_it(world: World) -> None:
    seen: list[str] = []

    def fail(_workspace: Path, _params: Any) -> Any:
        seen.extend(branch.kind for branch in own_branches(world))
        raise ValueError("no")

    class OnBranch(WorkdirPlace):
        on_branch = True

    definition = make_task(fail)
    world.start(definition)

    walked = steps_of(world, definition, open_place=OnBranch)

    assert walked == [*UP_TO_THE_BODY, VERIFY, HAND_OVER, CLEANUP]
    assert seen == ["staging"]


def test_a_claim_is_there_by_the_end_of_the_step_that_stages(world: World) -> None:
    at_claim: list[str] = []
    definition = make_task()
    world.start(definition)

    def begin(name: str) -> None:
        if name == CLAIM.name:
            at_claim.extend(branch.kind for branch in own_branches(world))

    world.execute(definition, world.poll(definition), observe=begin)

    assert sorted(at_claim) == ["claim", "staging"]
    assert STAGE.claim == "free"
