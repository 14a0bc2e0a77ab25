"""One attempt, from its input to its settled publication.

    validate input → [revoke, look at the head] → [reuse?] → workdir + marker → download → pre checks → body →
    validate result → post checks → download verified → changes → attempt fence → (changed: stage) + claim →
    read head, decide → attempt fence → publish or settle → hand over the output → drop staging → drop workdir

Large files may still be verified while checks and body run.  The verdict is waited for before anything counts that they have
done, their failures included: bytes that were damaged on their way end the attempt as the lake's failure, whatever the
body made of them.

Revoking and the look may run alongside the download, and claiming alongside staging; each is over before what comes next.
The look permits nothing and may end an attempt before its body.  Where the attempt began at the head, the look is left out,
and so is reading the head to decide, if the lake itself compares it while it merges (`publisher`).  The output is handed
over as soon as the publication is settled; cleanup does not delay it.  The claim outlives this function: who sends the
result drops it once Conductor has answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from perago.declare.checks import Check, needs_path
from perago.declare.task import TaskDefinition
from perago.declare.user_code import author_code
from perago.declare.workspace import WorkspaceSpec
from perago.errors import PublishFenceError
from perago.lake.base import Verification
from perago.orchestrator.base import Assignment
from perago.protocol import steps
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from perago.protocol.names import InternalBranch, staging_branch_name
from perago.protocol.outcome import LostToTwin, Outcome, completed
from perago.protocol.publication import StagedWorkspace, TargetBranch
from perago.protocol.signing import Signature, input_digest
from perago.protocol.steps import NOT_BEGUN, Step
from perago.protocol.worker_faults import own_reason
from perago.runtime.attempt.context import AttemptContext, cancel_or_wait
from perago.runtime.attempt.contract import Input, check_size, output_of, read_input, to_record
from perago.runtime.attempt.listing import with_folders
from perago.runtime.attempt.observer import ExecutionTrace, Traffic
from perago.runtime.attempt.place import Place, Site
from perago.runtime.attempt.preflight import look_at, preflight_failure
from perago.runtime.attempt.publish_decision import Move, Published, RelocatePlan, Result, RetryAfter
from perago.runtime.attempt.publish_retry import PublishRetry
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.revoke import ask_for_current
from perago.runtime.attempt.staging import Staging
from perago.runtime.attempt.workdir import Workdir
from perago.runtime.attempt.workspace_join import Start, start_of
from perago.runtime.execution_result import Claim, ExecutionResult

log = logging.getLogger("perago.transaction")

DEFAULT_MERGE_TIMEOUT = 60.0
Looked = Future[TargetBranch | None]


class Transaction:
    """One execution of one attempt."""

    def __init__(
        self, task: TaskDefinition, assignment: Assignment, execution_id: str, around: AttemptContext
    ) -> None:
        self._task = task
        self._assignment = assignment
        self._execution_id = execution_id
        self._around = around
        self._publisher: Publisher | None = None
        self._step = NOT_BEGUN
        self._seconds: dict[str, float] = {}
        self._traffic = Traffic(around.note)
        self._trace = ExecutionTrace(around.mask, around.wrong_input)

    def run(self, hand_over: Callable[[ExecutionResult], None]) -> ExecutionResult:
        """Run the attempt; `hand_over` gets its ending before anything is cleaned up."""
        cleanup = ExitStack()
        try:
            refused, own = False, None
            try:
                outcome = completed(self._work(cleanup))
            except Exception as error:
                self._around.on_error(error)
                outcome = self._trace.outcome_of(error, self._step)
                outcome = with_folders(outcome, error, self._publisher)
                refused, own = isinstance(error, PublishFenceError), own_reason(error, self._step.name)
            settled = replace(self._settled(outcome, refused=refused), own_reason=own)
            with self._in(steps.HAND_OVER):
                hand_over(settled)
            self._enter(steps.CLEANUP)
        finally:
            self._around.clean_up(cleanup)
        return settled

    def _work(self, cleanup: ExitStack) -> Mapping[str, Any]:
        task, around = self._task, self._around
        with self._in(steps.INPUT), self._trace.of_author(), author_code("the params model"):
            given = read_input(task, self._assignment.input)
        if task.workspace is None:
            return {"result": self._call(given.params)}
        with self._in(steps.INPUT):
            looks = not task.workspace.read_only and not task.workspace.rebases
            start = start_of(around.lake, self._attempt, given.workspaces, task.workspace.view, looks=looks)
        publisher = self._new_publisher(given, start, cleanup)
        looked = None
        if not task.workspace.read_only:
            with self._in(steps.REVOKE):
                looked = around.overlap(partial(self._revoke_and_look, publisher))
            with self._in(steps.REUSE):
                if (reused := self._reuse(publisher, looked)) is not None:
                    return output_of(task, start.given, reused, {})
        place = self._fill_place(publisher, cleanup, looked)
        with self._counts_once_verified(place), place.at_work():
            result = self._checked_body(given, place, task.workspace)
        if task.workspace.read_only:
            return output_of(task, start.given, Published(start.workspace.ref), result)
        return output_of(task, start.given, self._publish(publisher, place, result), result)

    def _revoke_and_look(self, publisher: Publisher) -> TargetBranch | None:
        publisher.revoke(self._check_current)
        # An attempt that began at the head is not in vain, whatever has become of the head since.
        return publisher.at_head or look_at(self._around.lake, publisher.signature.workspace)

    def _check_current(self, others: Sequence[InternalBranch]) -> None:
        ask = partial(ask_for_current, self._around.orchestrator, self._attempt, others)
        self._around.persist(ask)

    def _reuse(self, publisher: Publisher, looked: Looked) -> Published | None:
        """Work that was done before; the head counts only once no dead attempt can move it any more."""
        if not publisher.records_results:
            return None
        target = looked.result()
        reused = publisher.reuse(target)
        if reused is not None:
            self._fence()
            log.info("commit %s records this very work: the body does not run", reused.ref)
        return reused

    def _fill_place(self, publisher: Publisher, cleanup: ExitStack, looked: Looked | None) -> Place:
        """The body's place with the input in it; by then the dead attempts are revoked, and the body is not in vain."""
        try:
            with self._in(steps.WORKDIR):
                place = self._open_place(publisher, cleanup)
            with self._in(steps.DOWNLOAD):
                if place.on_branch:
                    publisher.staging.new_branch(publisher.signature.workspace.ref)
                place.fill()
        except Exception:
            if looked is not None:
                cancel_or_wait(looked)
            raise
        if looked is not None:
            self._end_if_in_vain(publisher, looked.result())
        return place

    def _end_if_in_vain(self, publisher: Publisher, target: TargetBranch | None) -> None:
        """End an attempt that can never publish; only its one publisher may, and only while it is current."""
        reason = preflight_failure(publisher, target, self._around.orchestrator)
        if reason is not None:
            with self._in(steps.CLAIM):
                # A twin that publishes, or has kept A, is not to be ended by this execution's FAILED.
                publisher.claim()
                self._fence()
            raise PublishFenceError(
                f"the body was not run, since no later head could let it publish: {reason}"
            )

    def _open_place(self, publisher: Publisher, cleanup: ExitStack) -> Place:
        around, workspace = self._around, publisher.signature.workspace
        workdir = Workdir.create(around.workspace_root, self._attempt, self._execution_id, now=around.clock())
        cleanup.callback(_drop_workdir, workdir)
        branch = staging_branch_name(self._attempt, self._execution_id)
        # Stopped before the workdir goes, where an attempt ends without having waited for it.
        verification = cleanup.enter_context(Verification())
        site = Site(
            self._task,
            self._execution_id,
            workspace,
            workdir,
            around.lake,
            branch,
            self._traffic,
            verification,
        )
        return around.open_place(site)

    @contextmanager
    def _counts_once_verified(self, place: Place) -> Iterator[None]:
        """Around checks and body: what they did, or raised, counts if the input they saw was right."""
        try:
            yield
        except Exception:
            failed = self._step
            self._verify(place)
            self._step = failed
            raise
        self._verify(place)

    def _verify(self, place: Place) -> None:
        with self._in(steps.VERIFY):
            try:
                place.verify()
            except Exception as error:
                # What the body has raised is not what ends the attempt, nor a cause of it.
                self._trace.forget_trace()
                raise error from error.__cause__

    def _checked_body(self, given: Input, place: Place, spec: WorkspaceSpec) -> dict[str, Any]:
        with self._in(steps.PRE_CHECKS), self._kept_for(spec.pre), author_code("a pre check"):
            self._trace.check("pre", spec.pre, place.tree(spec.pre), given.params)
        result = self._call(place.argument, given.params)
        with self._in(steps.POST_CHECKS), self._kept_for(spec.post), author_code("a post check"):
            self._trace.check("post", spec.post, place.tree(spec.post), given.params)
        return result

    @contextmanager
    def _kept_for(self, checks: Sequence[Check]) -> Iterator[None]:
        """Around checks: an author's own may do what a body may do, Perago's only look."""
        with (
            self._trace.of_author(),
            self._around.preserving_process_state() if any(map(needs_path, checks)) else nullcontext(),
        ):
            yield

    def _call(self, *arguments: object) -> dict[str, Any]:
        with (
            self._in(steps.BODY),
            self._trace.of_author(),
            self._around.preserving_process_state(),
            author_code("the task"),
        ):
            returned = copy_context().run(self._task.fn, *arguments)
        with self._in(steps.RESULT), self._trace.of_author(), author_code("the result model"):
            result = self._task.dump_result(returned)
            check_size(result, self._around.max_result_bytes)
            return result

    def _publish(self, publisher: Publisher, place: Place, result: Mapping[str, Any]) -> Published:
        with self._in(steps.CHANGES):
            outcome = place.result(to_record(result) if publisher.records_results else None)
        with self._in(steps.FIRST_FENCE):
            self._fence()
        with self._in(steps.STAGE):
            claimed = self._around.overlap(publisher.claim)
            staged = self._stage(publisher, place, outcome, claimed)
        with self._in(steps.CLAIM):
            claimed.result()
        with self._in(steps.PUBLISH):
            published = self._until_settled(publisher, staged, outcome)
        if published.recorded is None:
            self._trace.published(outcome.changes)
        return published

    def _until_settled(
        self, publisher: Publisher, staged: StagedWorkspace | None, outcome: Result
    ) -> Published:
        """Decide, fence, move the branch; anew from the new head where it has moved in between and the task rebases."""
        while True:
            decision = publisher.decide(staged, outcome)
            self._fence()
            ended = decision if isinstance(decision, Published) else self._move(publisher, decision)
            if isinstance(ended, Published):
                return ended
            self._around.pace.sleep(ended.pause)
            # Before anything is staged again: a stale attempt would remake the source that revoking it has dropped.
            self._fence()

    def _move(self, publisher: Publisher, move: Move) -> Published | RetryAfter:
        """Move the branch; the attempt fence has just held, and holds again wherever a call came in between."""
        if isinstance(move, RelocatePlan):
            # After the first fence: a stale attempt must not leave a tag that says it replaced something.
            publisher.keep_replaced(move)
            self._fence()
        published = publisher.carry_out(move)
        if isinstance(published, Published) and published.recorded is not None:
            # The call was refused, and the head is this very work done before.
            self._fence()
        return published

    def _stage(
        self, publisher: Publisher, place: Place, outcome: Result, claimed: Future[None]
    ) -> StagedWorkspace | None:
        """Stage while the claim is made; who has lost to a twin says so, whatever else went wrong."""
        try:
            place.tidy_up(outcome)
            return publisher.staging.stage(outcome)
        except Exception:
            if isinstance(lost := cancel_or_wait(claimed), LostToTwin):
                raise lost from None
            raise

    def _fence(self) -> None:
        ask = partial(self._around.orchestrator.current, self._attempt)
        assert_current_attempt_snapshot(self._attempt, self._around.persist(ask))

    def _new_publisher(self, given: Input, start: Start, cleanup: ExitStack) -> Publisher:
        task, workspace = self._task, start.workspace
        assert task.workspace is not None  # noqa: S101 - only called for tasks with a workspace
        budget = task.controls.publish_budget
        digest = input_digest(
            task_name=task.name,
            version=task.version,
            params=given.raw_params,
            input_ref=workspace.ref,
            view=workspace.view,
        )
        staging = Staging(
            self._around.lake,
            Signature(self._attempt, self._execution_id, workspace, digest),
            cleanup,
            self._around.fence,
            self._around.overlap,
            self._traffic,
        )
        merge_timeout = budget.lakefs_merge_timeout_seconds if budget else DEFAULT_MERGE_TIMEOUT
        tries = PublishRetry(merge_timeout, self._around.pace)
        self._publisher = Publisher(
            staging, task.workspace.on_abandoned, tries, task.workspace.rebases, start.at_head
        )
        return self._publisher

    def _settled(self, outcome: Outcome, *, refused: bool) -> ExecutionResult:
        publisher, claim = self._publisher, None
        # A claim whose publish may be in flight stays: the retry finds it, and sends the barrier that is owed.
        if publisher is not None and publisher.claimed is not None and not publisher.in_flight:
            claim = Claim(publisher.signature.workspace.repository, publisher.claimed)
        level = publisher.fence_level if publisher is not None else None
        step, seconds = self._step.name, dict(self._seconds)
        moved, seen = self._traffic.moved, self._trace.seen
        tries = publisher.tries.count if publisher is not None else 0
        view = (
            publisher.signature.workspace.view.roots if publisher is not None and publisher.rebases else None
        )
        return ExecutionResult(
            outcome, claim, level, step, seconds, refused, moved, seen=seen, tries=tries, view=view
        )

    @property
    def _attempt(self) -> Attempt:
        return self._assignment.attempt

    def _enter(self, step: Step) -> None:
        self._step = step
        self._around.observe(step.name)

    @contextmanager
    def _in(self, step: Step) -> Iterator[None]:
        self._enter(step)
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step.name] = self._seconds.get(step.name, 0.0) + time.perf_counter() - began


def _drop_workdir(workdir: Workdir) -> None:
    try:
        workdir.drop()
    except OSError as error:
        log.warning("failed to clean workdir %s: %s", workdir.path, error)
