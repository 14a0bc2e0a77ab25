"""Two different steps on one branch: every way to interleave them, to crash, to land late, and to have others commit.

Enumerated like the histories of one step (test_interleavings, test_in_flight): an execution stops at one of its critical
calls, something happens, it continues.  Then one rule after the other is removed, and a violation comes back.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeError
from perago.lake.base import Merge
from perago.protocol.publication import build_workspace_publication_plan
from perago.runtime.attempt import publisher, target_branch
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.target_branch import Differences, Views
from perago.runtime.attempt.transaction import Transaction
from tests.support.faults.gates import SWAP, Gated
from tests.support.worlds.concurrent_steps import (
    CHANGES_THE_VIEW,
    EVENTS,
    Side,
    a_side,
    a_task,
    a_world,
    finish,
    no_change,
    violations,
)
from tests.support.worlds.histories import advance, advance_to, close_world
from tests.support.worlds.server_order import ServerOrder
from tests.support.worlds.world import World

pytestmark = pytest.mark.slow
POLICIES = ["supersede", "reuse"]
Found = tuple[str, list[str]]
"""What happened, and what is wrong with how it ended."""


def land(execution: Gated) -> None:
    """Let the server swap the record, or fail to; the client gets no answer."""
    swap, execution.late = execution.late, None
    if swap is not None:
        with contextlib.suppress(LakeError):
            swap()


def judged(where: str, world: World, *sides: Side, a: str, may_fail: bool = False) -> Found:
    for side in sides:
        for execution in side.gates:
            if execution.active:
                execution.kill()
            land(execution)
    for side in sides:
        finish(side)
    wrong = list(violations(world, *sides, a=a, may_fail=may_fail))
    close_world(world)
    return where, wrong


# --- histories ---------------------------------------------------------------------------------------------------


def two_steps(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Run left up to a critical call, right up to one of its calls, then left and right to their ends."""
    for i in itertools.count():
        for j in itertools.count():
            world = a_world(folder / f"{i}-{j}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            one = left.gated()
            left_stopped = advance(one, i)
            two = right.gated()
            right_stopped = advance(two, j)
            advance(one, None)
            advance(two, None)
            yield judged(f"left stopped at {i}, right at {j}", world, left, right, a=a)
            if not right_stopped:
                break
        if not left_stopped:
            break


def crashes(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Left dies at any critical call, perhaps with a request in flight; right publishes; the request lands somewhen."""
    for landing in ("before right", "after right", "while the retry works"):
        for i in itertools.count():
            world = a_world(folder / f"{landing}-{i}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            one = left.gated()
            stopped = advance(one, i)
            one.kill()
            land(one) if landing == "before right" else None
            advance(right.gated(), None)
            land(one) if landing == "after right" else None
            if world.workflow(left.workflow).running and left.retry():
                two = left.gated()
                advance_to(two, "merge")
                land(one)
                advance(two, None)
            yield judged(f"left died at {i}, landing {landing}", world, left, right, a=a)
            if not stopped:
                break


def in_flight(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Left gives up with its request in flight; right publishes at any moment of left's settling; it lands later."""
    for early in (True, False):
        for i in itertools.count():
            world = a_world(folder / f"{early}-{i}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            one = left.gated()
            assert advance_to(one, SWAP)
            one.grant("late")
            settling = advance(one, i)
            land(one) if early else None
            advance(right.gated(), None)
            land(one)
            advance(one, None)
            yield judged(f"left settled up to {i}, landed early: {early}", world, left, right, a=a)
            if not settling:
                break


def others(folder: Path, policy: str, *, hard: bool = True, names: Any = EVENTS) -> Iterator[Found]:
    """An abandoned publication or none; then others do something at any critical call of the attempt that follows."""
    for abandoned, name in itertools.product((False, True), names):
        for i in itertools.count():
            world = a_world(folder / f"{abandoned}-{name}-{i}", hard=hard)
            a, left = world.head().id, a_side(world, "left", policy=policy)
            if abandoned:
                dead = left.gated()
                assert advance_to(dead, "complete")
                dead.kill()
                assert left.retry()
            one = left.gated()
            stopped = advance(one, i)
            EVENTS[name](world)
            advance(one, None)
            may_fail = name in CHANGES_THE_VIEW
            yield judged(f"abandoned: {abandoned}, {name} at {i}", world, left, a=a, may_fail=may_fail)
            if not stopped:
                break


def stale(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Left loses the head to right and tries again; at any of its calls from there on it has become stale."""
    for abandoned, goes_first in itertools.product((False, True), (False, True)):
        for i in itertools.count():
            world = a_world(folder / f"{abandoned}-{goes_first}-{i}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            if abandoned:
                dead = left.gated()
                assert advance_to(dead, "complete")
                dead.kill()
                assert left.retry()
            one = left.gated()
            if not advance_to(one, "merge"):
                yield judged("reused", world, left, right, a=a)
                break
            advance(right.gated(), None)
            stopped = advance(one, i)
            if left.world.workflow(left.workflow).running and left.retry():
                two = left.gated()
                advance(one, None) if goes_first else None
                advance(two, None)
            advance(one, None)
            yield judged(
                f"stale at {i}, abandoned: {abandoned}, goes first: {goes_first}", world, left, right, a=a
            )
            if not stopped:
                break


def unchanged_retries(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Left dies with its request in flight; the retry changes nothing; the request lands at any of its calls."""
    for right_first in (True, False):
        for i in itertools.count():
            world = a_world(folder / f"{right_first}-{i}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            if right_first:
                advance(right.gated(), None)
            one = left.gated()
            assert advance_to(one, SWAP)
            one.kill()
            assert left.retry()
            left.task = a_task("left", policy=policy, made=no_change)
            two = left.gated()
            stopped = advance(two, i)
            land(one)
            advance(two, None)
            advance(right.gated(), None)
            yield judged(f"landed at {i} of a retry, right first: {right_first}", world, left, right, a=a)
            if not stopped:
                break


def twins(folder: Path, policy: str, *, hard: bool = True) -> Iterator[Found]:
    """Deliver one attempt twice; the right step publishes while the first execution waits at any critical call."""
    for right_between in (True, False):
        for i in itertools.count():
            world = a_world(folder / f"{right_between}-{i}", hard=hard)
            a = world.head().id
            left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
            one = left.gated()
            stopped = advance(one, i)
            advance(right.gated(), None) if right_between else None
            twin = left.gated()
            advance_to(twin, "complete")
            advance(one, None)
            advance(twin, None)
            advance(right.gated(), None) if not right_between else None
            yield judged(f"twin at {i}, right between: {right_between}", world, left, right, a=a)
            if not stopped:
                break


HISTORIES = {
    "unchanged retries": unchanged_retries,
    "twins": twins,
    "two steps": two_steps,
    "crashes": crashes,
    "in flight": in_flight,
    "others": others,
    "stale": stale,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("histories", HISTORIES)
def test_no_history_of_two_steps_breaks_a_promise(tmp_path: Path, histories: str, policy: str) -> None:
    found = list(HISTORIES[histories](tmp_path, policy))
    assert [one for one in found if one[1]] == []
    assert len(found) >= 8


@pytest.mark.parametrize("histories", sorted(HISTORIES.keys() - {"others"}))
def test_nor_past_a_soft_fence_while_only_steps_write_the_branch(tmp_path: Path, histories: str) -> None:
    found = HISTORIES[histories](tmp_path, "supersede", hard=False)
    assert [one for one in found if one[1]] == []


# --- mutants -----------------------------------------------------------------------------------------------------


def _view_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Differences, "first", lambda self, segment, roots: None)


def _compared_with_a_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_branch, "segments", lambda attempt, a, advance: [(a, advance[0].id)])


def _fence_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    fence, fenced = Transaction._fence, {}

    def only_twice(self: Transaction) -> None:
        fenced[self] = fenced.get(self, 0) + 1
        if fenced[self] <= 2:
            fence(self)

    monkeypatch.setattr(Transaction, "_fence", only_twice)


def _expected_head_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ServerOrder._begin_merge

    def any_head(self: ServerOrder, repository: str, merge: Merge) -> Callable[[], Any]:
        # Neither the client nor the server compares; the commit says what was expected, as ever.
        hard, self._hard = self._hard, False
        check, self._check_head = self._check_head, lambda *_: None  # type: ignore[method-assign]
        try:
            swap = begin(self, repository, merge)
        finally:
            self._check_head = check  # type: ignore[method-assign]

        def unfenced() -> Any:
            self._hard = False
            try:
                return swap()
            finally:
                self._hard = hard

        return unfenced

    monkeypatch.setattr(ServerOrder, "_begin_merge", any_head)


def _as_staging_merged_over_own_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_staged_again(*given: Any, **named: Any) -> Any:
        plan = build_workspace_publication_plan(*given, **named)
        return replace(plan, step="merge") if plan.step == "restage" and named["changed"] else plan

    monkeypatch.setattr(publisher, "build_workspace_publication_plan", never_staged_again)


def _any_landing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Views, "is_valid_publication", lambda self, commit: True)


def _no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "claim", lambda self: None)


def _no_revoke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "revoke", lambda self, check_current: None)


def _no_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerOrder, "barrier", lambda self, *given: None)


