"""Finds steps that cannot publish because another step has moved the branch, or moves it at the same time.

A workspace is a branch and a version of it.  The version is the workflow's input or the publication of a writable step.
A publication makes every other version of its branch permanently old, and a writable step that starts from an old version
cannot publish.

    steps in sequence          a version that is old after one step is old after all later steps
    cases of a SWITCH          old if old in every case that continues; perhaps old if old in at least one
    arms of a FORK_JOIN        old if old in at least one arm.  Two arms must not write the same branch, unless both
                               rebase and neither sees what the other writes; both publications are then perhaps old
    joined versions            old if every one of them is old because of a step that is not part of the join
    the body of a DO_WHILE     walked twice; a conflict that appears only in the second iteration is a warning

Branches and versions are identified by their names in the workflow: a branch by the input that it comes from, or as
repository@branch; a version by that input, by the step that publishes it, or by its literal ref.  Equal names mean the same
thing, and different names may too.  Which of several joined versions is the latest is unknown before the run; the step
starts from one of them.  Every writable step is assumed to write.  Paths that name params are compared as filled where
the workflow gives their values, and as the folders above the names otherwise.  An unknown branch or version produces no
finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from perago.protocol.view import overlap
from perago.workflow.check.context import Checking, Finding, Level
from perago.workflow.check.partitions import workspace_of
from perago.workflow.check.step_order import Ran, has_run
from perago.workflow.model.definition import Block, Step
from perago.workflow.model.expressions import known, understood, whole
from perago.workflow.model.step_types import TERMINATE

Version = tuple[str, str]
"""A branch and one of its versions, each identified by its name in the workflow."""


def writes(checking: Checking, step: Step) -> bool:
    """Return whether a step's task may publish to the branch that it starts from."""
    task = checking.task_of(step)
    return (
        task is not None and task.workspace is not None and not task.workspace.read_only and not task.run_step
    )


def run_step_of(checking: Checking, step: Step) -> str:
    """Return `open` or `publish` for a step that opens or publishes a run, else an empty string."""
    task = checking.task_of(step)
    return "" if task is None else task.run_step


def is_isolated(checking: Checking, step: Step) -> bool:
    """Return whether a step opens a run on a branch of its own."""
    if run_step_of(checking, step) != "open":
        return False
    params = known(step.inputs.get("params"), checking.given)
    return not isinstance(params, Mapping) or params.get("isolate", True) is not False


def origin_step(checking: Checking, step: Step) -> Step | None:
    """Return the step that opened the run which a step publishes, or None if it is unknown."""
    params = step.inputs.get("params")
    expression = whole(params.get("origin")) if isinstance(params, Mapping) else None
    if expression is None:
        return None
    parts, end = understood(expression)
    opened = checking.workflow.steps.get(str(parts[0])) if parts and end == len(expression) else None
    return opened if opened is not None and parts[1:] == ("output", "origin") else None


def run_branch_of(opened: Step) -> str:
    """Return the name in the check of the branch on which a run works."""
    return f"the run of {opened.reference}"


def are_independent(checking: Checking, one: Step, other: Step) -> bool:
    """Return whether two steps are independent: both of them rebase, and neither sees what the other writes."""
    found = [workspace_of(checking, step) for step in (one, other)]
    views = [workspace.spec.view for workspace in found if workspace and workspace.spec.rebases]
    return len(views) == 2 and not any(
        overlap(left.write_roots, right.roots) for left, right in (views, views[::-1])
    )


def starts_of(checking: Checking, step: Step) -> tuple[Version, ...]:
    """Return the versions that a step starts from: one, or several if it joins them.

    Returns an empty tuple if a version is unknown, or if the versions are not all on the same branch.
    """
    given = step.inputs.get("workspace")
    if not isinstance(given, list):
        start = start_of(checking, step)
        return () if start is None else (start,)
    found = [_given_version(checking, one, frozenset({step.reference})) for one in given]
    known = tuple(version for version in found if version is not None)
    one_branch = len({version[0] for version in known}) == 1
    return known if one_branch and len(known) == len(found) else ()


