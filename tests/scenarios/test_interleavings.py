"""Two executions, every way to switch between them twice at a dangerous moment.

Run the first up to one of its critical calls, the second up to one of its calls, the first to its end, the
second runs to its end.  The pairs are enumerated.  The two are twins of one attempt, or a dead attempt whose
requests still arrive and the retry that took its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.declare.task import TaskDefinition
from perago.runtime.attempt import delivery
from perago.runtime.attempt.context import Submit, run_inline
from perago.runtime.attempt.delivery import deliver, drop_claim
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.execution_result import DeliveryResult, PendingResult
from tests.support.faults.gates import ORDERS
from tests.support.worlds.histories import (
    BODIES,
    POLICIES,
    History,
    advance,
    fresh_world,
    gated,
    violations,
    writing,
)
from tests.support.worlds.world import make_task


def histories(
    folder: Path, first: TaskDefinition, second: TaskDefinition, *, twins: bool, overlap: Submit = run_inline
) -> Iterator[History]:
    """Every world that two executions with two switches between them can end in."""
    for i in itertools.count():
        first_stopped = True
        for j in itertools.count():
            world = fresh_world(folder / f"{i}-{j}")
            workflow = world.start(first)
            assignment = world.poll(first)
            one = gated(world, first, assignment, overlap)
            first_stopped = advance(one, i)
            if not twins and not world.workflow(workflow).running:
                break  # the first attempt is accepted by now, so there is no retry
            two = gated(world, second, assignment if twins else world.retry(second), overlap)
            second_stopped = advance(two, j)
            advance(one, None)
            advance(two, None)
            yield f"first stopped at its critical call {i}, second at {j}", world, workflow
            if not second_stopped:
                break
        if not first_stopped:
            break


@pytest.mark.slow
@pytest.mark.parametrize("twins", [True, False], ids=["twins", "a dead attempt and its retry"])
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", ORDERS)
def test_no_way_to_interleave_two_executions_breaks_a_promise(
    tmp_path: Path, order: str, policy: str, kind: str, twins: bool
) -> None:
    first = make_task(writing("by the first"), on_abandoned=policy)
    second = make_task(BODIES[kind], on_abandoned=policy)
    found = histories(tmp_path, first, second, twins=twins, overlap=ORDERS[order])
    assert list(violations(found, second)) == []


def _without_claim(self: Publisher) -> None:
    return None


def _without_revoke(self: Publisher, check_current: object) -> None:
    return None


def _claim_dropped_early(
    orchestrator: Any, lake: Any, pending: PendingResult, *, worker_id: str
) -> DeliveryResult:
    drop_claim(lake, pending)
    return deliver(orchestrator, lake, pending, worker_id=worker_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "method", "broken", "twins", "kind"),
    [
        (Publisher, "claim", _without_claim, True, "changing"),
        (delivery, "deliver", _claim_dropped_early, True, "changing"),
        (Publisher, "revoke", _without_revoke, False, "no-op"),
    ],
    ids=["without the claim", "with the claim dropped early", "without the revoke"],
)
def test_taking_one_rule_away_brings_a_violation_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    method: str,
    broken: Any,
    twins: bool,
    kind: str,
) -> None:
    # Changing our own code under a test shows that the test above can fail.
    monkeypatch.setattr(owner, method, broken)
    first, second = make_task(writing("by the first")), make_task(BODIES[kind])
    assert any(violations(histories(tmp_path, first, second, twins=twins), second))