def _changes(folder: Path) -> Iterator[Found]:
    return others(folder, "supersede", names=["a change of the view", "a revert of ours"])


def _soft_changes(folder: Path) -> Iterator[Found]:
    """Past a soft fence a mixed commit may be on the branch; what counts is that it is not accepted."""
    for where, wrong in others(folder, "supersede", hard=False, names=["a change of the view"]):
        yield where, [one for one in wrong if "published over" not in one]


MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Path], Iterator[Found]]]] = {
    "the view is not compared": (_view_not_compared, _changes),
    "the view is compared with A only": (_compared_with_a_only, _changes),
    "the fence is not repeated": (_fence_not_repeated, lambda folder: stale(folder, "supersede")),
    "the expected head is left out": (_expected_head_left_out, _changes),
    "what was staged on A is merged over own commits": (
        _as_staging_merged_over_own_commits,
        lambda folder: others(folder, "supersede", names=["a commit elsewhere"]),
    ),
    "no revoke": (_no_revoke, lambda folder: unchanged_retries(folder, "supersede")),
    "no barrier": (_no_barrier, lambda folder: unchanged_retries(folder, "supersede")),
    "no claim": (_no_claim, lambda folder: twins(folder, "supersede")),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_taking_one_rule_away_brings_a_violation_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    # Changing our own code under a test shows that the tests above can fail.
    take_away, histories = MUTANTS[mutant]
    take_away(monkeypatch)
    assert any(wrong for _, wrong in histories(tmp_path))


def test_past_a_soft_fence_a_mixed_commit_is_never_accepted(tmp_path: Path) -> None:
    assert [found for found in _soft_changes(tmp_path) if found[1]] == []


def test_a_mixed_commit_would_be_accepted_if_its_parent_were_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _any_landing_counts(monkeypatch)
    assert any(wrong for _, wrong in _soft_changes(tmp_path))