def start_of(checking: Checking, step: Step, followed: frozenset[str] = frozenset()) -> Version | None:
    """Return the branch and version that a step starts from, or None if unknown.

    If a step joins several versions, their names are combined into one.
    """
    if step.reference in checking.starts:
        return checking.starts[step.reference]
    task = checking.task_of(step)
    if task is None or task.workspace is None or step.reference in followed:
        return None
    given, inner = step.inputs.get("workspace"), followed | {step.reference}
    found = (
        _joined_version(checking, given, inner)
        if isinstance(given, list)
        else _given_version(checking, given, inner)
    )
    if not followed:
        # Callers visit the steps in order, so the cache keeps the recursion shallow, however long the chain is.
        checking.starts[step.reference] = found
    return found


def _given_version(checking: Checking, given: Any, followed: frozenset[str]) -> Version | None:
    if isinstance(given, Mapping):
        return _version_of_fields(checking, given, followed)
    expression = whole(given)
    return None if expression is None else _version(checking, expression, followed)


def _joined_version(checking: Checking, given: list[Any], followed: frozenset[str]) -> Version | None:
    found = [_given_version(checking, one, followed) for one in given]
    known = [version for version in found if version is not None]
    if not known or len(known) < len(found) or len({version[0] for version in known}) > 1:
        return None
    names = list(dict.fromkeys(version[1] for version in known))
    return known[0][0], " + ".join(names)


def _version(checking: Checking, expression: str, followed: frozenset[str]) -> Version | None:
    parts, end = understood(expression)
    if end < len(expression):
        return None
    if parts[:2] == ("workflow", "input"):
        return expression, expression
    source = checking.workflow.steps.get(str(parts[0]))
    if source is None:
        return None
    if parts[1:] == ("output", "origin") and run_step_of(checking, source) == "open":
        return start_of(checking, source, followed)
    if parts[1:] not in {("output", "workspace"), ("input", "workspace")}:
        return None
    if parts[1] == "output" and is_isolated(checking, source):
        return run_branch_of(source), source.reference
    if parts[1] == "output" and run_step_of(checking, source) == "publish":
        return _published_version(checking, source, followed)
    start = start_of(checking, source, followed)
    if start is None or parts[1] == "input" or not writes(checking, source):
        return start
    return start[0], source.reference


def _published_version(
    checking: Checking, step: Step, followed: frozenset[str] = frozenset()
) -> Version | None:
    """Return the version that publishing a run makes, on the branch that the run started from; None if unknown."""
    opened = origin_step(checking, step)
    target = None if opened is None else start_of(checking, opened, followed)
    return None if target is None else (target[0], step.reference)


def _version_of_fields(
    checking: Checking, given: Mapping[str, Any], followed: frozenset[str]
) -> Version | None:
    """Return the version of a workspace that is given field by field, or None if unknown.

    The branch is known if repository and branch are both literals, or if both come from the same workspace.
    """
    repository, branch, ref = (
        _field(checking, given, name, followed) for name in ("repository", "branch", "ref")
    )
    if repository is None or branch is None or ref is None:
        return None
    if isinstance(repository, str) and isinstance(branch, str):
        called = f"{repository}@{branch}"
    elif isinstance(repository, tuple) and isinstance(branch, tuple) and repository[0] == branch[0]:
        called = branch[0]
    else:
        return None
    return called, ref if isinstance(ref, str) else ref[1]


def _field(
    checking: Checking, given: Mapping[str, Any], name: str, followed: frozenset[str]
) -> str | Version | None:
    value = given.get(name)
    expression = whole(value)
    if expression is None:
        return value if isinstance(value, str) and "${" not in value else None
    around, dot, last = expression.rpartition(".")
    return _version(checking, around, followed) if dot and last == name else None


@dataclass(frozen=True, slots=True)
class _State:
    """The effect of all publications so far.

    `old` and `perhaps` map versions that are old, or perhaps old, to the step that moved the branch.
    """

    old: Mapping[Version, str] = field(default_factory=dict)
    perhaps: Mapping[Version, str] = field(default_factory=dict)
    seen: frozenset[Version] = frozenset()


