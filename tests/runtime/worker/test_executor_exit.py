"""Cleanup after an executor that died, and what its retry must still find."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.names import claim_branch_name, rerun_id, staging_branch_name
from perago.protocol.steps import (
    BODY,
    CLAIM,
    FIRST_FENCE,
    INPUT,
    NOT_BEGUN,
    ORDER,
    PUBLISH,
    STAGE,
    Step,
)
from perago.runtime.execution_result import Claim
from perago.runtime.worker.executions import Execution
from perago.runtime.worker.executor_exit import DeadExecutorCleanup, claim_of

ATTEMPT = Attempt("wf", "task", "step", "t", retry_count=0, seq=1, iteration=0, scheduled_time=1000)
WORKSPACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "a"}


def named(step: Step) -> str:
    return step.name or "not begun"


def died_at(step: Step) -> Execution:
    execution = Execution("e1", Assignment(ATTEMPT, {"workspace": WORKSPACE, "params": {}}))
    execution.step = step.name
    return execution


@pytest.mark.parametrize("step", [STAGE, CLAIM], ids=named)
def test_the_claim_may_go_where_no_publish_request_can_be_in_flight(step: Step) -> None:
    assert claim_of(died_at(step)) == Claim("songs", claim_branch_name(ATTEMPT, "main"))


@pytest.mark.parametrize("step", [NOT_BEGUN, INPUT, BODY, FIRST_FENCE, PUBLISH], ids=named)
def test_the_claim_stays_where_there_is_none_or_where_a_request_may_be_in_flight(step: Step) -> None:
    assert claim_of(died_at(step)) is None


@pytest.mark.parametrize("step", [NOT_BEGUN, *ORDER], ids=named)
def test_staging_branches_are_searched_only_after_steps_that_may_leave_one(
    tmp_path: Path, step: Step
) -> None:
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        staging = staging_branch_name(ATTEMPT, "e1")
        lake.create_branch("songs", staging, "main")
        DeadExecutorCleanup(tmp_path, lake).clean(died_at(step))
        left = [branch.name for branch in lake.branches("songs", "perago-")]
    assert left == ([] if step.may_have_staging else [staging])


@pytest.mark.parametrize("step", [NOT_BEGUN, *ORDER], ids=named)
def test_after_an_incomplete_exit_every_staging_branch_is_dropped_and_the_claim_stays(
    tmp_path: Path, step: Step
) -> None:
    execution = died_at(step)
    execution.unsure = True
    claim = claim_branch_name(ATTEMPT, "main")
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        for name in (
            staging_branch_name(ATTEMPT, "e1"),
            staging_branch_name(ATTEMPT, rerun_id("e1", 1)),
            claim,
        ):
            lake.create_branch("songs", name, "main")
        DeadExecutorCleanup(tmp_path, lake).clean(execution, claim_of(execution))
        left = [branch.name for branch in lake.branches("songs", "perago-")]
    assert left == [claim]


def test_stagings_of_the_dead_execution_go_and_its_claim_stays(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("songs")
    claim = claim_branch_name(ATTEMPT, "main")
    for name in (
        staging_branch_name(ATTEMPT, "e1"),
        staging_branch_name(ATTEMPT, "e1", on="0123456789abcdef"),
        claim,
    ):
        lake.create_branch("songs", name, "main")
    execution = died_at(PUBLISH)
    DeadExecutorCleanup(tmp_path, lake).clean(execution, claim_of(execution))
    assert [branch.name for branch in lake.branches("songs", "perago-")] == [claim]
    lake.close()
