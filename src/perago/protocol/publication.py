"""Decides on the single step that makes an attempt's work visible.  A = input ref, H = head, C = staged commit.

H is read immediately before the decision.  `TABLE` below encodes this table, with its rows in the same order.
docs/publication.md shows the same table, and a test compares the two.

    head                                            replace                            supersede, reuse
    at-input       H == A                           merge C; unchanged: keep A         the same
    own-child      parent(H) == A, signed by us     relocate to C; unchanged: to A     restage on H
    unsigned-child parent(H) == A, not signed       relocate to C; unchanged: to A     refuse
    unsigned-kept  the same, with unsigned="refuse" refuse                             (not declared apart)
    foreign-child  parent(H) == A, another task's   refuse                             refuse
    own-range      2 to 1024 back, all signed by us refuse                             restage on H
    elsewhere      1 to 1024 back, others' commits; refuse                             merge C; unchanged: keep A
                   the view is as at A
    elsewhere-own  as elsewhere, but with commits   refuse                             restage on H
                   of our own, which are ignored
    elsewhere-new-actions                           refuse                             restage on H; unchanged: keep A
                   as elsewhere, with other lakeFS
                   actions than at A
    gated-child    relocation is needed, but would  refuse                             (not checked)
                   bypass pre-merge actions
    dirty-child    relocation is needed, but the    refuse                             (not checked)
                   branch has uncommitted objects
    other          anything else                    refuse                             refuse

"Signed by us" means that the logical task key is the same, i.e. the same workflow step in any attempt.  Under
`replace`, metadata can never permit a step, only refuse it.

The three `elsewhere` rows are for tasks that declare `on_advanced="rebase"`.  For other tasks, such a head is
foreign.  The result is what the task would have produced had it started from H, since everything that it could read
is unchanged.  In `elsewhere-own`, the view is compared segment by segment (`rebase.segments`), so that our own
changes are ignored: the view at H must equal the view at our newest commit, and the view at the parent of each of our
commits must equal the view at our next older commit, or at A for the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perago.errors import PublishFenceError
from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.refusal import refusal
from perago.protocol.view import View

HeadState = Literal[
    "at-input",
    "own-child",
    "unsigned-child",
    "unsigned-kept",
    "foreign-child",
    "own-range",
    "elsewhere",
    "elsewhere-own",
    "elsewhere-new-actions",
    "gated-child",
    "dirty-child",
    "other",
]
Step = Literal["merge", "keep", "relocate", "restage", "refuse"]

MAX_RANGE = 1024
ELSEWHERE: frozenset[HeadState] = frozenset({"elsewhere", "elsewhere-own", "elsewhere-new-actions"})

# (step if the attempt changed something, step if not) for each column.
TABLE: Mapping[HeadState, Mapping[Literal["replace", "supersede"], tuple[Step, Step]]] = {
    "at-input": {"replace": ("merge", "keep"), "supersede": ("merge", "keep")},
    "own-child": {"replace": ("relocate", "relocate"), "supersede": ("restage", "restage")},
    "unsigned-child": {"replace": ("relocate", "relocate"), "supersede": ("refuse", "refuse")},
    "unsigned-kept": {"replace": ("refuse", "refuse"), "supersede": ("refuse", "refuse")},
    "foreign-child": {"replace": ("refuse", "refuse"), "supersede": ("refuse", "refuse")},
    "own-range": {"replace": ("refuse", "refuse"), "supersede": ("restage", "restage")},
    "elsewhere": {"replace": ("refuse", "refuse"), "supersede": ("merge", "keep")},
    "elsewhere-own": {"replace": ("refuse", "refuse"), "supersede": ("restage", "restage")},
    "elsewhere-new-actions": {"replace": ("refuse", "refuse"), "supersede": ("restage", "keep")},
    "gated-child": {"replace": ("refuse", "refuse"), "supersede": ("refuse", "refuse")},
    "dirty-child": {"replace": ("refuse", "refuse"), "supersede": ("refuse", "refuse")},
    "other": {"replace": ("refuse", "refuse"), "supersede": ("refuse", "refuse")},
}


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in a lake.  `created` is in seconds since the epoch.

    `committer` is the user with whose keys it was made, if the lake knows users.
    """

    id: str
    parents: tuple[str, ...]
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    created: float = 0
    committer: str = ""

    @property
    def first_parent(self) -> str | None:
        """The commit on which this one was made, or None for a repository's first commit."""
        return self.parents[0] if self.parents else None


@dataclass(frozen=True, slots=True)
class WorkspaceInput:
    """The workspace that an attempt reads from and publishes to.

    `ref` is the full id of the input commit (A).  `prefix` ends in `/` or is empty.
    """

    repository: str
    branch: str
    ref: str
    prefix: str
    declared_view: View | None = None

    @property
    def view(self) -> View:
        """The paths that the task may see and change: the whole prefix, unless the task declares a narrower view."""
        return self.declared_view or View(self.prefix)