@dataclass(slots=True)
class _Walk:
    checking: Checking
    found: dict[tuple[str, str], Finding] = field(default_factory=dict)


def moved_heads(checking: Checking) -> list[Finding]:
    """Return findings about steps whose branch another step has moved, or writes to at the same time."""
    walk = _Walk(checking)
    _block(walk, checking.workflow.top, _State(), first=True)
    return list(walk.found.values())


def _block(walk: _Walk, block: Block, state: _State | None, *, first: bool) -> _State | None:
    for step in block.steps:
        if state is None:
            return None
        state = _step(walk, step, state, first=first)
    return state


def _step(walk: _Walk, step: Step, state: _State, *, first: bool) -> _State | None:
    """Check a step and the steps inside it.  Returns the state afterwards, or None if the workflow ends there."""
    if step.type == TERMINATE:
        return None
    state = _after_publishing(walk, step, state, first=first)
    cases = [block for block in step.blocks if block.is_case]
    arms = step.blocks_of("arm")
    body = next(iter(step.blocks_of("body")), None)
    if cases:
        ways = [_block(walk, block, state, first=first) for block in cases]
        if not step.blocks_of("default"):
            ways.append(state)
        return _one_of([way for way in ways if way is not None])
    if arms:
        _check_arms(walk, step, arms)
        ways = [_block(walk, block, state, first=first) for block in arms]
        return _after_fork(walk, arms, _all_of([way for way in ways if way is not None]))
    if body is not None:
        once = _block(walk, body, state, first=first)
        # Two iterations reveal every conflict.  The second one walks inner loops only once: walking them twice would
        # double the work with every level of nesting.
        twice = _block(walk, body, once, first=False) if first else None
        return _one_of([way for way in (once, twice) if way is not None])
    return state


def _after_publishing(walk: _Walk, step: Step, state: _State, *, first: bool) -> _State:
    start = start_of(walk.checking, step)
    if start is None:
        return state
    publishes_run = run_step_of(walk.checking, step) == "publish"
    if not publishes_run and not writes(walk.checking, step):
        return _State(state.old, state.perhaps, state.seen | {start})
    _check_start(walk, step, state, first=first)
    made = _published_version(walk.checking, step) if publishes_run else (start[0], step.reference)
    if made is None:
        return state
    moved = {
        version: step.reference
        for version in {*state.seen, start, *starts_of(walk.checking, step)}
        if version[0] == made[0] and version != made
    }
    fresh_old = {version: by for version, by in state.old.items() if version != made}
    fresh_perhaps = {version: by for version, by in state.perhaps.items() if version != made}
    # An optional step may have failed without publishing anything.
    old = fresh_old if step.optional else {**fresh_old, **moved}
    return _State(old, {**fresh_perhaps, **moved}, state.seen | {start, made})


def _check_start(walk: _Walk, step: Step, state: _State, *, first: bool) -> None:
    starts = starts_of(walk.checking, step)
    made = {version[1] for version in starts}
    movers = [state.old.get(start) or state.perhaps.get(start) for start in starts]
    # A join starts from the latest of its versions, so one that no step outside the join has moved past is enough.
    if not movers or any(by is None or (by in made and len(starts) > 1) for by in movers):
        return
    by = str(movers[0])
    if by in walk.checking.workflow.steps and are_independent(
        walk.checking, step, walk.checking.workflow.steps[by]
    ):
        return
    certain = all(start in state.old for start in starts) and first
    if by == step.reference:
        text = f"writes the same branch in every iteration, but starts from {_written(step)} each time"
        remedy = "carry its output over to the next iteration (SET_VARIABLE), or move it out of the loop"
    else:
        moved = "has moved" if certain else "may have moved"
        text = f"starts from {_written(step)}, but step {by!r} {moved} that branch on by then"
        remedy = f"start it from ${{{by}.output.workspace}}"
        if _ran_in_parallel(walk.checking, starts, by):
            names = ", ".join(f'"${{{one}.output.workspace}}"' for one in (*sorted(made), by))
            remedy = f"start it from both: [{names}]"
    message = f"step {step.reference!r} {text}; {remedy}"
    key = (step.reference, by)
    if key not in walk.found:
        walk.found[key] = Finding("error" if certain else "warning", step.reference, message)


