"""One attempt, from its input to its settled publication.

    validate input → [revoke, look at the head] → [reuse?] → workdir + marker → download → pre checks → body →
    validate result → post checks → changes → attempt fence → (changed: stage) + claim → read head, decide →
    attempt fence → publish or settle → hand over the output → drop staging → drop workdir

Revoking and the look may run alongside the download, and claiming alongside staging; each is over before what comes next.
The look permits nothing and may end an attempt before its body.  The output is handed over as soon as the publication
is settled; cleanup does not delay it.  The claim outlives this function: who sends the result drops it once Conductor
has answered.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perago.declare.author_code import author_code
from perago.declare.checks import Check, needs_path, run_checks
from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.errors import PublishFenceError, TaskInputError
from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, Orchestrator
from perago.protocol import steps
from perago.protocol.attempt import Attempt, AttemptSnapshot, assert_current_attempt_snapshot
from perago.protocol.fitness import own_reason
from perago.protocol.outcome import LostToTwin, Outcome, classify, completed
from perago.protocol.policies import SUPERSEDE
from perago.protocol.publication import StagedWorkspace, TargetBranch, Workspace
from perago.protocol.signing import Signature, input_digest, recordable
from perago.protocol.steps import NOT_BEGUN, Step
from perago.runtime.attempt.input import Input, read_input, resolve_workspace, workspace_output
from perago.runtime.attempt.look import in_vain, look_at
from perago.runtime.attempt.overlap import Overlap, at_once, give_up
from perago.runtime.attempt.place import Note, OpenPlace, Place, Site, in_workdir, say_nothing
from perago.runtime.attempt.prefix import with_folders
from perago.runtime.attempt.publisher import Published, Publisher, Result
from perago.runtime.attempt.traffic import Traffic
from perago.runtime.attempt.workdir import Workdir
from perago.runtime.ending import Claim, Settled
from perago.runtime.process.state import as_before
from perago.settings import FenceMode

log = logging.getLogger("perago.transaction")

DEFAULT_MERGE_TIMEOUT = 60.0
Looked = Future[TargetBranch | None]
Observer = Callable[[str], None]
"""Called with the name of each step as it begins."""


Persist = Callable[[Callable[[], AttemptSnapshot]], AttemptSnapshot]
"""Asks the orchestrator about an attempt, more than once if it must."""


def ask_once(ask: Callable[[], AttemptSnapshot]) -> AttemptSnapshot:
    """Take the first answer, or error, for what it is."""
    return ask()


def clean_up_now(cleanup: ExitStack) -> None:
    """Drop staging and workdir before the transaction returns."""
    cleanup.close()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every transaction of a process shares; `clean_up` may put dropping off to another thread."""

    lake: Lake
    orchestrator: Orchestrator
    workspace_root: Path
    fence: FenceMode = "auto"
    overlap: Overlap = at_once
    observe: Observer = lambda _step: None
    clock: Callable[[], float] = time.time
    clean_up: Callable[[ExitStack], None] = clean_up_now
    max_result_bytes: int | None = None
    open_place: OpenPlace = in_workdir
    persist: Persist = ask_once
    note: Note = say_nothing
    as_before: Callable[[], AbstractContextManager[None]] = as_before


