"""Runs one attempt, from reading its input to settling its publication.

    validate input → [revoke, preflight] → [reuse?] → workdir + marker → download → pre checks → body →
    validate result → post checks → verify download → list changes → attempt fence → (changed: stage) + claim →
    read head, decide → attempt fence → publish or settle → hand over the output → drop staging → drop workdir

The verification of large files may continue while the checks and the body run.  Neither a result nor a failure of the
checks or the body is accepted before verification has finished: bytes damaged in transit end the attempt as a failure
of the lake, whatever the body did with them.

Revoke and preflight may overlap with the download, and claiming may overlap with staging.  All of these finish before
the next step begins.  Preflight never permits anything, but may end an attempt before its body runs.  It is skipped if
the attempt began at the head.  In that case the head is not read for the decision either, if the lake itself compares
heads while merging (`publisher`).  The output is handed over as soon as the publication is settled, before cleanup.
The claim outlives the transaction: the result sender drops it after Conductor has responded.

In the step `reuse`, a task that skips unchanged work looks for its last publication (`runtime/ledger`).  If nothing has
changed since, the attempt goes on from there to the first fence, with an unchanged result: only the download, the checks
and the body are left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Never

from perago.declare.checks import Check, is_user_code
from perago.declare.code_origin import provenance_of
from perago.declare.input_changes import reading_changes
from perago.declare.task import TaskDefinition
from perago.declare.user_code import user_code
from perago.declare.workspace import WorkspaceSpec
from perago.errors import LakeNotFound, PublishFenceError, TaskDefinitionError, TaskResultError
from perago.lake.base import Verification
from perago.orchestrator.base import Assignment
from perago.protocol import steps
from perago.protocol.attempt import Attempt, assert_current_attempt_snapshot
from perago.protocol.names import InternalBranch, staging_branch_name
from perago.protocol.outcome import LostToTwin, Outcome, completed
from perago.protocol.publication import StagedWorkspace, TargetBranch
from perago.protocol.refusal import BODY_NOT_RUN, USELESS, with_note
from perago.protocol.signing import Signature, input_digest
from perago.protocol.steps import NOT_BEGUN, Step
from perago.protocol.worker_faults import worker_fault
from perago.runtime.attempt.context import AttemptContext, cancel_or_wait
from perago.runtime.attempt.contract import Input, check_size, output_of, read_input, to_record
from perago.runtime.attempt.input_changes import NOTHING_LEFT_OUT, AttemptChanges, LeftOut
from perago.runtime.attempt.listing import with_missing_files_hint
from perago.runtime.attempt.observer import ExecutionTrace, Traffic
from perago.runtime.attempt.place import Place, PlaceRequest, Publishable, UnchangedInput
from perago.runtime.attempt.preflight import preflight_failure, read_before_body
from perago.runtime.attempt.publish_decision import Move, Published, RelocatePlan, Result, RetryAfter
from perago.runtime.attempt.publish_retry import PublishRetry
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.revoke import ask_for_current
from perago.runtime.attempt.staging import Staging
from perago.runtime.attempt.workdir import Workdir
from perago.runtime.attempt.workspace_join import start_of
from perago.runtime.execution_result import Claim, ExecutionResult
from perago.runtime.ledger import Ledger, work_of

log = logging.getLogger("perago.transaction")

DEFAULT_MERGE_TIMEOUT = 60.0
FutureTarget = Future[TargetBranch | None]


class Transaction:
    """One execution of one attempt, from reading its input to settling its publication."""

    def __init__(
        self, task: TaskDefinition, assignment: Assignment, execution_id: str, context: AttemptContext
    ) -> None:
        self._task = task
        self._assignment = assignment
        self._execution_id = execution_id
        self._context = context
        self._publisher: Publisher | None = None
        self._step = NOT_BEGUN
        self._seconds: dict[str, float] = {}
        self._traffic = Traffic(context.note)
        self._changes: AttemptChanges | None = None
        self._made_with = provenance_of(task, context.image)
        self._trace = ExecutionTrace(context.mask, context.wrong_input)

    def run(self, hand_over: Callable[[ExecutionResult], None]) -> ExecutionResult:
        """Run the attempt.  `hand_over` receives its result before anything is cleaned up."""
        cleanup = ExitStack()
        try:
            refused, own = False, None
            try:
                outcome = completed(self._work(cleanup))
            except Exception as error:
                self._context.on_error(error)
                outcome = self._trace.outcome_of(error, self._step)
                outcome = with_missing_files_hint(outcome, error, self._publisher)
                refused, own = isinstance(error, PublishFenceError), worker_fault(error, self._step.name)
            result = replace(self._execution_result(outcome, refused=refused), worker_fault=own)
            with self._in(steps.HAND_OVER):
                hand_over(result)
            self._enter(steps.CLEANUP)
        finally:
            self._context.clean_up(cleanup)
        return result

    def _work(self, cleanup: ExitStack) -> Mapping[str, Any]:
        task, context = self._task, self._context
        with self._in(steps.INPUT), self._trace.capturing_user_errors(), user_code("the params model"):
            given = read_input(task, self._assignment.input)
            if task.workspace is not None:
                # From here on, the workspace is that of this attempt, and its paths are plain ones.
                task = self._task = replace(task, workspace=task.workspace.filled(given.params))
        if task.workspace is None:
            return {"result": self._call(given.params)}
        with self._in(steps.INPUT):
            read_branch_first = not task.workspace.read_only and not task.workspace.rebases
            start = start_of(
                context.lake,
                self._attempt,
                given.workspaces,
                task.workspace.view,
                read_branch_first=read_branch_first,
            )
        digest = input_digest(
            task_name=task.name,
            version=task.version,
            params=given.raw_params,
            input_ref=start.workspace.ref,
            view=start.workspace.view,
        )
        work = work_of(task, given.plain_params, start.workspace.view)
        signature = Signature(
            self._attempt, self._execution_id, start.workspace, digest, work=work, made_with=self._made_with
        )
        publisher = self._new_publisher(signature, cleanup, start.at_head, rebases=task.workspace.rebases)
        target, left_out = None, NOTHING_LEFT_OUT
        if not task.workspace.read_only:
            with self._in(steps.REVOKE):
                target = context.overlap(partial(self._revoke_and_read_head, publisher))
            with self._in(steps.REUSE):
                if (reused := self._reuse(publisher, target)) is not None:
                    return output_of(task, start.given, reused, {})
                with _waiting_for(target):
                    unchanged, left_out = self._read_ledger(publisher)
            if unchanged is not None:
                self._preflight(publisher, target.result())
                same = UnchangedInput(context.lake, start.workspace, publisher.staging.name_on)
                return output_of(task, start.given, self._publish(publisher, same, unchanged), unchanged)
        place = self._fill_place(publisher, cleanup, target, left_out)
        with self._verifying(place), self._at_work(place):
            result = self._checked_body(given, place, task.workspace)
        if task.workspace.read_only:
            return output_of(task, start.given, Published(start.workspace.ref), result)
        return output_of(task, start.given, self._publish(publisher, place, result), result)

    def _revoke_and_read_head(self, publisher: Publisher) -> TargetBranch | None:
        publisher.revoke(self._check_current)
        # An attempt that began at the head passes preflight, wherever the head is now.
        return publisher.at_head or read_before_body(self._context.lake, publisher.signature.workspace)

    def _check_current(self, others: Sequence[InternalBranch]) -> None:
        ask = partial(ask_for_current, self._context.orchestrator, self._attempt, others)
        self._context.retry_query(ask)

    def _reuse(self, publisher: Publisher, target: FutureTarget) -> Published | None:
        """Return an earlier publication of the same work, or None.

        Waits until dead attempts are revoked and can no longer move the head.
        """
        if not publisher.records_results:
            return None
        reused = publisher.reuse(target.result())
        if reused is not None:
            self._fence()
            log.info("commit %s records equal work, skipping the body", reused.ref)
        return reused

    def _read_ledger(self, publisher: Publisher) -> tuple[dict[str, Any] | None, LeftOut]:
        """Return the recorded result if the body may be skipped, and otherwise the files that are not downloaded."""
        work, workspace, task = publisher.signature.work, publisher.signature.workspace, self._task
        assert work is not None  # noqa: S101 - set for every task that publishes
        assert task.workspace is not None  # noqa: S101 - only called for tasks with a workspace
        ledger, recompute = (
            Ledger(self._context.lake, workspace.repository, workspace.ref),
            self._context.recompute,
        )
        self._changes = AttemptChanges(ledger, work, workspace, task.workspace, recompute)
        if task.skip_unchanged:
            decision = ledger.decide(work, self._attempt.reference_task_name, recompute)
            if decision.result is not None and decision.entry is not None:
                made = decision.entry.commit.id
                with suppress(TaskResultError):
                    result = task.dump_result(task.parse_result(decision.result))
                    log.info("nothing has changed since commit %s, skipping the body", made)
                    self._trace.skipped(made)
                    return result, NOTHING_LEFT_OUT
            log.info(
                "not skipped: %s", decision.reason or "the recorded result no longer fits the result model"
            )
        return None, self._changes.left_out()

    def _fill_place(
        self, publisher: Publisher, cleanup: ExitStack, target: FutureTarget | None, left_out: LeftOut
    ) -> Place:
        """Download the input.  Returns after older attempts are revoked and preflight has passed."""
        with _waiting_for(target):
            with self._in(steps.WORKDIR):
                place = self._open_place(publisher, cleanup, left_out)
            with self._in(steps.DOWNLOAD):
                if place.on_branch:
                    publisher.staging.new_branch(publisher.signature.workspace.ref)
                place.fill()
        if target is not None:
            self._preflight(publisher, target.result())
        return place

    def _preflight(self, publisher: Publisher, target: TargetBranch | None) -> None:
        """Raise `PublishFenceError` if the attempt can never publish.

        Before raising, claims the attempt and checks the attempt fence.
        """
        reason = preflight_failure(publisher, target, self._context.orchestrator)
        if reason is not None:
            with self._in(steps.CLAIM):
                # Reporting FAILED must not end a twin that is publishing or has kept A.
                publisher.claim()
                self._fence()
            raise PublishFenceError(with_note(reason, BODY_NOT_RUN), final=True)

    def _open_place(self, publisher: Publisher, cleanup: ExitStack, left_out: LeftOut) -> Place:
        context, workspace = self._context, publisher.signature.workspace
        workdir = Workdir.create(
            context.workspace_root, self._attempt, self._execution_id, now=context.clock()
        )
        cleanup.callback(_drop_workdir, workdir)
        self._trace.use_workdir(workdir.path)
        branch = staging_branch_name(self._attempt, self._execution_id)
        # If the attempt ends without waiting, verification is stopped before the workdir is removed.
        verification = cleanup.enter_context(Verification())
        request = PlaceRequest(
            self._task,
            self._execution_id,
            workspace,
            workdir,
            context.lake,
            branch,
            self._traffic,
            verification,
            self._attempt,
            left_out,
        )
        return context.open_place(request)

    @contextmanager
    def _at_work(self, place: Place) -> Iterator[None]:
        """Run checks and body in this block.  For a Spark task, the wait for the session is a step of its own."""
        with ExitStack() as opened:
            opened.enter_context(reading_changes(place.location, self._changes or _no_publications))
            with self._in(steps.SESSION) if self._task.kind == "spark" else nullcontext():
                opened.enter_context(place.at_work())
            yield

    @contextmanager
    def _verifying(self, place: Place) -> Iterator[None]:
        """Run the checks and the body in this block, then verify the input.

        Their result or exception is accepted only after the verification.
        """
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
                # The body's exception is neither what ends the attempt nor the cause of this error.
                self._trace.forget_trace()
                raise error from error.__cause__

    def _checked_body(self, given: Input, place: Place, spec: WorkspaceSpec) -> dict[str, Any]:
        with self._in(steps.PRE_CHECKS), self._running_checks(spec.pre), user_code("a pre check"):
            self._trace.check("pre", spec.pre, place.tree(spec.pre), given.params)
        result = self._call(place.argument, given.params)
        with self._in(steps.POST_CHECKS), self._running_checks(spec.post), user_code("a post check"):
            self._trace.check("post", spec.post, place.tree(spec.post), given.params)
        return result

    @contextmanager
    def _running_checks(self, checks: Sequence[Check]) -> Iterator[None]:
        """Capture user errors and preserve the process state while checks run.

        The state is saved only for user-defined checks; built-in checks are read-only.
        """
        with (
            self._trace.capturing_user_errors(),
            self._context.preserving_process_state() if any(map(is_user_code, checks)) else nullcontext(),
        ):
            yield

    def _call(self, *arguments: object) -> dict[str, Any]:
        with (
            self._in(steps.BODY),
            self._trace.capturing_user_errors(),
            self._context.preserving_process_state(),
            user_code("the task"),
        ):
            returned = copy_context().run(self._task.fn, *arguments)
        with self._in(steps.RESULT), self._trace.capturing_user_errors(), user_code("the result model"):
            result = self._task.dump_result(returned)
            check_size(result, self._context.max_result_bytes)
            return result

    def _publish(self, publisher: Publisher, place: Publishable, result: Mapping[str, Any]) -> Published:
        with self._in(steps.CHANGES):
            records = publisher.records_results or self._task.skip_unchanged
            outcome = place.result(to_record(result) if records else None)
        with self._in(steps.FIRST_FENCE):
            self._fence()
        with self._in(steps.STAGE):
            claimed = self._context.overlap(publisher.claim)
            staged = self._stage(publisher, place, outcome, claimed)
        with self._in(steps.CLAIM):
            claimed.result()
        with self._in(steps.PUBLISH):
            try:
                published = self._publish_staged(publisher, staged, outcome)
            except PublishFenceError as refused:
                raise self._judged(publisher, refused) from refused.__cause__
        if published.recorded is None:
            self._trace.published(outcome.changes, publisher.replaced_unsigned)
        return published

    def _publish_staged(
        self, publisher: Publisher, staged: StagedWorkspace | None, outcome: Result
    ) -> Published:
        """Decide, check the attempt fence, and move the branch.

        Repeats this from the new head whenever the publisher asks for a retry.
        """
        while True:
            decision = publisher.decide(staged, outcome)
            self._fence()
            step = decision if isinstance(decision, Published) else self._move(publisher, decision)
            if isinstance(step, Published):
                return step
            self._context.timing.sleep(step.pause)
            # Check before restaging: a stale attempt would recreate the branch that was dropped to revoke it.
            self._fence()

    def _judged(self, publisher: Publisher, refused: PublishFenceError) -> PublishFenceError:
        """Return the refusal, saying that retrying is useless if no later head could let this input publish."""
        try:
            target = read_before_body(self._context.lake, publisher.signature.workspace)
        except LakeNotFound:
            return refused
        if preflight_failure(publisher, target, self._context.orchestrator) is None:
            return refused
        return PublishFenceError(with_note(str(refused), USELESS), final=True)

    def _move(self, publisher: Publisher, move: Move) -> Published | RetryAfter:
        """Move the branch.

        The caller has just checked the attempt fence.  It is checked again after tagging, and before an earlier
        publication is reused.
        """
        if isinstance(move, RelocatePlan):
            # Tag only after the fence: a stale attempt must not leave a tag for a replacement that never happened.
            publisher.tag_replaced_head(move)
            self._fence()
        published = publisher.execute(move)
        if isinstance(published, Published) and published.recorded is not None:
            # The call was refused, and the same work was found on the branch.
            self._fence()
        return published

    def _stage(
        self, publisher: Publisher, place: Publishable, outcome: Result, claimed: Future[None]
    ) -> StagedWorkspace | None:
        """Stage the result while the claim is being created.

        `LostToTwin` takes precedence over any staging error.
        """
        try:
            place.tidy_up(outcome)
            return publisher.staging.stage(outcome)
        except Exception:
            if isinstance(lost := cancel_or_wait(claimed), LostToTwin):
                raise lost from None
            raise

    def _fence(self) -> None:
        ask = partial(self._context.orchestrator.current, self._attempt)
        assert_current_attempt_snapshot(self._attempt, self._context.retry_query(ask))

    def _new_publisher(
        self,
        signature: Signature,
        cleanup: ExitStack,
        at_head: TargetBranch | None = None,
        *,
        rebases: bool = False,
    ) -> Publisher:
        task = self._task
        assert task.workspace is not None  # noqa: S101 - only called for tasks with a workspace
        budget = task.controls.publish_budget
        staging = Staging(
            self._context.lake,
            signature,
            cleanup,
            self._context.fence,
            self._context.overlap,
            self._traffic,
        )
        merge_timeout = budget.lakefs_merge_timeout_seconds if budget else DEFAULT_MERGE_TIMEOUT
        tries = PublishRetry(merge_timeout, self._context.timing)
        self._publisher = Publisher(
            self._context.lake, staging, task.workspace.policy.name, tries, rebases, at_head
        )
        return self._publisher

    def _execution_result(self, outcome: Outcome, *, refused: bool) -> ExecutionResult:
        publisher, claim = self._publisher, None
        # A claim whose publish may still be in flight is kept: the retry finds it and sends the barrier.
        if publisher is not None and publisher.claimed is not None and not publisher.in_flight:
            claim = Claim(publisher.signature.workspace.repository, publisher.claimed)
        level = publisher.fence_level if publisher is not None else None
        step, seconds = self._step.name, dict(self._seconds)
        moved, seen = (
            self._traffic.moved,
            replace(self._trace.seen, spark=self._traffic.spark, made_with=self._made_with),
        )
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
        self._context.observe(step.name)

    @contextmanager
    def _in(self, step: Step) -> Iterator[None]:
        self._enter(step)
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[step.name] = self._seconds.get(step.name, 0.0) + time.perf_counter() - began


@contextmanager
def _waiting_for(target: FutureTarget | None) -> Iterator[None]:
    """Run the block, and before an exception leaves it, end what still goes on beside it."""
    try:
        yield
    except Exception:
        if target is not None:
            cancel_or_wait(target)
        raise


def _no_publications(path: str, *, full: bool) -> Never:
    """Raise `TaskDefinitionError`: a read-only task asks what has changed since its last publication."""
    raise TaskDefinitionError(
        f"changes(workspace, {path!r}): a task with read_only=True has no publications to compare with; declare writes=… "
        "for what it makes, or read the whole input"
    )


def _drop_workdir(workdir: Workdir) -> None:
    try:
        workdir.drop()
    except OSError as error:
        log.warning("failed to clean workdir %s: %s", workdir.path, error)
