"""Checks the steps that make a run one transaction: everything between open and publish stays on the run branch.

Reported are a step between the two that writes the branch which the run will be published to, a path that reaches the end
of the workflow without publishing, a run that is published twice, and a step that works on the run branch afterwards.  A
path that a TERMINATE step ends publishes nothing on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perago.workflow.check.branch_conflicts import (
    is_isolated,
    origin_step,
    run_branch_of,
    run_step_of,
    start_of,
    writes,
)
from perago.workflow.check.context import Checking, Finding, error
from perago.workflow.check.step_order import Ran, has_run, run_side_by_side
from perago.workflow.model.definition import Step
from perago.workflow.model.expressions import understood, whole
from perago.workflow.model.step_types import TERMINATE


def run_steps(checking: Checking) -> Iterator[Finding]:
    """Yield findings about runs that are opened and published."""
    opened = [step for step in checking.workflow.walk() if is_isolated(checking, step)]
    publishing = [step for step in checking.workflow.walk() if run_step_of(checking, step) == "publish"]
    for step in publishing:
        yield from _mixed_runs(checking, step)
    for one in opened:
        ours = [step for step in publishing if origin_step(checking, step) is one]
        if any(origin_step(checking, step) is None for step in publishing):
            continue  # a publishing step whose origin is unknown may be this run's
        yield from _without_publishing(checking, one, ours)
        yield from _published_twice(checking, one, ours)
        for step in checking.workflow.walk():
            yield from _misplaced(checking, one, ours, step)


def _mixed_runs(checking: Checking, publish: Step) -> Iterator[Finding]:
    opened, start = origin_step(checking, publish), start_of(checking, publish)
    params = publish.inputs.get("params")
    given = whole(params.get("origin")) if isinstance(params, Mapping) else None
    parts = understood(given)[0] if given is not None else ()
    source = checking.workflow.steps.get(str(parts[0])) if parts else None
    wrong = source is not None and checking.task_of(source) is not None and opened is None
    if wrong or (opened is not None and run_step_of(checking, opened) != "open"):
        opening = next(
            (one.reference for one in checking.workflow.walk() if run_step_of(checking, one) == "open"),
            "open",
        )
        yield error(
            publish.reference,
            f"step {publish.reference!r}: params.origin takes ${{{given}}}, which is not the origin of a run; give it "
            f"${{{opening}.output.origin}}",
        )
        return
    if opened is None or start is None or not is_isolated(checking, opened):
        return
    if start[0] == run_branch_of(opened):
        return
    yield error(
        publish.reference,
        f"step {publish.reference!r} publishes the run that {opened.reference!r} opened, but its workspace is not on that "
        "run's branch; give it the workspace of the run's last step",
    )


def _without_publishing(checking: Checking, opened: Step, ours: Sequence[Step]) -> Iterator[Finding]:
    if checking.workflow.open_ended:
        return
    publishing = frozenset(step.reference for step in ours)
    trail = checking.workflow.trails[opened.reference]
    if any(_always_ends(spot.block.steps[spot.index + 1 :], publishing) for spot in reversed(trail)):
        return
    where = "on some paths" if ours else "at all"
    yield error(
        opened.reference,
        f"step {opened.reference!r} opens a run that is not published {where}: add a publishing step with "
        f'"origin": "${{{opened.reference}.output.origin}}", or a TERMINATE step, to every path',
    )


def _always_ends(steps: Sequence[Step], publishing: frozenset[str]) -> bool:
    """Return whether every path through these steps publishes, or ends the workflow."""
    return any(_ends(step, publishing) for step in steps)


def _ends(step: Step, publishing: frozenset[str]) -> bool:
    if step.type == TERMINATE or (step.reference in publishing and not step.optional):
        return True
    cases = [block for block in step.blocks if block.is_case]
    if cases:
        return bool(step.blocks_of("default")) and all(
            _always_ends(block.steps, publishing) for block in cases
        )
    return any(_always_ends(block.steps, publishing) for block in step.blocks)


def _published_twice(checking: Checking, opened: Step, ours: Sequence[Step]) -> Iterator[Finding]:
    workflow = checking.workflow
    for number, step in enumerate(ours):
        beside = [one for one in ours[:number] if run_side_by_side(workflow, one.reference, step.reference)]
        again = [
            one
            for one in ours[:number]
            if one not in beside and has_run(workflow, one.reference, by=step.reference).ran is not Ran.NO
        ]
        if beside:
            yield error(
                step.reference,
                f"step {step.reference!r} publishes the run that {opened.reference!r} opened, and so does step "
                f"{beside[0].reference!r} in another arm of the fork; publish it once, behind the JOIN",
            )
        elif again:
            yield error(
                step.reference,
                f"step {step.reference!r} publishes the run that {opened.reference!r} opened, and so does step "
                f"{again[0].reference!r} before it; take one of them out",
            )
        loops = {one.reference for one in workflow.holders(step.reference) if one.shape == "loop"}
        around = {one.reference for one in workflow.holders(opened.reference)}
        if loops - around:
            yield error(
                step.reference,
                f"step {step.reference!r} publishes in every iteration of a loop the run that {opened.reference!r} opened "
                "before it; move it behind the loop",
            )


def _misplaced(checking: Checking, opened: Step, ours: Sequence[Step], step: Step) -> Iterator[Finding]:
    start, target = start_of(checking, step), start_of(checking, opened)
    if start is None or not writes(checking, step):
        return
    workflow = checking.workflow
    if has_run(workflow, opened.reference, by=step.reference).ran is Ran.NO:
        return
    published = [one for one in ours if has_run(workflow, one.reference, by=step.reference).ran is Ran.YES]
    if target is not None and start[0] == target[0] and not published:
        yield error(
            step.reference,
            f"step {step.reference!r} writes the branch that {opened.reference!r} has opened a run on, before the run is "
            f"published; start it from ${{{opened.reference}.output.workspace}}, or from the step of the run before it",
        )
    if start[0] == run_branch_of(opened) and published:
        yield error(
            step.reference,
            f"step {step.reference!r} works on the run that {published[0].reference!r} has published by then, so "
            f"nobody would see its result; start it from ${{{published[0].reference}.output.workspace}}",
        )
