"""Runs the attempts of the two built-in steps, which make a run one transaction (`protocol/run_steps`).

    perago_open      validate input → resolve the branch → revoke → attempt fence → claim → create the run branch with its
                     marker → attempt fence → hand over
    perago_publish   validate input → read the run → revoke → published already? → stage R without the marker → as for every
                     other attempt: claim, decide, attempt fence, publish or settle → tag R → hand over

Opening answers only with what is on the run branch.  So an execution that finds the branch finishes it and gives the same
answer.  Nobody else has its name: it depends on the attempt.

Publishing is an attempt like any other, except that its result is not in a folder but on a branch, and that its input
commit is the origin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perago.declare.run_steps import RUN_STEPS, OpenParams, PublishParams
from perago.declare.task import TaskDefinition
from perago.errors import LakeConflict, LakeNotFound, NothingToCommit, PublishFenceError, TaskInputError
from perago.lake.base import PublishingLake, ReadableLake
from perago.orchestrator.base import Assignment, TaskState, WorkflowState
from perago.protocol import steps
from perago.protocol.changes import Changes, FileState
from perago.protocol.ledger import run_entries_text
from perago.protocol.metadata import INPUT_REF, KEY, RUN_COMMIT
from perago.protocol.names import is_run_branch_of, published_tag_name, run_branch_name
from perago.protocol.paths import in_actions
from perago.protocol.publication import MAX_RANGE, Commit, TargetBranch, Workspace, own_commits
from perago.protocol.refusal import made_by
from perago.protocol.run_steps import (
    MARKER_PATH,
    MARKER_TEXT,
    RUN_KEY,
    foreign_commit,
    marker_commit,
    origin_of,
    steps_text,
)
from perago.protocol.signing import RunSummary, Signature, input_digest, is_in_place
from perago.protocol.view import View
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.contract import ANOTHER_LAKE, commit_of, read_input, workspace_output
from perago.runtime.attempt.listing import LazyStates, list_view
from perago.runtime.attempt.preflight import missing_branch, read_before_body
from perago.runtime.attempt.publish_decision import OnBranch, Published, Result
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.transaction import Transaction
from perago.runtime.attempt.workspace_join import start_of
from perago.runtime.lake_lookup import INTERNAL_NAME_PREFIX, all_changes, has_marker
from perago.runtime.ledger import entries_in_run

log = logging.getLogger("perago.transaction")

_WHOLE = View("")
_SUB_WORKFLOW = "SUB_WORKFLOW"
_LOOP = "DO_WHILE"
_NEW_RUN = "Nothing was published. Start a new workflow"


def new_transaction(
    task: TaskDefinition, assignment: Assignment, execution_id: str, context: AttemptContext
) -> Transaction:
    """Return the transaction that runs one execution of an attempt."""
    kind = {"": Transaction, "open": OpenRun, "publish": PublishRun}[task.run_step]
    return kind(task, assignment, execution_id, context)


class OpenRun(Transaction):
    """One execution of an attempt of `perago_open`."""

    def _work(self, cleanup: ExitStack) -> Mapping[str, Any]:
        context = self._context
        with self._in(steps.INPUT):
            given = read_input(self._task, self._assignment.input)
            assert isinstance(given.params, OpenParams)  # noqa: S101 - the model of this task
            [sent] = given.workspaces
            origin = origin_workspace(context.lake, sent)
        if not given.params.isolate:
            return _opened(origin, origin)
        repository, branch = origin["repository"], run_branch_name(self._attempt)
        workspace = Workspace(repository, origin["branch"], origin["ref"], "")
        signature = Signature(self._attempt, self._execution_id, workspace, "")
        publisher = self._new_publisher(signature, cleanup)
        with self._in(steps.REVOKE):
            publisher.revoke(self._check_current)
        with self._in(steps.FIRST_FENCE):
            self._fence()
        with self._in(steps.CLAIM):
            publisher.claim()
        with self._in(steps.STAGE):
            marked = _create_run_branch(context.lake, signature, branch)
            self._fence()
        return _opened({**origin, "branch": branch, "ref": marked.id}, {**origin, "ref": origin_of(marked)})


def _opened(workspace: Mapping[str, str], origin: Mapping[str, str]) -> Mapping[str, Any]:
    return {"workspace": workspace, "origin": origin}


def origin_workspace(lake: ReadableLake, sent: Mapping[str, str]) -> Mapping[str, str]:
    """Return the workspace that a run starts from, with the full id of its commit."""
    repository, branch = sent["repository"], sent["branch"]
    if branch.startswith(INTERNAL_NAME_PREFIX):
        raise TaskInputError(
            f"workspace.branch {branch!r} is one of Perago's own branches, and a run publishes to a branch that people "
            "read: send that one"
        )
    try:
        head = lake.head(repository, branch)
    except LakeNotFound as missing:
        raise missing_branch(repository, branch, missing) from missing
    commit = commit_of(lake, sent) if "ref" in sent else head
    return {**sent, "ref": commit.id}


def _create_run_branch(lake: PublishingLake, signature: Signature, branch: str) -> Commit:
    """Create the run branch with its marker, or finish it, and return the commit that contains the marker."""
    workspace = signature.workspace
    repository, start = workspace.repository, workspace.ref
    try:
        lake.create_branch(repository, branch, start)
    except LakeConflict:
        log.info("run branch %s exists, finishing it", branch)
        marked = marker_commit(lake.log(repository, branch, MAX_RANGE), branch)
        if marked is not None:
            return _checked_start(marked, repository, branch)
        start = lake.head(repository, branch).id
    metadata = {**signature.identity(), KEY: RUN_KEY, INPUT_REF: start}
    try:
        lake.create_object(repository, branch, MARKER_PATH, MARKER_TEXT.encode())
    except LakeConflict:
        log.info("run branch %s has its marker", branch)
    try:
        lake.commit(repository, branch, f"perago: opens a run from {start}", metadata)
    except NothingToCommit:
        log.info("the marker of run branch %s is committed", branch)
    head = lake.head(repository, branch)
    marked = marker_commit([head], branch) or marker_commit(lake.log(repository, branch, MAX_RANGE), branch)
    if marked is None and has_marker(lake, repository, start):
        raise PublishFenceError(
            f"branch {workspace.branch!r} of {repository!r} has the marker of another run ({MARKER_PATH}), because somebody "
            "moved it to a commit of that run, or picked one: "
            f"`perago branch {repository} {workspace.branch} --remove-marker` removes it. Then start a new workflow"
        )
    if marked is None:
        raise _foreign_start(repository, branch)
    return _checked_start(marked, repository, branch)


def _checked_start(marked: Commit, repository: str, branch: str) -> Commit:
    if not origin_of(marked):
        raise _foreign_start(repository, branch)
    return marked


def _foreign_start(repository: str, branch: str) -> PublishFenceError:
    return PublishFenceError(
        f"run branch {branch!r} of {repository!r} does not begin with the run's own commit: somebody else has committed "
        f"there. {_NEW_RUN}"
    )


class PublishRun(Transaction):
    """One execution of an attempt of `perago_publish`."""

    def _work(self, cleanup: ExitStack) -> Mapping[str, Any]:
        lake, attempt = self._context.lake, self._attempt
        with self._in(steps.INPUT):
            given = read_input(self._task, self._assignment.input)
            params = given.params
            assert isinstance(params, PublishParams)  # noqa: S101 - the model of this task
            start = start_of(lake, attempt, given.workspaces, _WHOLE)
            last, origin = start.workspace, params.origin
            if last.repository != origin.repository:
                raise TaskInputError(
                    f"params.origin.repository is {origin.repository!r}, and workspace.repository {last.repository!r}: send "
                    "the origin and the last workspace of one run"
                )
            if last.branch == origin.branch:
                # Not isolated: every step has published by itself.
                return {"workspace": workspace_output(start.given, last.ref)}
            started = commit_of(lake, origin.model_dump(), "params.origin").id
        target = Workspace(last.repository, origin.branch, started, "")
        try:
            with self._in(steps.INPUT):
                run = self._read_run(last, started)
        except PublishFenceError:
            # An attempt that died may have published the run before its branch went, or somebody wrote to it.
            found = self._revoke_and_find(self._publisher_of(target, last.ref, cleanup), last.ref)
            if found.published is None:
                raise
            published = found.published
        else:
            published = self._publish_run(run, target, last, params, cleanup)
        if published.ref != started:
            self._keep(last.repository, last.ref)
        return {"workspace": {**start.given, "branch": origin.branch, "ref": published.ref}}

    def _publish_run(
        self, run: _Run, target: Workspace, last: Workspace, params: PublishParams, cleanup: ExitStack
    ) -> Published:
        """Publish a run, unless an earlier attempt has published it."""
        rebases = params.on_advanced == "rebase"
        if rebases:
            branches = frozenset({last.branch, target.branch})
            view = _view_of_run(run.workflows, last.repository, branches)
            target = replace(target, prefix=view.prefix, declared_view=view if view.declared else None)
        entries = run_entries_text(entries_in_run(self._context.lake, last.repository, run.commits))
        summary = RunSummary(last.ref, steps_text(run.commits), entries)
        publisher = self._publisher_of(target, last.ref, cleanup, summary, rebases=rebases)
        found = self._revoke_and_find(publisher, last.ref)
        if found.published is not None:
            return found.published
        place = _RunPlace(publisher, last.ref)
        if not place.changes and not self._own_publications(found.target):
            self._fence()
            return Published(target.ref)
        return self._publish(publisher, place, {})

    def _publisher_of(
        self,
        target: Workspace,
        last: str,
        cleanup: ExitStack,
        summary: RunSummary | None = None,
        *,
        rebases: bool = False,
    ) -> Publisher:
        digest = input_digest(
            task_name=self._task.name,
            version=self._task.version,
            params={"origin": target.ref},
            input_ref=last,
            view=_WHOLE,
        )
        signature = Signature(self._attempt, self._execution_id, target, digest, summary)
        return self._new_publisher(signature, cleanup, rebases=rebases)

    def _revoke_and_find(self, publisher: Publisher, last: str) -> _Found:
        """Revoke the step's earlier attempts, then look for what they have published."""
        with self._in(steps.REVOKE):
            publisher.revoke(self._check_current)
            target = read_before_body(self._context.lake, publisher.signature.workspace)
        with self._in(steps.REUSE):
            return _Found(target, self._published_before(target, last))

    def _read_run(self, last: Workspace, origin: str) -> _Run:
        """Return the commits of the run.  Raises `PublishFenceError` if it cannot be published whole."""
        lake, attempt = self._context.lake, self._attempt
        where = f"run branch {last.branch!r} of {last.repository!r}"
        if not is_run_branch_of(last.branch, attempt.workflow_instance_id):
            raise TaskInputError(
                f"workspace.branch {last.branch!r} is not the run branch of this workflow: send the workspace of the last "
                "step, which began with the workspace of perago_open"
            )
        try:
            head = lake.head(last.repository, last.branch)
        except LakeNotFound as gone:
            raise PublishFenceError(
                f"the run branch is gone. {_NEW_RUN} ({where}: {gone}; {ANOTHER_LAKE})", final=True
            ) from gone
        if head.id != last.ref:
            raise PublishFenceError(
                f"{where} is at {head.id} ({made_by(head)}), and not at the commit to publish, {last.ref}. {_NEW_RUN}, in "
                "which the publishing step takes the workspace of the last step, or of all last steps"
            )
        found = list(lake.log(last.repository, last.ref, MAX_RANGE))
        marked = marker_commit(found, last.branch)
        if marked is None or origin_of(marked) != origin:
            raise PublishFenceError(
                f"{where} does not begin at the origin {origin} within {MAX_RANGE} commits. {_NEW_RUN}",
                final=True,
            )
        commits = tuple(found[: found.index(marked)])
        workflows = tuple(_with_sub_workflows(self._workflow, attempt.workflow_instance_id))
        foreign = foreign_commit(commits, {one.id for one in workflows})
        if foreign is not None:
            raise PublishFenceError(
                f"{where} contains {foreign.id} ({made_by(foreign)}), which no step of this workflow made. {_NEW_RUN}",
                final=True,
            )
        return _Run(commits, workflows)

    def _workflow(self, workflow_id: str) -> WorkflowState:
        return self._context.retry_query(partial(self._context.orchestrator.workflow, workflow_id))

    def _own_publications(self, target: TargetBranch | None) -> Sequence[Commit]:
        """Return what this step has published since the origin, as far as the target could be read."""
        return own_commits(self._attempt, target.advance) if target is not None else ()

    def _published_before(self, target: TargetBranch | None, last: str) -> Published | None:
        """Return this step's publication of the same run, if it is on the branch since the origin."""
        for commit in target.advance if target is not None and target.reached == "input" else ():
            ours = commit.metadata.get(KEY) == self._attempt.logical_task_key
            if ours and commit.metadata.get(RUN_COMMIT) == last and is_in_place(commit):
                self._fence()
                log.info("commit %s is this run's publication", commit.id)
                return Published(commit.id, "")
        return None

    def _keep(self, repository: str, last: str) -> None:
        """Tag the run's last commit, so that its commits stay when the run branch goes."""
        name = published_tag_name(self._attempt.workflow_instance_id, last)
        try:
            self._context.lake.create_tag(repository, name, last)
        except LakeConflict:
            log.info("the commits of this run are kept under the tag %s already", name)


