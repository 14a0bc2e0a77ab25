"""Names: safe for lakeFS, readable, and never shared by two executions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    InternalBranch,
    Revoked,
    WorkdirOwner,
    branch_part,
    branches_to_revoke,
    claim_branch_name,
    dated_branch_time,
    is_run_branch,
    is_slug,
    parse_internal_branch,
    parse_workdir_name,
    probe_branch_name,
    put_branch_name,
    removing_name,
    replaced_tag_name,
    rerun_id,
    revoke_prefix,
    scratch_branch_name,
    staging_branch_name,
    staging_prefix,
    workdir_name,
)

WORKFLOW = "6f1d0f0e-3c1c-4a52-9d0e-1b8f4c4f0a11"
TASK = "0b7a7b54-8f67-4e58-a4c5-93f5c3f3a2bd"
ATTEMPT = Attempt(WORKFLOW, TASK, "clean_events", "clean", retry_count=1, seq=2, iteration=3)
SAFE = re.compile(r"[A-Za-z0-9_-]+")

tricky = st.one_of(
    st.text(alphabet="ab-_.x1/ é", max_size=8),
    st.from_regex(
        r"[a-z]{0,2}(-(seq|task-id|exec|retry|on|iteration|claim|into|at)-[a-z0-9]{0,3}){0,3}", fullmatch=True
    ),
    st.text(max_size=6),
    st.uuids().map(str),
)
attempts = st.builds(
    Attempt,
    workflow_instance_id=tricky,
    task_id=tricky,
    reference_task_name=tricky,
    task_name=st.just("t"),
    retry_count=st.integers(0, 11),
    seq=st.integers(0, 11),
    iteration=st.integers(0, 11),
    scheduled_time=st.integers(0, 3),
)
targets = st.one_of(st.sampled_from(["main", "main-at-7-into-x", "_x-x0123456789"]), st.text(max_size=100))
executions = st.from_regex(r"[0-9a-f]{4}", fullmatch=True)


def test_the_staging_name_is_the_one_of_the_seed() -> None:
    assert staging_branch_name(ATTEMPT, "e1f2") == (
        f"perago-staging-{WORKFLOW}-clean_events-seq-2-iteration-3-task-id-{TASK}-retry-1-exec-e1f2"
    )


def test_staging_again_on_a_head_has_a_name_of_its_own() -> None:
    again = staging_branch_name(ATTEMPT, "e1f2", on="abcdef0123456789")
    assert again == staging_branch_name(ATTEMPT, "e1f2") + "-on-abcdef012345"


def test_the_task_id_is_readable_in_every_name() -> None:
    scheduled = replace(ATTEMPT, scheduled_time=1_700_000_000_123)
    assert claim_branch_name(scheduled, "main") == (
        f"perago-staging-{WORKFLOW}-clean_events-claim-task-id-{TASK}-at-1700000000123-into-main"
    )
    assert (
        staging_branch_name(scheduled, "e1f2") == staging_branch_name(ATTEMPT, "e1f2") + "-at-1700000000123"
    )
    assert replaced_tag_name(ATTEMPT, "abcdef0123456789") == f"perago-replaced-{TASK}-abcdef012345"
    assert workdir_name(TASK, "e1f2").working == f"perago-workdir-{TASK}-e1f2"


@given(attempts, executions, targets)
def test_every_name_is_one_that_lakefs_takes(attempt: Attempt, execution: str, target: str) -> None:
    for name in (staging_branch_name(attempt, execution), claim_branch_name(attempt, target)):
        assert SAFE.fullmatch(name)
        assert len(name) <= 400


def test_a_very_long_reference_is_cut_and_stays_different() -> None:
    one, two = (replace(ATTEMPT, reference_task_name="r" * 300 + end) for end in "ab")
    assert len(staging_branch_name(one, "e" * 16)) <= 315
    assert staging_branch_name(one, "e") != staging_branch_name(two, "e")


def _identity(attempt: Attempt, execution: str) -> tuple[object, ...]:
    return (
        attempt.workflow_instance_id,
        attempt.reference_task_name,
        attempt.task_id,
        attempt.seq,
        attempt.iteration,
        attempt.retry_count,
        attempt.scheduled_time,
        execution,
    )


@given(attempts, executions, attempts, executions)
def test_two_different_executions_never_get_one_name(
    one: Attempt, one_run: str, two: Attempt, two_run: str
) -> None:
    same_name = staging_branch_name(one, one_run) == staging_branch_name(two, two_run)
    assert same_name == (_identity(one, one_run) == _identity(two, two_run))


@given(attempts, executions, targets, attempts)
def test_revoking_takes_exactly_the_other_attempts_of_the_same_step(
    owner: Attempt, execution: str, target: str, current: Attempt
) -> None:
    same_step = owner.logical_task_key == current.logical_task_key and (
        owner.workflow_instance_id == current.workflow_instance_id
    )
    times = {owner.scheduled_time, current.scheduled_time}
    same_attempt = owner.task_id == current.task_id and (len(times) == 1 or 0 in times)
    stagings = (
        staging_branch_name(owner, execution),
        staging_branch_name(owner, execution, on="0123456789abcdef"),
    )
    claim = claim_branch_name(owner, target)
    taken = same_step and not same_attempt
    revoked = branches_to_revoke(current, [claim, *stagings])
    assert (revoked.stagings, revoked.claims) == ((stagings, (claim,)) if taken else ((), ()))
    assert bool(revoked) == taken
    # Of each attempt that may be a later one, one branch tells whom to ask about.
    not_earlier = taken and owner.scheduled_time >= current.scheduled_time
    assert [one.scheduled_time for one in revoked.not_earlier] == [owner.scheduled_time] * not_earlier
    assert not same_step or all(name.startswith(revoke_prefix(current)) for name in (claim, *stagings))


@pytest.mark.parametrize(("scheduled", "named"), [(1000, []), (2000, ["other"]), (3000, ["other"])])
def test_one_branch_of_each_later_attempt_names_the_task_to_ask_about(
    scheduled: int, named: list[str]
) -> None:
    other = replace(ATTEMPT, task_id="other", scheduled_time=scheduled)
    names = [
        staging_branch_name(other, "e1"),
        staging_branch_name(other, "e2"),
        claim_branch_name(other, "main"),
    ]
    revoked = branches_to_revoke(replace(ATTEMPT, scheduled_time=2000), names)
    assert (revoked.stagings, revoked.claims) == (tuple(names[:2]), tuple(names[2:]))
    assert [one.task_id for one in revoked.not_earlier] == named


def test_a_branch_that_does_not_tell_when_it_was_scheduled_may_be_this_attempts_own() -> None:
    current, dead = (replace(ATTEMPT, task_id=one, scheduled_time=0) for one in (TASK, "dead"))
    names = [staging_branch_name(one, "e1") for one in (current, dead)]
    assert branches_to_revoke(replace(ATTEMPT, scheduled_time=2000), names).stagings == (names[1],)


@pytest.mark.parametrize("name", ["main", "perago-staging-x", "perago-claim-", "perago-replaced-a-b"])
def test_other_branches_are_nobodys(name: str) -> None:
    assert parse_internal_branch(name) is None
    assert branches_to_revoke(replace(ATTEMPT, scheduled_time=2000), [name]) == Revoked()


def test_a_branch_tells_whose_it_is() -> None:
    scheduled = replace(ATTEMPT, scheduled_time=1_700_000_000_123)
    for attempt in (ATTEMPT, scheduled):
        step = (WORKFLOW, "clean_events", TASK, attempt.scheduled_time)
        for on in (None, "0123456789abcdef"):
            staging = parse_internal_branch(staging_branch_name(attempt, "e", on=on))
            assert staging == InternalBranch("staging", *step)
        claim = parse_internal_branch(claim_branch_name(attempt, "main"))
        assert claim == InternalBranch("claim", *step, into="main")
    old = parse_internal_branch(f"perago-claim-{WORKFLOW}-clean_events-task-id-{TASK}-at-1700000000123")
    assert old == InternalBranch("claim", WORKFLOW, "clean_events", TASK, 1_700_000_000_123)


@given(attempts, targets)
def test_a_claim_tells_which_branch_it_is_for(attempt: Attempt, target: str) -> None:
    claim = parse_internal_branch(claim_branch_name(attempt, target))
    assert claim is not None
    assert claim.into == branch_part(target)
    assert claim.scheduled_time == attempt.scheduled_time


@given(targets, targets)
def test_two_target_branches_never_have_one_name_in_a_claim(one: str, two: str) -> None:
    assert (branch_part(one) == branch_part(two)) == (one == two)


def test_a_branch_name_that_could_be_a_slug_or_is_very_long_is_made_into_one() -> None:
    assert [is_slug(branch_part(name)) for name in ("main", "a/b", "_x-x0123456789", "b" * 81)] == [
        False,
        True,
        True,
        True,
    ]


def test_a_rerun_of_one_task_has_a_claim_of_its_own_and_revokes_the_old_one() -> None:
    first, again = (replace(ATTEMPT, scheduled_time=when) for when in (1000, 2000))
    claims = [claim_branch_name(attempt, "main") for attempt in (first, again)]
    assert branches_to_revoke(again, claims) == Revoked((), (claims[0],))


run_ids = st.from_regex(r"[0-9a-f]{16}", fullmatch=True)


@given(tricky, run_ids)
def test_a_workdir_tells_its_execution_in_every_part_of_its_life(task_id: str, execution: str) -> None:
    name = workdir_name(task_id, execution)
    for form in (name.working, name.making, name.removing):
        assert parse_workdir_name(form) == WorkdirOwner(execution, certain=True)
        assert removing_name(form) == name.removing
        assert len(form) <= 255
        assert "/" not in form
    assert removing_name(name.old) == name.removing


@pytest.mark.parametrize("number", [0, 1, 101])
def test_a_rerun_has_names_of_its_own_that_a_sweep_can_read_and_that_begin_like_the_first_ones(
    number: int,
) -> None:
    scheduled = replace(ATTEMPT, scheduled_time=1_700_000_000_123)
    first, again = "0123456789abcdef", rerun_id("0123456789abcdef", number)
    branch, folder = staging_branch_name(scheduled, again), workdir_name(TASK, again)

    assert (again == first) == (number == 0)
    assert branch.startswith(staging_prefix(scheduled, first))
    owner = parse_internal_branch(branch)
    assert owner is not None
    assert (owner.kind, owner.task_id, owner.scheduled_time) == ("staging", TASK, 1_700_000_000_123)
    for name in (folder.working, folder.making, folder.removing):
        assert parse_workdir_name(name) == WorkdirOwner(again, certain=True)


@given(tricky, run_ids)
def test_a_name_without_perago_in_front_is_not_certain(task_id: str, execution: str) -> None:
    old = workdir_name(task_id, execution).old
    assert parse_workdir_name(old) == WorkdirOwner(execution, certain=False)


@pytest.mark.parametrize("name", ["lake", "outbox", "perago-workdir-", f"x-{'0' * 15}", f"x/y-{'0' * 16}"])
def test_other_folders_are_nobodys(name: str) -> None:
    assert parse_workdir_name(name) is None


def test_a_proofs_branch_tells_when_it_was_made() -> None:
    assert dated_branch_time(probe_branch_name(1_700_000_000.9, "0123456789ab")) == 1_700_000_000
    assert dated_branch_time("perago-fence-by-hand") is None


def test_the_branch_of_a_put_tells_when_it_was_made() -> None:
    assert put_branch_name(1_700_000_000.9, "0123456789ab").endswith("1700000000-0123456789ab")


def test_a_branch_of_reproduce_is_one_that_the_sweep_removes() -> None:
    assert dated_branch_time(scratch_branch_name(1e9, "0" * 12, in_run=False)) == 1e9
    assert is_run_branch(scratch_branch_name(1e9, "0" * 12, in_run=True))