class Transaction:
    """One execution of one attempt."""

    def __init__(
        self, task: TaskDefinition, assignment: Assignment, execution_id: str, around: Surroundings
    ) -> None:
        self._task = task
        self._assignment = assignment
        self._execution_id = execution_id
        self._around = around
        self._publisher: Publisher | None = None
        self._step = NOT_BEGUN
        self._seconds: dict[str, float] = {}
        self._traffic = Traffic(around.note)

    def run(self, hand_over: Callable[[Settled], None]) -> Settled:
        """Run the attempt; `hand_over` gets its ending before anything is cleaned up."""
        cleanup = ExitStack()
        try:
            refused, own = False, None
            try:
                outcome = completed(self._work(cleanup))
            except Exception as error:
                outcome = with_folders(classify(error), error, self._publisher)
                refused, own = isinstance(error, PublishFenceError), own_reason(error, self._step.name)
                log.info("attempt ended at %s: %s", self._step.name, outcome.reason, exc_info=error)
            settled = replace(self._settled(outcome, refused=refused), own_reason=own)
            with self._in(steps.HAND_OVER):
                hand_over(settled)
            self._enter(steps.CLEANUP)
        finally:
            self._around.clean_up(cleanup)
        return settled

    def _work(self, cleanup: ExitStack) -> Mapping[str, Any]:
        task, around = self._task, self._around
        with self._in(steps.INPUT), author_code("the params model"):
            given = read_input(task, self._assignment.input)
        if task.workspace is None or given.workspace is None:
            return {"result": self._call(given.params)}
        with self._in(steps.INPUT):
            workspace = resolve_workspace(around.lake, given.workspace, task.workspace.object_prefix)
        publisher = self._new_publisher(given, workspace, cleanup)
        looked = None
        if not task.workspace.read_only:
            with self._in(steps.REVOKE):
                looked = around.overlap(partial(self._revoke_and_look, publisher))
            with self._in(steps.REUSE):
                if (reused := self._reuse(publisher, looked)) is not None:
                    return self._output(given, reused, {})
        place = self._fill_place(publisher, cleanup, looked)
        with place.at_work():
            result = self._checked_body(given, place, task.workspace)
        if task.workspace.read_only:
            return self._output(given, Published(workspace.ref), result)
        return self._output(given, self._publish(publisher, place, result), result)

    def _revoke_and_look(self, publisher: Publisher) -> TargetBranch | None:
        publisher.revoke()
        return look_at(self._around.lake, publisher.signature.workspace)

    def _reuse(self, publisher: Publisher, looked: Looked) -> Published | None:
        """Work that was done before; the head counts only once no dead attempt can move it any more."""
        if not publisher.records_results:
            return None
        target = looked.result()
        reused = publisher.reuse(target.head if target is not None else None)
        if reused is not None:
            log.info("the head records this very work: the body does not run")
        return reused

    def _fill_place(self, publisher: Publisher, cleanup: ExitStack, looked: Looked | None) -> Place:
        """The body's place with the input in it; by then the dead attempts are revoked, and the body is not in vain."""
        try:
            with self._in(steps.WORKDIR):
                place = self._open_place(publisher, cleanup)
            with self._in(steps.DOWNLOAD):
                place.fill()
        except Exception:
            if looked is not None:
                give_up(looked)
            raise
        if looked is not None:
            self._end_if_in_vain(publisher, looked.result())
        return place

    def _end_if_in_vain(self, publisher: Publisher, target: TargetBranch | None) -> None:
        """End an attempt that can never publish; only its one publisher may, and only while it is current."""
        reason = in_vain(publisher, target, self._around.orchestrator)
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
        return around.open_place(
            Site(
                self._task,
                self._execution_id,
                workspace,
                workdir,
                around.lake,
                new_branch=lambda: publisher.new_staging(workspace.ref),
                traffic=self._traffic,
                note=around.note,
            )
        )

    def _checked_body(self, given: Input, place: Place, spec: WorkspaceSpec) -> dict[str, Any]:
        with self._in(steps.PRE_CHECKS), self._kept_for(spec.pre), author_code("a pre check"):
            run_checks("pre", spec.pre, place.tree(spec.pre), given.params)
        result = self._call(place.argument, given.params)
        with self._in(steps.POST_CHECKS), self._kept_for(spec.post), author_code("a post check"):
            run_checks("post", spec.post, place.tree(spec.post), given.params)
        return result

    def _kept_for(self, checks: Sequence[Check]) -> AbstractContextManager[None]:
        """Around checks: an author's own may do what a body may do, Perago's only look."""
        return self._around.as_before() if any(map(needs_path, checks)) else nullcontext()

    def _call(self, *arguments: object) -> dict[str, Any]:
        with self._in(steps.BODY), self._around.as_before(), author_code("the task"):
            returned = copy_context().run(self._task.fn, *arguments)
        with self._in(steps.RESULT), author_code("the result model"):
            result = self._task.dump_result(returned)
            self._check_size(result)
            return result

    def _check_size(self, result: Mapping[str, Any]) -> None:
        """Refuse a result that the orchestrator would not take, while nothing is published yet."""
        most = self._around.max_result_bytes
        try:
            size = len(json.dumps(result, ensure_ascii=False).encode())
        except UnicodeEncodeError as error:
            near = error.object[max(0, error.start - 40) : error.end]
            raise TaskInputError(
                f"the result holds text that is not valid Unicode, near {near!r}: if it is a file name, decode it with "
                "os.fsencode(name).decode(errors='replace')"
            ) from None
        if most is not None and size > most:
            raise TaskInputError(
                f"the result is {size} bytes of JSON, and {most} are the most that Conductor takes: put bulk into the "
                "workspace and return where it is"
            )

    def _publish(self, publisher: Publisher, place: Place, result: Mapping[str, Any]) -> Published:
        with self._in(steps.CHANGES):
            outcome = place.result(self._recorded(result, publisher))
        with self._in(steps.FIRST_FENCE):
            self._fence()
        with self._in(steps.STAGE):
            claimed = self._around.overlap(publisher.claim)
            staged = self._stage(publisher, place, outcome, claimed)
        with self._in(steps.CLAIM):
            claimed.result()
        with self._in(steps.PUBLISH):
            return publisher.publish(staged, outcome)

    def _stage(
        self, publisher: Publisher, place: Place, outcome: Result, claimed: Future[None]
    ) -> StagedWorkspace | None:
        """Stage while the claim is made; who has lost to a twin says so, whatever else went wrong."""
        try:
            return place.stage(publisher, outcome)
        except Exception:
            if isinstance(lost := give_up(claimed), LostToTwin):
                raise lost from None
            raise

    def _output(self, given: Input, published: Published, result: Mapping[str, Any]) -> Mapping[str, Any]:
        if published.recorded is not None:
            log.info("answering with the result that %s records", published.ref)
            with author_code("the result model"):
                result = self._task.dump_result(self._task.parse_result(published.recorded))
        return {"workspace": workspace_output(given.workspace or {}, published.ref), "result": result}

    def _recorded(self, result: Mapping[str, Any], publisher: Publisher) -> str | None:
        if not publisher.records_results:
            return None
        text = recordable(result)
        if text is None:
            log.warning(
                "the result is too large to be recorded for reuse: the policy is %s this time", SUPERSEDE.name
            )
        return text

    def _fence(self) -> None:
        ask = partial(self._around.orchestrator.current, self._attempt)
        assert_current_attempt_snapshot(self._attempt, self._around.persist(ask))

    def _new_publisher(self, given: Input, workspace: Workspace, cleanup: ExitStack) -> Publisher:
        task = self._task
        assert task.workspace is not None  # noqa: S101 - only called for tasks with a workspace
        budget = task.controls.publish_budget
        digest = input_digest(
            task_name=task.name,
            version=task.version,
            params=given.raw_params,
            input_ref=workspace.ref,
            prefix=workspace.prefix,
        )
        self._publisher = Publisher(
            lake=self._around.lake,
            signature=Signature(self._attempt, self._execution_id, workspace, digest),
            policy=task.workspace.on_abandoned,
            fence=self._fence,
            cleanup=cleanup,
            merge_timeout=budget.lakefs_merge_timeout_seconds if budget else DEFAULT_MERGE_TIMEOUT,
            mode=self._around.fence,
            overlap=self._around.overlap,
        )
        return self._publisher

    def _settled(self, outcome: Outcome, *, refused: bool) -> Settled:
        publisher, claim = self._publisher, None
        # A claim whose publish may be in flight stays: the retry finds it, and sends the barrier that is owed.
        if publisher is not None and publisher.claimed is not None and not publisher.in_flight:
            claim = Claim(publisher.signature.workspace.repository, publisher.claimed)
        level = publisher.fence_level if publisher is not None else None
        step, seconds = self._step.name, dict(self._seconds)
        return Settled(outcome, claim, level, step, seconds, refused, self._traffic.moved)

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
