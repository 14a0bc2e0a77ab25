"""The look before the body: it ends what no later head could save, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from perago.errors import PublishFenceError
from perago.protocol import policies
from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.policies import PolicyName
from perago.protocol.preflight import cannot_ever_publish, newest_foreign_commit, permanent_commits
from perago.protocol.publication import (
    MAX_RANGE,
    AdvanceEffect,
    Commit,
    TargetBranch,
    ViewChange,
    Workspace,
    build_workspace_publication_plan,
    read_advance,
)

ATTEMPT = Attempt("wf", "task-2", "clean", "clean_events", retry_count=1, seq=1, iteration=0)
WORKSPACE = Workspace("songs", "main", "A", "events/")
OWN = {KEY: "wf/clean", TASK_ID: "task-1"}
FOREIGN = {KEY: "another-wf/step", TASK_ID: "task-9"}
ACCEPTED = {KEY: "another-wf/step", TASK_ID: "task-ok"}
FENCE = {KEY: "perago-fence"}
UNSIGNED: dict[str, str] = {}
MAKERS = (OWN, FOREIGN, ACCEPTED, FENCE, UNSIGNED)
POLICIES = tuple(policies.POLICIES)


def branch(*makers: dict[str, str]) -> TargetBranch:
    """A branch whose head and the commits below it, down to A, were made by these."""
    ids = [f"c{n}" for n in range(len(makers))] + ["A"]
    commits = [Commit(ids[n], (ids[n + 1],), metadata=maker) for n, maker in enumerate(makers)]
    return read_advance("A", [*commits, Commit("A", ())])


def reason(target: TargetBranch, policy: PolicyName) -> str | None:
    return cannot_ever_publish(ATTEMPT, WORKSPACE, target, policy, accepted={"task-ok"})


def may_publish(target: TargetBranch, policy: PolicyName) -> bool:
    try:
        build_workspace_publication_plan(ATTEMPT, WORKSPACE, target, changed=True, policy=policy)
    except PublishFenceError:
        return False
    return True


@pytest.mark.parametrize("policy", POLICIES)
def test_a_head_at_the_input_never_fails_the_preflight(policy: PolicyName) -> None:
    assert reason(branch(), policy) is None


@pytest.mark.parametrize(
    ("makers", "policies"),
    [
        ((ACCEPTED,), POLICIES),
        ((FENCE,), POLICIES),
        ((UNSIGNED, ACCEPTED), POLICIES),
        ((FOREIGN, FENCE), POLICIES),
        ((ACCEPTED, OWN), POLICIES),
        ((OWN, FOREIGN), POLICIES),
        ((OWN, UNSIGNED), POLICIES),
        ((OWN, OWN), ("replace", "replace-signed")),
        ((FOREIGN, OWN, OWN), ("replace", "replace-signed")),
        ((UNSIGNED,), ("replace-signed", "supersede", "reuse")),
        ((FOREIGN, UNSIGNED), ("replace-signed", "supersede", "reuse")),
    ],
)
def test_a_permanent_commit_that_changed_the_view_ends_the_attempt(
    makers: tuple[dict[str, str], ...], policies: tuple[PolicyName, ...]
) -> None:
    assert [policy for policy in POLICIES if reason(branch(*makers), policy)] == list(policies)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("makers", [(FOREIGN,), (FOREIGN, FOREIGN), (FOREIGN, OWN)])
def test_a_commit_that_its_own_step_may_still_remove_ends_nothing(
    makers: tuple[dict[str, str], ...], policy: PolicyName
) -> None:
    assert reason(branch(*makers), policy) is None


@pytest.mark.parametrize("makers", [(UNSIGNED,), (UNSIGNED, FOREIGN), (UNSIGNED, UNSIGNED)])
def test_an_unsigned_commit_ends_nothing_where_it_may_be_an_abandoned_publication(
    makers: tuple[dict[str, str], ...],
) -> None:
    assert reason(branch(*makers), "replace") is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_input_ref_ends_the_attempt_with_the_seeds_text(policy: PolicyName) -> None:
    lost = read_advance("A", [Commit("c0", ("c1",)), Commit("c1", ())])
    assert "no longer contains workspace input ref" in (reason(lost, policy) or "")


def test_a_range_that_is_too_long_ends_the_attempt_where_it_cannot_shrink() -> None:
    own = [Commit(f"c{n}", (f"c{n + 1}",), metadata=OWN) for n in range(MAX_RANGE + 2)]
    assert "beyond supported publish range" in (reason(read_advance("A", own), "supersede") or "")
    foreign_head = [Commit("c0", ("c1",), metadata=FOREIGN), *own[1:]]
    assert reason(read_advance("A", foreign_head), "supersede") is None
    assert reason(read_advance("A", foreign_head), "replace") is not None


def stays(target: TargetBranch) -> TargetBranch | None:
    return permanent_commits(ATTEMPT, WORKSPACE, target, "supersede", {"task-ok"})


class TestATaskThatRebases:
    """Commits of others do not end it, unless one that stays has changed what it sees."""

    def reason(self, target: TargetBranch, change: str = "") -> str | None:
        found = ViewChange(change, target.advance[-1]) if change else None
        target = replace(target, advance_effect=AdvanceEffect(found))
        return cannot_ever_publish(
            ATTEMPT, WORKSPACE, target, "supersede", accepted={"task-ok"}, rebases=True
        )

    @pytest.mark.parametrize("makers", [(ACCEPTED,), (FENCE,), (OWN, FOREIGN), (UNSIGNED, ACCEPTED)])
    def test_an_unchanged_view_does_not_fail_the_preflight(self, makers: tuple[dict[str, str], ...]) -> None:
        assert self.reason(branch(*makers)) is None

    def test_a_view_that_changed_is(self) -> None:
        assert "changed 'events/x'" in (self.reason(branch(ACCEPTED), "events/x") or "")

    def test_an_uncompared_view_ends_nothing(self) -> None:
        assert cannot_ever_publish(ATTEMPT, WORKSPACE, branch(ACCEPTED), "supersede", rebases=True) is None

    def test_a_lost_input_and_a_range_that_is_too_long_are(self) -> None:
        lost = read_advance("A", [Commit("c0", ("c1",)), Commit("c1", ())])
        assert "no longer contains" in (self.reason(lost) or "")
        own = [Commit(f"c{n}", (f"c{n + 1}",), metadata=OWN) for n in range(MAX_RANGE + 2)]
        assert "beyond supported publish range" in (self.reason(read_advance("A", own)) or "")

    def test_permanent_commits_are_the_newest_that_cannot_be_removed_and_all_below_it(self) -> None:
        target = branch(FOREIGN, FOREIGN, ACCEPTED, FOREIGN)
        assert stays(target) == TargetBranch(target.advance[2], target.advance[2:])
        by_hand = branch(FOREIGN, UNSIGNED, FOREIGN)
        assert stays(by_hand) == TargetBranch(by_hand.advance[1], by_hand.advance[1:])
        assert stays(branch(FOREIGN, FOREIGN)) is None


def later_heads(target: TargetBranch, removable: tuple[dict[str, str], ...]) -> Iterator[TargetBranch]:
    """Every branch that relocations, and one more commit by anybody, can make of this one, by the rules of the table.

    A task that refuses unsigned commits does not count on another task to remove one.
    """
    makers = [dict(commit.metadata) for commit in target.advance]
    yield branch(*makers)
    for more in MAKERS:
        yield branch(more, *makers)
    if not makers:
        return
    [top, *below] = makers
    if top in removable:
        # A retry of its step (not signed: a replacing attempt that began below it) relocates, to A or to its C.
        yield from later_heads(branch(*below), removable)
        yield from (branch(other, *below) for other in (FOREIGN, ACCEPTED))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_preflight_ends_no_attempt_that_a_later_head_could_save(policy: PolicyName, length: int) -> None:
    removable = (FOREIGN, UNSIGNED) if policies.POLICIES[policy].replaces_unsigned else (FOREIGN,)
    for makers in itertools.product(MAKERS, repeat=length):
        target = branch(*makers)
        savable = any(may_publish(later, policy) for later in later_heads(target, removable))
        assert (reason(target, policy) is None) == savable, makers


def test_the_maker_to_ask_for_is_the_newest_of_another_step() -> None:
    target = branch(UNSIGNED, OWN, ACCEPTED, FOREIGN)
    assert newest_foreign_commit(ATTEMPT, target) is target.advance[2]
    assert newest_foreign_commit(ATTEMPT, branch(OWN, FENCE, UNSIGNED)) is None
