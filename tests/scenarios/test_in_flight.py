"""Publish requests that are in flight while other executions work, and attempts that wake up too late.

A request in flight has resolved its source; it lands whenever the server swaps the record, also after its client died or
gave up.  Enumerated: how far the client got with settling before it died, how far the retry got before it died too or
the request landed, and when the request lands.  Then one rule after the other is taken away, and a violation comes back.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.declare.task import TaskDefinition
from perago.errors import LakeError
from perago.lake.base import Lake
from perago.protocol.attempt import Attempt
from perago.protocol.names import branches_to_revoke, parse_internal_branch, revoke_prefix
from perago.runtime.attempt import publisher
from perago.runtime.attempt.publisher import Publisher
from tests.support.faults.gates import SWAP, Gated
from tests.support.worlds.histories import (
    BODIES,
    POLICIES,
    History,
    advance,
    advance_to,
    close_world,
    copied_world,
    fresh_world,
    gated,
    violations,
    writing,
)
from tests.support.worlds.server_order import ServerOrder
from tests.support.worlds.world import World, make_task

STARTS = ["first try", "abandoned before"]
DELIVERIES = ["the client dies", "the client hangs up"]
LANDINGS = ["before the retry", "while the retry works", "in the end"]


@dataclass(frozen=True, slots=True)
class Case:
    """The actions of a history's executions."""

    first: TaskDefinition
    second: TaskDefinition
    start: str = "first try"
    hard: bool = True
    clock_goes_back: bool = False


def case(
    policy: str, kind: str, *, start: str = "first try", hard: bool = True, clock_goes_back: bool = False
) -> Case:
    first = make_task(writing("by the first"), on_abandoned=policy, retries=5)
    second = make_task(BODIES[kind], on_abandoned=policy, retries=5)
    return Case(first, second, start, hard, clock_goes_back)


def in_flight(folder: Path, chosen: Case) -> tuple[World, str, Gated]:
    """A world with one execution whose publish request has resolved its source and not moved the branch yet."""
    begun = folder.parent / "begun"
    if not begun.exists():
        begin(begun, chosen)
    world = copied_world(begun, folder, hard=chosen.hard, clock_goes_back=chosen.clock_goes_back)
    [workflow] = [one.id for one in world.orchestrator.workflows(2)]
    one = gated(world, chosen.first, world.poll(chosen.first))
    assert advance_to(one, SWAP)
    return world, workflow, one


def begin(folder: Path, chosen: Case) -> None:
    """The world that all histories of a case begin in."""
    world = fresh_world(folder, hard=chosen.hard)
    world.start(chosen.first)
    if chosen.start == "abandoned before":
        abandoned = gated(world, make_task(writing("abandoned"), version="0"), world.poll(chosen.first))
        advance_to(abandoned, "complete")
        abandoned.kill()
        world.orchestrator.time_out_in_progress("dead")
    close_world(world)


def land(one: Gated) -> None:
    """Let the server swap the record, or fail to; the client gets no answer."""
    swap, one.late = one.late, None
    if swap is not None:
        with contextlib.suppress(LakeError):
            swap()


def after_a_dead_client(folder: Path, chosen: Case) -> Iterator[History]:
    """The publisher dies with its request in flight; the retry dies at any critical call, or works to its end."""
    for crashes, landing in itertools.product([False, True], LANDINGS):
        for j in itertools.count():
            world, workflow, one = in_flight(folder / f"{crashes}-{landing}-{j}", chosen)
            one.kill()
            stopped = _retries(world, chosen, one, j, crashes=crashes, landing=landing)
            yield f"dead client, retry stopped at {j}, crash: {crashes}, landing {landing}", world, workflow
            if not stopped or (not crashes and landing != "while the retry works"):
                break