def _ran_in_parallel(checking: Checking, starts: tuple[Version, ...], by: str) -> bool:
    """Return whether the steps that published `starts` are all independent of `by`, and so ran in parallel with it."""
    steps = checking.workflow.steps
    return by in steps and all(
        name in steps and are_independent(checking, steps[name], steps[by]) for _, name in starts
    )


def _after_fork(walk: _Walk, arms: Sequence[Block], state: _State | None) -> _State | None:
    """Return the state after a fork.  If two arms wrote to the same branch, either may have published last."""
    if state is None:
        return None
    perhaps = dict(state.perhaps)
    for left, right in combinations(arms, 2):
        for one, branch, _ in _writers(walk.checking, left):
            for other, same, _ in _writers(walk.checking, right):
                if branch == same and are_independent(walk.checking, one, other):
                    perhaps.setdefault((branch, one.reference), other.reference)
                    perhaps.setdefault((branch, other.reference), one.reference)
    return _State(state.old, perhaps, state.seen)


def _check_arms(walk: _Walk, fork: Step, arms: Sequence[Block]) -> None:
    for left, right in combinations(arms, 2):
        for one, branch, sure in _writers(walk.checking, left):
            for other, same, sure_too in _writers(walk.checking, right):
                if branch != same or _in_turn(walk.checking, one, other):
                    continue
                if are_independent(walk.checking, one, other):
                    continue
                level: Level = "error" if sure and sure_too else "warning"
                text = (
                    f"steps {one.reference!r} and {other.reference!r} run side by side in {fork.reference!r} and both "
                    f"write {_branch(branch)}: only one of them can publish; run them one "
                    "after the other, declare one that writes nothing with read_only=True, or, where neither sees what "
                    'the other writes, declare reads, writes and on_advanced="rebase" for both'
                )
                walk.found.setdefault(
                    (fork.reference, f"{left.name}|{right.name}"), Finding(level, other.reference, text)
                )


def _writers(checking: Checking, block: Block, *, sure: bool = True) -> Iterator[tuple[Step, str, bool]]:
    for step in block.steps:
        start = start_of(checking, step)
        if start is not None and writes(checking, step):
            yield step, start[0], sure and not step.optional
        for inner in step.blocks:
            yield from _writers(checking, inner, sure=sure and not inner.is_case)


def _in_turn(checking: Checking, one: Step, other: Step) -> bool:
    pairs = ((one, other), (other, one))
    return any(has_run(checking.workflow, a.reference, by=b.reference).ran is Ran.YES for a, b in pairs)


def _one_of(ways: list[_State]) -> _State | None:
    if not ways:
        return None
    everywhere = {version for version in ways[0].old if all(version in way.old for way in ways)}
    old = {version: ways[0].old[version] for version in everywhere}
    return _State(old, _union(ways), frozenset().union(*(way.seen for way in ways)))


def _all_of(ways: list[_State]) -> _State | None:
    if not ways:
        return None
    old = {version: by for way in ways for version, by in way.old.items()}
    return _State(old, _union(ways), frozenset().union(*(way.seen for way in ways)))


def _union(ways: list[_State]) -> dict[Version, str]:
    return {version: by for way in ways for version, by in (*way.perhaps.items(), *way.old.items())}


def _branch(called: str) -> str:
    return f"the branch of ${{{called}}}" if called.startswith("workflow.") else f"the branch {called}"


def _written(step: Step) -> str:
    """Return the text with which the author specified a step's workspace."""
    given = step.inputs["workspace"]
    if isinstance(given, list):
        return " and ".join(str(one["ref"]) if isinstance(one, Mapping) else str(one) for one in given)
    return str(given["ref"]) if isinstance(given, Mapping) else str(given)
