"""Results on their way: when they are sent, when they are not any more, and what is dropped when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perago.errors import (
    LakeNotFound,
    LakeUnavailable,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.lake.local.lake import LocalLake
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import (
    Claim,
    DeliveryResult,
    ExecutionResult,
    PendingResult,
    Publication,
    pending_result_of,
)
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.outbox import Outbox
from tests.support.faults.ports import refusing
from tests.support.servers import scripted_orchestrator
from tests.support.servers.scripted_orchestrator import (
    CLAIM,
    WORKSPACE,
    ScriptedOrchestrator,
    an_assignment,
    an_attempt,
    claimed_lake,
    snapshot,
)
from tests.support.worlds.lake_work import Work

ATTEMPT = an_attempt()
SECRET = "hush-hush"
AWAY = OrchestratorUnavailable("away")
DONE = Outcome("COMPLETED", output={"result": {}})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    with claimed_lake(tmp_path / "lake") as made:
        yield made


def claims(lake: LocalLake) -> list[str]:
    return [branch.name for branch in lake.branches("songs", "perago-claim")]


def a_pending_result(
    lake: LocalLake, outcome: Outcome = DONE, *, published: str | None = None
) -> PendingResult:
    publication = Publication("songs", "main", published) if published else None
    return PendingResult("execution", ATTEMPT, outcome, publication, Claim("songs", CLAIM))


running_sender = partial(scripted_orchestrator.running_sender, mask=Masker([SECRET]))


def test_an_accepted_result_drops_the_claim_and_leaves_the_outbox(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(complete=[True])

    with running_sender(orchestrator, lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        delivery = delivered.get(timeout=10)

    assert delivery.accepted
    assert claims(lake) == []
    assert list(Outbox(tmp_path).unsent()) == []


def test_a_result_is_in_the_outbox_before_it_is_sent_and_the_claim_is_kept_until_the_answer(
    lake: LocalLake, tmp_path: Path
) -> None:
    seen: list[Any] = []

    class Watching(ScriptedOrchestrator):
        def complete(self, *arguments: Any, **keywords: Any) -> bool:
            seen.append((claims(lake), [pending.outcome for pending in Outbox(tmp_path).unsent()]))
            return super().complete(*arguments, **keywords)

    with running_sender(Watching(complete=[True]), lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        delivered.get(timeout=10)

    assert seen == [([CLAIM], [DONE])]


def test_a_result_is_sent_again_until_the_server_answers(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(complete=[AWAY, AWAY, AWAY, True])

    with running_sender(orchestrator, lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        assert delivered.get(timeout=10).accepted

    assert orchestrator.asked("complete") == [DONE] * 4


@pytest.mark.parametrize("answer", [False, OrchestratorNotFound("no such task")])
def test_a_result_that_is_not_accepted_is_said_and_given_up(
    lake: LocalLake, tmp_path: Path, answer: Any
) -> None:
    with running_sender(ScriptedOrchestrator(complete=[answer]), lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        delivery = delivered.get(timeout=10)

    assert not delivery.accepted
    assert delivery.reason
    assert list(Outbox(tmp_path).unsent()) == []


def test_a_result_that_the_server_refuses_becomes_a_failure_that_says_so(
    lake: LocalLake, tmp_path: Path
) -> None:
    orchestrator = ScriptedOrchestrator(complete=[OrchestratorRefused("too large"), True])

    with running_sender(orchestrator, lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        delivery = delivered.get(timeout=10)

    assert delivery.accepted
    assert delivery.pending.outcome == Outcome("FAILED", reason="the result was refused: too large")


def test_a_refused_failure_is_given_up(lake: LocalLake, tmp_path: Path) -> None:
    with running_sender(ScriptedOrchestrator(complete=[OrchestratorRefused("no")]), lake, tmp_path) as (
        sender,
        delivered,
    ):
        sender.send(a_pending_result(lake, Outcome("FAILED", reason="it failed")))

        assert not delivered.get(timeout=10).accepted


def test_a_long_reason_is_shortened(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(complete=[True])

    with running_sender(orchestrator, lake, tmp_path, reason_limit=40) as (sender, delivered):
        sender.send(a_pending_result(lake, Outcome("FAILED", reason="a first line" + " long" * 100)))
        delivered.get(timeout=10)

    assert orchestrator.asked("complete")[0].reason == "a first line long … long long long"


def test_no_secret_of_a_failure_reaches_the_outbox_or_the_server(lake: LocalLake, tmp_path: Path) -> None:
    kept: list[str] = []

    class Watching(ScriptedOrchestrator):
        def complete(self, *arguments: Any, **keywords: Any) -> bool:
            kept.extend(file.read_text() for file in (tmp_path / "outbox").iterdir())
            return super().complete(*arguments, **keywords)

    orchestrator = Watching(complete=[True])
    with running_sender(orchestrator, lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake, Outcome("FAILED", reason=f"ValueError: {SECRET}")))
        delivered.get(timeout=10)

    assert orchestrator.asked("complete")[0].reason == "ValueError: ***"
    assert len(kept) == 1
    assert SECRET not in kept[0]


def test_no_secret_in_the_servers_answer_to_a_result_is_sent_back(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(complete=[OrchestratorRefused(f"no: {SECRET}"), True])
    with running_sender(orchestrator, lake, tmp_path) as (sender, delivered):
        sender.send(a_pending_result(lake))
        delivered.get(timeout=10)

    assert orchestrator.asked("complete")[1].reason == "the result was refused: no: ***"


def test_no_secret_that_an_earlier_worker_has_kept_is_sent(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[True])

    assert resume(
        a_pending_result(lake, Outcome("FAILED", reason=f"it said {SECRET}")), orchestrator, lake, tmp_path
    ).accepted

    assert orchestrator.asked("complete")[0].reason == "it said ***"


# --- what an earlier worker left behind ------------------------------------------------------------------------


def resume(pending: PendingResult, orchestrator: Any, lake: Any, root: Path) -> DeliveryResult:
    Outbox(root).put(pending)
    with running_sender(orchestrator, lake, root) as (sender, delivered):
        [found] = sender.outbox.unsent()
        assert found == pending
        sender.resume(found)
        return delivered.get(timeout=10)


def test_a_result_left_behind_is_sent_while_its_attempt_is_current_and_its_commit_the_head(
    lake: LocalLake, tmp_path: Path
) -> None:
    pending = a_pending_result(lake, published=lake.head("songs", "main").id)
    orchestrator = ScriptedOrchestrator(current=[AWAY, snapshot(ATTEMPT)], complete=[AWAY, True])

    assert resume(pending, orchestrator, lake, tmp_path).accepted

    assert claims(lake) == []
    assert list(Outbox(tmp_path).unsent()) == []


def test_a_result_left_behind_that_published_nothing_needs_no_head(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[True])

    assert resume(a_pending_result(lake), orchestrator, refusing(lake, "head"), tmp_path).accepted


@pytest.mark.parametrize(
    "found",
    [snapshot(ATTEMPT, "TIMED_OUT"), snapshot(an_attempt(retry_count=1)), OrchestratorNotFound("gone")],
)
def test_a_result_left_behind_by_an_attempt_that_is_over_is_dropped(
    lake: LocalLake, tmp_path: Path, found: Any
) -> None:
    orchestrator = ScriptedOrchestrator(current=[found], complete=[AssertionError("sent")])

    delivery = resume(a_pending_result(lake), orchestrator, lake, tmp_path)

    assert not delivery.accepted
    assert claims(lake) == []
    assert list(Outbox(tmp_path).unsent()) == []


def test_a_result_left_behind_whose_commit_is_not_the_head_any_more_is_dropped_and_its_claim_kept(
    lake: LocalLake, tmp_path: Path
) -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[AssertionError("sent")])

    delivery = resume(a_pending_result(lake, published="c" * 64), orchestrator, lake, tmp_path)

    assert not delivery.accepted
    assert "c" * 64 in delivery.reason
    assert claims(lake) == [CLAIM]


def test_a_result_left_behind_waits_for_a_lake_that_is_away(lake: LocalLake, tmp_path: Path) -> None:
    head = lake.head("songs", "main").id
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[True])
    asked: list[int] = []

    class Away:
        def head(self, *arguments: str) -> Any:
            asked.append(1)
            if len(asked) < 3:
                raise LakeUnavailable("away")
            return lake.head(*arguments)

        drop_branch = lake.drop_branch

    assert resume(a_pending_result(lake, published=head), orchestrator, Away(), tmp_path).accepted


def test_a_result_left_behind_whose_branch_is_gone_is_dropped(lake: LocalLake, tmp_path: Path) -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[AssertionError("sent")])
    gone = refusing(lake, "head", error=LakeNotFound("no branch main"))

    assert not resume(a_pending_result(lake, published="c" * 64), orchestrator, gone, tmp_path).accepted


# --- pending results ----------------------------------------------------------------------------------------------


def finished(ref: str) -> ExecutionResult:
    return ExecutionResult(
        Outcome("COMPLETED", output={"workspace": {**WORKSPACE, "ref": ref}, "result": {}})
    )


def test_a_result_that_moved_the_branch_names_its_commit() -> None:
    pending = pending_result_of("execution", an_assignment(), finished("c" * 64))

    assert pending.publication == Publication("songs", "main", "c" * 64)


def test_a_result_that_kept_its_input_names_none() -> None:
    assert pending_result_of("execution", an_assignment(), finished("a" * 64)).publication is None


def test_a_file_in_the_outbox_that_cannot_be_read_stays_and_harms_no_other(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(PendingResult("good", ATTEMPT, DONE))
    (tmp_path / "outbox" / "bad.json").write_text("{")

    assert [pending.execution_id for pending in outbox.unsent()] == ["good"]
    assert (tmp_path / "outbox" / "bad.json").exists()


def test_a_result_that_a_killed_worker_was_writing_is_none_and_goes(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    half = tmp_path / "outbox" / ".execution.tmp"
    half.write_text('{"execution_id": "exe')
    assert list(outbox.unsent()) == []
    assert not half.exists()


def moved_away(work: Work) -> None:
    """Move the branch off the publication, as another user."""
    below = work.lake.head("songs", "main").first_parent
    work.stage("side", below or "", {"else": b"1"})
    work.lake.relocate("songs", "main", "side", work.head(), 60)


class TestATaskThatRebases:
    """Others may publish after it: its result is sent while its commit is on the branch and its view is unchanged."""

    def resumed(
        self, lake: LocalLake, root: Path, work: Work, after: Callable[[Work], object]
    ) -> DeliveryResult:
        published = work.commit("main", {"mine/a": b"1", "plays": b"1"})
        after(work)
        kept = Publication("songs", "main", published, ("mine/", "plays"))
        orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], complete=[True])
        Outbox(root).put(PendingResult("execution", ATTEMPT, DONE, kept, Claim("songs", CLAIM)))
        [pending] = Outbox(root).unsent()
        assert pending.publication == kept
        with running_sender(orchestrator, lake, root) as (sender, delivered):
            sender.resume(pending)
            return delivered.get(timeout=30)

    @pytest.mark.parametrize(
        "after",
        [
            lambda work: work.head(),
            lambda work: work.commit("main", {"theirs/a": b"2", "plays-old": b"2"}),
            lambda work: (work.commit("main", {"mine/a": b"2"}), work.commit("main", {"mine/a": b"1"})),
            lambda work: work.commit("main", {"_lakefs_actions/gate.yaml": b"2"}),
        ],
        ids=["nobody", "elsewhere", "there and back", "actions"],
    )
    def test_a_result_that_still_stands_is_sent(
        self, lake: LocalLake, tmp_path: Path, after: Callable[[Work], object]
    ) -> None:
        assert self.resumed(lake, tmp_path, Work(lake, "songs", tmp_path / "files"), after).accepted

    @pytest.mark.parametrize(
        ("after", "reported"),
        [
            (lambda work: work.commit("main", {"mine/b": b"2"}), "'mine/b' has changed since"),
            (lambda work: work.commit("main", {"plays/x": b"2"}), "'plays/x' has changed since"),
            (moved_away, "does not have it among its newest"),
        ],
        ids=["in a folder", "at a path", "off the branch"],
    )
    def test_a_result_that_no_longer_stands_is_not_sent_and_its_claim_stays(
        self, lake: LocalLake, tmp_path: Path, after: Callable[[Work], object], reported: str
    ) -> None:
        delivery = self.resumed(lake, tmp_path, Work(lake, "songs", tmp_path / "files"), after)
        assert not delivery.accepted
        assert reported in delivery.reason
        assert claims(lake) == [CLAIM]
