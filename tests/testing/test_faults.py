"""Faults that authors inject into trials: crashes, lost leases and moved heads, and the retry after them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago import PublishFenceError, StaleAttemptError
from perago.lake.local.lake import LocalLake
from perago.protocol.names import parse_internal_branch
from perago.protocol.steps import PLAIN_ORDER, step_named
from perago.testing import (
    STEPS,
    Changes,
    Crashed,
    TrialError,
    advance_head,
    crash,
    goes_stale,
    head_moves,
    lose_lease,
    try_task,
)
from tests.testing.tasks import counting, plain

FILES = {"in.txt": "in"}
POLICIES = ["replace", "supersede", "reuse"]
BEFORE_THE_BODY = STEPS[: STEPS.index("body") + 1]


def test_a_step_can_be_named_for_every_step_of_the_protocol() -> None:
    assert tuple(step.name for step in PLAIN_ORDER) == STEPS


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("step", STEPS[: STEPS.index("hand over")])
def test_a_crash_before_the_publication_is_visible_costs_one_run_of_the_body_at_most(
    step: str, policy: str
) -> None:
    trial = try_task(counting(policy), FILES, faults={step: crash()}, retries=1)

    run = 1 if step in BEFORE_THE_BODY else 2
    assert [attempt.status for attempt in trial.attempts] == ["TIMED_OUT", "COMPLETED"]
    assert trial.attempts[0].steps[-1] == step
    assert isinstance(trial.attempts[0].error, Crashed)
    assert trial.attempts[0].reason is not None
    assert trial.files == {"in.txt": b"in", "out.txt": f"of run {run}".encode()}
    assert ([commit.by for commit in trial.history], trial.replaced) == (["trial", ""], ())
    assert (trial.result, trial.error) == ({"length": run}, None)


def test_a_crash_after_the_publication_shows_what_each_policy_does() -> None:
    faults = {"hand over": crash()}
    replaced = try_task(counting("replace"), FILES, faults=faults, retries=1)
    superseded = try_task(counting("supersede"), FILES, faults=faults, retries=1)
    reused = try_task(counting("reuse"), FILES, faults=faults, retries=1)

    assert [commit.by for commit in replaced.history] == ["trial", ""]
    assert [commit.by for commit in replaced.replaced] == ["trial"]
    assert replaced.files["out.txt"] == b"of run 2"
    assert [commit.by for commit in superseded.history] == ["trial", "trial", ""]
    assert (superseded.replaced, superseded.files["out.txt"]) == ((), b"of run 2")
    assert [commit.by for commit in reused.history] == ["trial", ""]
    assert (reused.files["out.txt"], reused.result) == (b"of run 1", {"length": 1})
    assert "body" not in reused.attempts[1].steps
    for trial in (replaced, superseded, reused):
        assert trial.changes == Changes(put=("out.txt",))


def test_a_crash_after_the_result_was_sent_needs_no_retry() -> None:
    trial = try_task(counting(), FILES, faults={"cleanup": crash()}, retries=1)

    assert [attempt.status for attempt in trial.attempts] == ["COMPLETED"]
    assert isinstance(trial.error, Crashed)


def test_a_crash_without_a_retry_shows_what_is_left(tmp_path: Path) -> None:
    before = try_task(counting(), FILES, faults={"publish": crash()}, root=tmp_path)
    after = try_task(counting(), FILES, faults={"hand over": crash()})

    assert (before.status, before.published, before.result) == ("TIMED_OUT", False, None)
    assert (after.status, after.published, after.changes) == ("TIMED_OUT", True, Changes())
    assert [path.name for path in tmp_path.glob("*/workspaces/*")] != []


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_in_the_lake_what_a_worker_that_died_there_may_leave(
    tmp_path: Path, step: str
) -> None:
    try_task(counting(), FILES, faults={step: crash()}, root=tmp_path)

    lake = LocalLake(next(tmp_path.glob("*/lake")))
    names = [branch.name for branch in lake.branches("trial", "perago-")]
    lake.close()
    left = {branch.kind for branch in map(parse_internal_branch, names) if branch is not None}
    # Each step begins with what the steps before it have made.
    staged = step in STEPS[STEPS.index("stage") + 1 :]
    assert left == (({"staging"} if step == "cleanup" else {"staging", "claim"}) if staged else set())
    assert not left or step_named(step).may_have_staging


def test_two_crashes_are_two_lost_leases() -> None:
    trial = try_task(counting(), FILES, faults={"publish": crash(tries=2)}, retries=2)

    assert [attempt.status for attempt in trial.attempts] == ["TIMED_OUT", "TIMED_OUT", "COMPLETED"]
    assert trial.files["out.txt"] == b"of run 3"


@pytest.mark.parametrize("step", STEPS[: STEPS.index("hand over")])
def test_an_attempt_that_goes_stale_publishes_nothing_and_its_retry_does(step: str) -> None:
    stale = try_task(counting(), FILES, faults={step: lose_lease()})
    retried = try_task(counting(), FILES, faults={step: lose_lease()}, retries=1)

    assert (stale.status, stale.published, stale.files) == ("TIMED_OUT", False, {"in.txt": b"in"})
    assert isinstance(stale.error, StaleAttemptError)
    assert [attempt.status for attempt in retried.attempts] == ["TIMED_OUT", "COMPLETED"]
    assert retried.files["out.txt"] == b"of run 2"


def test_a_result_that_comes_too_late_is_not_accepted() -> None:
    trial = try_task(counting("supersede"), FILES, faults={"hand over": lose_lease()})

    assert (trial.status, trial.published, trial.result) == ("TIMED_OUT", True, None)


def test_a_commit_by_another_task_is_never_covered() -> None:
    for policy in POLICIES:
        trial = try_task(
            counting(policy), FILES, faults={"publish": advance_head("x.csv", b"theirs", by="other")}
        )

        assert isinstance(trial.error, PublishFenceError)
        assert (trial.status, trial.published) == ("FAILED", False)
        assert trial.files == {"in.txt": b"in", "x.csv": b"theirs"}
        assert trial.history[0].by == "other"


def test_a_commit_that_nobody_signed_is_replaced_or_refused_as_the_policy_says() -> None:
    faults = {"publish": advance_head("x.csv", "by hand")}
    replaced = try_task(counting("replace"), FILES, faults=faults)
    refused = try_task(counting("supersede"), FILES, faults=faults)

    assert (replaced.status, sorted(replaced.files)) == ("COMPLETED", ["in.txt", "out.txt"])
    assert [commit.message for commit in replaced.replaced] == ["a commit by hand"]
    assert (refused.status, sorted(refused.files)) == ("FAILED", ["in.txt", "x.csv"])


def test_a_head_can_move_outside_of_the_prefix_and_by_a_deletion() -> None:
    outside = try_task(
        counting("supersede"), FILES, faults={"body": advance_head("/other/x.csv", by="other")}
    )
    deleted = try_task(
        counting("supersede"), FILES, faults={"body": advance_head("in.txt", None, by="other")}
    )

    assert outside.files == {"in.txt": b"in"}
    assert deleted.files == {}


def test_the_head_moves_once_and_the_retry_finds_it_moved() -> None:
    trial = try_task(counting(), FILES, faults={"publish": advance_head("x.csv", by="other")}, retries=1)

    assert [attempt.status for attempt in trial.attempts] == ["FAILED", "FAILED"]
    assert [commit.by for commit in trial.history] == ["other", ""]


def test_a_fault_that_never_fires_fails_the_test() -> None:
    with pytest.raises(
        TrialError, match=r"nothing happened at step 'publish' of 'trial'.*it took input, body, result"
    ):
        try_task(plain, faults={"publish": crash()})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: crash(tries=0), r"crash\(tries=0\)"),
        (lambda: lose_lease(tries=True), r"lose_lease\(tries=True\)"),
        (lambda: advance_head(""), "name the file that is committed"),
        (lambda: advance_head("x", 3), "the content is int"),
        (
            lambda: try_task(plain, faults={"body": advance_head("x")}),
            "has no workspace, so no head can move",
        ),
        (
            lambda: try_task(counting(), FILES, faults={"body": advance_head("y", None)}),
            "what is to happen at 'body' cannot",
        ),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_in_one_line(wrong: object, told: str) -> None:
    with pytest.raises(TrialError, match=told) as error:
        wrong()  # type: ignore[operator]

    assert "\n" not in str(error.value)


def test_the_old_names_of_faults_still_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"goes_stale\(\) is now called lose_lease\(\)"):
        assert goes_stale(tries=2) == lose_lease(tries=2)
    with pytest.warns(DeprecationWarning, match=r"head_moves\(\) is now called advance_head\(\)"):
        assert head_moves("x.csv", "1", by="other") == advance_head("x.csv", "1", by="other")


def test_the_old_argument_of_faults_still_works_and_warns_at_the_line_of_the_test() -> None:
    with pytest.warns(DeprecationWarning, match="at= is now called faults=") as caught:
        trial = try_task(counting("replace"), FILES, at={"body": crash()}, retries=1)

    assert [attempt.status for attempt in trial.attempts] == ["TIMED_OUT", "COMPLETED"]
    assert [one.filename for one in caught] == [__file__]


def test_the_old_and_the_new_argument_together_are_refused() -> None:
    with pytest.raises(TrialError, match="leave out at="):
        try_task(counting("replace"), FILES, at={"body": crash()}, faults={"body": crash()})
