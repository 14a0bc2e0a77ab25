"""An accepted result that may still be overwritten is checked once more before its claim is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable
from perago.lake.local.lake import LocalLake
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import Claim, DeliveryResult, PendingResult
from perago.runtime.worker.outbox import Outbox
from tests.support.servers.scripted_orchestrator import (
    CLAIM,
    ScriptedOrchestrator,
    an_attempt,
    claimed_lake,
    running_sender,
    snapshot,
)

ATTEMPT = an_attempt()
AWAY = OrchestratorUnavailable("away")
DONE = Outcome("COMPLETED", output={"result": {}})
THERE = snapshot(ATTEMPT, "COMPLETED")
COVERED = snapshot(ATTEMPT)
SOON = 0.01


class Watched(ScriptedOrchestrator):
    """Keeps what was there of claim and outbox whenever the task was read."""

    def __init__(self, lake: LocalLake, root: Path, **scripts: Any) -> None:
        super().__init__(**{"may_be_overwritten": [True], "complete": [True], **scripts})
        self._lake, self._root = lake, root
        self.kept: list[tuple[list[str], int]] = []

    def current(self, attempt: Any) -> Any:
        claims = [branch.name for branch in self._lake.branches("songs", "perago-claim")]
        self.kept.append((claims, len(list(Outbox(self._root).unsent()))))
        return super().current(attempt)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    with claimed_lake(tmp_path / "lake") as made:
        yield made


def deliver(orchestrator: Any, lake: LocalLake, root: Path) -> DeliveryResult:
    """Send a result, and wait until the courier is done with it; nothing of it is left."""
    with running_sender(orchestrator, lake, root, recheck_seconds=SOON) as (sender, delivered):
        sender.send(PendingResult("execution", ATTEMPT, DONE, claim=Claim("songs", CLAIM)))
        found = delivered.get(timeout=10)
    assert lake.branches("songs", "perago-claim") == []
    assert list(Outbox(root).unsent()) == []
    return found


def test_a_result_that_is_still_there_is_sent_once_and_its_claim_dropped_after_the_recheck(
    lake: LocalLake, tmp_path: Path
) -> None:
    orchestrator = Watched(lake, tmp_path, current=[THERE])

    assert deliver(orchestrator, lake, tmp_path).accepted

    assert orchestrator.asked("complete") == [DONE]
    assert orchestrator.kept == [([CLAIM], 1)]


def test_a_result_that_was_overwritten_is_sent_and_rechecked_again(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = Watched(lake, tmp_path, current=[COVERED, COVERED, THERE])

    assert deliver(orchestrator, lake, tmp_path).accepted

    assert orchestrator.asked("complete") == [DONE] * 3
    assert orchestrator.kept == [([CLAIM], 1)] * 3


def test_a_server_that_is_unavailable_at_the_recheck_is_asked_again(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = Watched(lake, tmp_path, current=[AWAY, COVERED, AWAY, THERE], complete=[True, AWAY, True])

    assert deliver(orchestrator, lake, tmp_path).accepted

    assert set(map(str, orchestrator.kept)) == {str(([CLAIM], 1))}


@pytest.mark.parametrize(
    "found",
    [snapshot(ATTEMPT, "TIMED_OUT"), snapshot(ATTEMPT, "CANCELED"), snapshot(an_attempt(retry_count=1))],
)
def test_a_covered_result_whose_attempt_has_ended_meanwhile_is_not_called_accepted(
    lake: LocalLake, tmp_path: Path, found: Any
) -> None:
    delivery = deliver(Watched(lake, tmp_path, current=[found]), lake, tmp_path)

    assert not delivery.accepted
    assert "undone by a late update" in delivery.reason


def test_a_covered_result_that_its_workflow_has_ended_with_counts_as_accepted(
    lake: LocalLake, tmp_path: Path
) -> None:
    """The workflow went on by the result before the task was covered; an ended one takes no other."""
    orchestrator = Watched(lake, tmp_path, current=[COVERED], complete=[True, False])

    assert deliver(orchestrator, lake, tmp_path).accepted


def test_a_workflow_that_was_removed_meanwhile_had_the_result(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = Watched(lake, tmp_path, current=[OrchestratorNotFound("gone")])

    assert deliver(orchestrator, lake, tmp_path).accepted


def test_a_result_that_nothing_can_cover_is_not_looked_at_again(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = Watched(lake, tmp_path, may_be_overwritten=[False], current=[AssertionError("looked")])

    assert deliver(orchestrator, lake, tmp_path).accepted

    assert orchestrator.kept == []
    assert orchestrator.asked("may_be_overwritten") == [False]


def test_the_orchestrator_learns_that_an_earlier_worker_left_the_result(
    lake: LocalLake, tmp_path: Path
) -> None:
    orchestrator = Watched(lake, tmp_path, current=[COVERED, COVERED, THERE])
    pending = PendingResult("execution", ATTEMPT, DONE, claim=Claim("songs", CLAIM))
    Outbox(tmp_path).put(pending)

    with running_sender(orchestrator, lake, tmp_path, recheck_seconds=SOON) as (sender, delivered):
        sender.resume(pending)
        assert delivered.get(timeout=10).accepted

    assert orchestrator.asked("may_be_overwritten") == [True]
    # The first look is at whether it may be sent at all.
    assert orchestrator.asked("complete") == [DONE] * 2