def after_a_client_that_hung_up(folder: Path, chosen: Case) -> Iterator[History]:
    """The publisher gets no answer and settles; it dies at any critical call of that, and the retry works to its end."""
    for landing in LANDINGS:
        for i in itertools.count():
            settling = True
            for j in itertools.count():
                world, workflow, one = in_flight(folder / f"{landing}-{i}-{j}", chosen)
                one.grant("late")
                settling = advance(one, i)
                one.kill()
                stopped = False
                if world.workflow(workflow).running:
                    stopped = _retries(world, chosen, one, j, crashes=False, landing=landing)
                land(one)
                yield f"hung up, settled up to {i}, retry at {j}, landing {landing}", world, workflow
                if not stopped or landing != "while the retry works":
                    break
            if not settling:
                break


def _retries(world: World, chosen: Case, one: Gated, stop: int, *, crashes: bool, landing: str) -> bool:
    """The next attempts, up to the workflow's end or to retries that ran out; whether the first came to its stop."""
    if landing == "before the retry":
        land(one)
    two = gated(world, chosen.second, world.retry(chosen.second))
    stopped = advance(two, stop)
    if landing == "while the retry works":
        land(one)
    if crashes:
        two.kill()
        land(two) if landing == "while the retry works" else None
        if world.workflow(world.orchestrator.workflows(100)[0].id).running:
            world.execute(chosen.second, world.retry(chosen.second))
    else:
        advance(two, None)
    land(one)
    land(two)
    return stopped


WAYS = {"the client dies": after_a_dead_client, "the client hangs up": after_a_client_that_hung_up}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_in_flight_breaks_a_promise(
    tmp_path: Path, policy: str, kind: str, start: str, way: str
) -> None:
    chosen = case(policy, kind, start=start)
    assert list(violations(WAYS[way](tmp_path, chosen), chosen.second)) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_in_flight_breaks_a_promise_past_a_soft_fence(
    tmp_path: Path, policy: str, way: str
) -> None:
    chosen = case(policy, "no-op", hard=False)
    assert list(violations(WAYS[way](tmp_path, chosen), chosen.second)) == []


# --- attempts that wake up too late ------------------------------------------------------------------------------


def stale_and_twins(folder: Path, chosen: Case) -> Iterator[History]:
    """A worker sleeps from its poll on, wakes up while the retry works, and the retry has a twin that ends last."""
    twin_of = make_task(writing("by the twin"), on_abandoned=_policy(chosen.second), retries=5)
    for j in itertools.count():
        for k in itertools.count():
            world = fresh_world(folder / f"{j}-{k}", hard=chosen.hard, clock_goes_back=chosen.clock_goes_back)
            workflow = world.start(chosen.first)
            stale = gated(world, chosen.first, world.poll(chosen.first))
            current = world.retry(chosen.second)
            one = gated(world, chosen.second, current)
            one_stopped = advance(one, j)
            advance(stale, None)
            twin = gated(world, twin_of, current)
            twin_stopped = advance(twin, k)
            advance(one, None)
            advance(twin, None)
            yield (
                f"the stale attempt woke up at call {j} of the current one, its twin at {k}",
                world,
                workflow,
            )
            if not twin_stopped:
                break
        if not one_stopped:
            break


def _policy(definition: TaskDefinition) -> str:
    assert definition.workspace is not None
    return definition.workspace.policy.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_an_attempt_that_wakes_up_too_late_revokes_nothing_of_the_current_one(
    tmp_path: Path, policy: str, kind: str
) -> None:
    chosen = case(policy, kind)
    assert list(violations(stale_and_twins(tmp_path, chosen), chosen.second)) == []


# --- a wall clock that goes back -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_request_in_flight_breaks_a_promise_where_the_retry_was_scheduled_before_the_dead_attempt(
    tmp_path: Path, policy: str, way: str
) -> None:
    chosen = case(policy, "no-op", clock_goes_back=True)
    assert list(violations(WAYS[way](tmp_path, chosen), chosen.second)) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_an_attempt_that_wakes_up_too_late_revokes_nothing_of_one_that_was_scheduled_before_it(
    tmp_path: Path, policy: str
) -> None:
    chosen = case(policy, "changing", clock_goes_back=True)
    assert list(violations(stale_and_twins(tmp_path, chosen), chosen.second)) == []


# --- mutants -----------------------------------------------------------------------------------------------------