# The short name.  `WorkspaceInput` is the name used in the seeds.
Workspace = WorkspaceInput


@dataclass(frozen=True, slots=True)
class StagedWorkspace:
    """A staged result, with all the state that is needed to publish it, settle the publication and clean up."""

    repository: str
    branch: str
    commit: str
    base: str = ""
    """The commit at which the staging branch was created."""
    same_actions: bool = False
    """True if the commit is certain to have the same lakeFS actions as `base`.

    This is certain if only this execution wrote to the branch, and it wrote no actions.
    """


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A path in the view that differs from the attempt's input, and the commit that changed it."""

    path: str
    commit: Commit


@dataclass(frozen=True, slots=True)
class AdvanceEffect:
    """The effect of others' commits since the input commit, for an attempt that may publish on top of them."""

    change: ViewChange | None = None
    """The first change to the attempt's view, ignoring this step's own commits."""
    new_actions: bool = False
    """True if the head's lakeFS actions differ from those at the input commit."""


@dataclass(frozen=True, slots=True)
class TargetBranch:
    """The target branch as read.  `advance` contains its first-parent commits from the head down to the input commit.

    The input commit itself is not included.
    """

    head: Commit
    advance: Sequence[Commit] = ()
    reached: Literal["input", "limit", "root"] = "input"
    dirty: bool = False
    gates: Sequence[str] = ()
    """Users' pre-merge actions at the input commit or at the head, which a relocation would bypass."""
    advance_effect: AdvanceEffect | None = None
    """Set only if others have advanced the branch and the task may publish on top of them."""


@dataclass(frozen=True, slots=True)
class WorkspacePublicationPlan:
    """The publication step to take, and the head that the branch must have at that moment."""

    step: Step
    state: HeadState
    expected_head: str
    supersedes: str = ""
    """The newest commit of this step that the publication replaces or builds on."""
    rebased_over: int = 0
    """The number of others' commits between the input commit and the publication."""


def read_advance(input_ref: str, commits: Iterable[Commit]) -> TargetBranch:
    """Read first-parent commits, newest first, down to the input commit or to the limit of the supported range."""
    advance: list[Commit] = []
    for commit in commits:
        if commit.id == input_ref:
            head = advance[0] if advance else commit
            return TargetBranch(head, tuple(advance), "input")
        if len(advance) == MAX_RANGE:
            return TargetBranch(advance[0], tuple(advance), "limit")
        advance.append(commit)
        if commit.first_parent == input_ref:
            return TargetBranch(advance[0], tuple(advance), "input")
    return TargetBranch(advance[0], tuple(advance), "root")


def build_workspace_publication_plan(
    attempt: Attempt, workspace: Workspace, target: TargetBranch, *, changed: bool, policy: PolicyName
) -> WorkspacePublicationPlan:
    """Return the step to take according to `TABLE`.  Raises `PublishFenceError` if that step is `refuse`."""
    state = head_state(attempt, workspace.ref, target, policy)
    step = TABLE[state][POLICIES[policy].column][0 if changed else 1]
    if step == "refuse":
        raise PublishFenceError(refusal(attempt, workspace, target, policy, state).text())
    head = target.head.id
    if state not in ELSEWHERE:
        return WorkspacePublicationPlan(step, state, head, supersedes="" if state == "at-input" else head)
    own = own_commits(attempt, target.advance)
    newest = own[0].id if own else ""
    return WorkspacePublicationPlan(step, state, head, newest, len(target.advance) - len(own))


def own_commits(attempt: Attempt, advance: Sequence[Commit]) -> Sequence[Commit]:
    """Return the commits made by attempts of this step."""
    return [commit for commit in advance if commit.metadata.get(KEY) == attempt.logical_task_key]


def head_state(attempt: Attempt, input_ref: str, target: TargetBranch, policy: PolicyName) -> HeadState:
    """Classify the branch's head: return the row of `TABLE` that applies."""
    if target.head.id == input_ref:
        return "at-input"
    signers = [commit.metadata.get(KEY, "") for commit in target.advance]
    own = all(signer == attempt.logical_task_key for signer in signers)
    if target.reached != "input":
        return "other"
    if target.advance_effect is not None and target.advance_effect.change is None and not own:
        if attempt.logical_task_key in signers:
            return "elsewhere-own"
        return "elsewhere-new-actions" if target.advance_effect.new_actions else "elsewhere"
    if len(target.advance) > 1:
        return "own-range" if own else "other"
    if signers[0] and not own:
        return "foreign-child"
    if not own and POLICIES[policy].relocates and not POLICIES[policy].replaces_unsigned:
        return "unsigned-kept"
    checks = POLICIES[policy].checks_before_relocating
    if checks and target.gates:
        return "gated-child"
    if checks and target.dirty:
        return "dirty-child"
    return "own-child" if own else "unsigned-child"