@dataclass(frozen=True, slots=True)
class _Run:
    """The publications of a run's steps, newest first, and its workflow with all sub-workflows."""

    commits: tuple[Commit, ...]
    workflows: tuple[WorkflowState, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """The target before publishing, and the publication of the same run that is on it, if any."""

    target: TargetBranch | None
    published: Published | None


def _view_of_run(workflows: Iterable[WorkflowState], repository: str, branches: frozenset[str]) -> View:
    """Return everything that the completed steps of these workflows have seen or may have changed on these branches.

    A step whose output does not say what it may see counts as seeing everything.  That is also a step that read the
    target branch itself.  So does a loop that forgets its iterations, and with them the steps in them.
    """
    reads: set[str] = set()
    writes: set[str] = set()
    for task in (task for workflow in workflows for task in workflow.tasks):
        if task.task_type == _LOOP and "keepLastN" in task.input:
            return _WHOLE
        workspace = task.output.get("workspace")
        if task.status != "COMPLETED" or not isinstance(workspace, Mapping) or _sees_nothing(task):
            continue
        if workspace.get("repository") != repository or workspace.get("branch") not in branches:
            continue
        view = task.output.get("view")
        if not isinstance(view, Mapping):
            return _WHOLE
        reads.update(map(str, view.get("reads", ("",))))
        writes.update(map(str, view.get("writes", ("",))))
    return _WHOLE if "" in reads | writes or not reads | writes else View("", tuple(reads), tuple(writes))


def _sees_nothing(task: TaskState) -> bool:
    """Return whether a task with a workspace in its output reads no files: its own tasks do, or those of another run."""
    return task.task_type == _SUB_WORKFLOW or task.task_name in RUN_STEPS


def _with_sub_workflows(ask: Callable[[str], WorkflowState], workflow_id: str) -> Iterator[WorkflowState]:
    """Yield a workflow and all its sub-workflows, at any depth."""
    workflow = ask(workflow_id)
    yield workflow
    for task in workflow.tasks:
        if task.task_type == _SUB_WORKFLOW and (inner := task.output.get("subWorkflowId")):
            yield from _with_sub_workflows(ask, str(inner))


class _RunPlace:
    """The run's last commit as the result to publish: on a staging branch, without the marker."""

    def __init__(self, publisher: Publisher, last: str) -> None:
        self._publisher = publisher
        self._last = last
        self.changes = _changes(publisher.lake, publisher.signature.workspace, last)
        """The run's changes since the origin."""

    def result(self, recorded: str | None) -> Result:
        """Return the run's changes, on a staging branch that does not exist yet."""
        states = LazyStates(self._list)
        return Result(states, self.changes, "{}", OnBranch(self._publisher.staging.name_on(self._last)))

    def tidy_up(self, result: Result) -> None:
        """Create the staging branch at the run's last commit, and remove the marker there."""
        if result.changes:
            branch = self._publisher.staging.new_branch(self._last)
            repository = self._publisher.signature.workspace.repository
            self._publisher.lake.delete(repository, branch, [MARKER_PATH])

    def _list(self) -> Mapping[str, FileState]:
        workspace = self._publisher.signature.workspace
        return list_view(self._publisher.lake, workspace.repository, self._last, workspace.view).files


def _changes(lake: ReadableLake, workspace: Workspace, last: str) -> Changes:
    """Return the changes from the input commit to another, without lakeFS's actions."""
    put: list[str] = []
    delete: list[str] = []
    for change in all_changes(lake, (workspace.repository, workspace.ref, last), ""):
        if not in_actions(change.path):
            (delete if change.kind == "removed" else put).append(change.path)
    return Changes(tuple(put), tuple(delete))