def _no_barrier(
    lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float, **_: Any
) -> None:
    revoked = _found(lake, repository, attempt)
    for name in (*revoked.stagings, *revoked.claims):
        lake.drop_branch(repository, name)


def _barrier_only_if_something_was_dropped(
    lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float, **_: Any
) -> None:
    revoked = _found(lake, repository, attempt)
    for name in revoked.stagings:
        lake.drop_branch(repository, name)
    if revoked.stagings:
        lake.barrier(repository, target, timeout)
    for name in revoked.claims:
        lake.drop_branch(repository, name)


def _claim_dropped_first(
    lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float, **_: Any
) -> None:
    revoked = _found(lake, repository, attempt)
    for name in (*revoked.claims, *revoked.stagings):
        lake.drop_branch(repository, name)
    if revoked.claims:
        lake.barrier(repository, target, timeout)


def _every_other_task_id(
    lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float, **_: Any
) -> None:
    for branch in lake.branches(repository, revoke_prefix(attempt)):
        owner = parse_internal_branch(branch.name)
        if owner is not None and owner.task_id != attempt.task_id:
            lake.drop_branch(repository, branch.name)
    lake.barrier(repository, target, timeout)


def _scheduled_before(
    lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float, **_: Any
) -> None:
    stagings, claims = [], []
    for branch in lake.branches(repository, revoke_prefix(attempt)):
        owner = parse_internal_branch(branch.name)
        if owner is not None and owner.scheduled_time < attempt.scheduled_time:
            (stagings if owner.kind == "staging" else claims).append(branch.name)
    for name in stagings:
        lake.drop_branch(repository, name)
    if claims:
        lake.barrier(repository, target, timeout)
    for name in claims:
        lake.drop_branch(repository, name)


def _found(lake: Lake, repository: str, attempt: Attempt) -> Any:
    return branches_to_revoke(
        attempt, [one.name for one in lake.branches(repository, revoke_prefix(attempt))]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "histories", "clock_goes_back"),
    [
        (_no_barrier, after_a_dead_client, False),
        (_barrier_only_if_something_was_dropped, after_a_client_that_hung_up, False),
        (_claim_dropped_first, after_a_dead_client, False),
        (_every_other_task_id, stale_and_twins, False),
        (_scheduled_before, after_a_dead_client, True),
        (_scheduled_before, stale_and_twins, True),
    ],
    ids=[
        "no barrier",
        "barrier only if something was dropped",
        "claim dropped first",
        "revoke by another task id",
        "revoke by the clock",
        "revoke by the clock of a stale attempt",
    ],
)
def test_a_revoke_without_one_of_its_rules_brings_a_violation_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[..., None],
    histories: Callable[[Path, Case], Iterator[History]],
    clock_goes_back: bool,
) -> None:
    monkeypatch.setattr(publisher, "revoke", broken)
    policy, kind = ("replace", "changing") if histories is stale_and_twins else ("supersede", "no-op")
    chosen = case(policy, kind, clock_goes_back=clock_goes_back)
    assert any(violations(histories(tmp_path, chosen), chosen.second))


def _settling_without_a_barrier(self: ServerOrder, repository: str, branch: str, timeout: float) -> None:
    return None


@pytest.mark.slow
def test_settling_without_a_barrier_says_refused_of_what_lands_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerOrder, "barrier", _settling_without_a_barrier)
    chosen = case("supersede", "no-op")
    assert any(violations(after_a_client_that_hung_up(tmp_path, chosen), chosen.second))


@pytest.mark.slow
def test_a_claim_that_settling_drops_brings_a_violation_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Publisher._settle

    def drops_its_claim(self: Publisher, *arguments: Any) -> Any:
        assert self.claimed is not None
        self.lake.drop_branch(self.signature.workspace.repository, self.claimed)
        return settle(self, *arguments)

    monkeypatch.setattr(Publisher, "_settle", drops_its_claim)
    chosen = case("supersede", "no-op")
    assert any(violations(after_a_client_that_hung_up(tmp_path, chosen), chosen.second))
