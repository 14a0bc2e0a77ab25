"""Decides whether a step has run by the time another one starts.

    where the source is                       it has run
    before the reader, or around it           yes
      in a case of a SWITCH                   maybe, unless every other case ends the workflow
      in an arm that no JOIN waits for        maybe
    after the reader                          no; inside a loop maybe, in an earlier iteration
    in another arm of the same FORK_JOIN      maybe; no if the reader is the first step of its arm;
                                              yes if a JOIN before the reader waits for the source
    in another case of the same SWITCH        no; inside a loop maybe

A step reads its input when it is scheduled; the first step of an arm is scheduled when the fork starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from perago.workflow.model.definition import Spot, Step, WorkflowDefinition
from perago.workflow.model.step_types import JOINS, TERMINATE


class Ran(Enum):
    """The degrees of certainty that a step has run."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Answer:
    """The degree of certainty that a step has run, and the reason if it is not YES."""

    ran: Ran
    why: str = ""


YES = Answer(Ran.YES)


def has_run(workflow: WorkflowDefinition, source: str, *, by: str) -> Answer:
    """Return whether the step `source` has run by the time the step `by` starts."""
    ours, theirs = workflow.trails[by], workflow.trails[source]
    shared = _shared(ours, theirs)
    looping = any(spot.block.kind == "body" for spot in ours)
    if shared == len(theirs):
        return _itself(source, looping=looping) if shared == len(ours) else YES
    if shared == len(ours):
        return _inside(theirs[shared:], source)
    if ours[shared].block is not theirs[shared].block:
        return _apart(ours[shared:], theirs[shared:], source, looping=looping)
    if ours[shared].index > theirs[shared].index:
        return _before(ours[shared], theirs[shared:], source)
    if any(spot.block.kind == "body" for spot in ours[: shared + 1]):
        return _earlier_iteration(source)
    return Answer(Ran.NO, f"{source!r} comes later")


def run_side_by_side(workflow: WorkflowDefinition, one: str, other: str) -> bool:
    """Return whether two steps are in different arms of one fork, so that both of them may run."""
    ours, theirs = workflow.trails[one], workflow.trails[other]
    shared = _shared(ours, theirs)
    if shared in (len(ours), len(theirs)) or ours[shared].block is theirs[shared].block:
        return False
    return ours[shared].block.kind == "arm"


def has_run_in_the_end(workflow: WorkflowDefinition, source: str) -> Answer:
    """Return whether the step `source` has run by the time the workflow reaches its end."""
    return _certain(workflow.trails[source][1:], source)


def _shared(ours: tuple[Spot, ...], theirs: tuple[Spot, ...]) -> int:
    count = 0
    for left, right in zip(ours, theirs, strict=False):
        if left.block is not right.block or left.index != right.index:
            break
        count += 1
    return count


def _itself(source: str, *, looping: bool) -> Answer:
    return _earlier_iteration(source) if looping else Answer(Ran.NO, "that is the step itself")


def _earlier_iteration(source: str) -> Answer:
    return Answer(Ran.MAYBE, f"{source!r} has not run in the first iteration of the loop")


def _inside(theirs: tuple[Spot, ...], source: str) -> Answer:
    """Return whether the source has run when it is read by the step that contains it.

    A loop does this: it reads the output of its body to decide whether to continue.
    """
    if theirs[0].block.kind == "body":
        return _certain(theirs[1:], source)
    return Answer(Ran.NO, f"{source!r} runs inside it")


def _apart(ours: tuple[Spot, ...], theirs: tuple[Spot, ...], source: str, *, looping: bool) -> Answer:
    """Return whether the source has run before the reader, if they are in different cases or arms of the same step."""
    if ours[0].block.is_case:
        why = f"{source!r} runs in another case of {_name(ours[0].holder)!r}"
        return Answer(Ran.MAYBE if looping else Ran.NO, why)
    for spot in ours:
        if _waits_for(spot.block.steps[: spot.index], theirs[0]):
            return _certain(theirs[1:], source)
    begins_with_its_arm = all(spot.index == 0 for spot in ours)
    why = f"{source!r} runs side by side with it, in another arm of {_name(ours[0].holder)!r}"
    return Answer(Ran.NO if begins_with_its_arm and not looping else Ran.MAYBE, why)


def _before(ours: Spot, theirs: tuple[Spot, ...], source: str) -> Answer:
    for above, spot in pairwise(theirs):
        if spot.block.kind == "arm":
            end = ours.index if above.block is ours.block else None
            if not _waits_for(above.block.steps[above.index + 1 : end], spot):
                why = (
                    f"no JOIN before it waits for {source!r}, which runs in an arm of {_name(spot.holder)!r}"
                )
                return Answer(Ran.MAYBE, why)
    return _certain(theirs[1:], source)


def _certain(inner: tuple[Spot, ...], source: str) -> Answer:
    """Return whether the source is certain to have run once the step that contains it has ended."""
    for spot in inner:
        if spot.block.is_case and not _is_only_continuation(spot):
            case = "the default case" if spot.block.kind == "default" else f"case {spot.block.name!r}"
            return Answer(Ran.MAYBE, f"{source!r} runs only in {case} of {_name(spot.holder)!r}")
    return YES


def _is_only_continuation(spot: Spot) -> bool:
    """Return whether every other case ends the workflow, so that later steps run only after this case."""
    blocks = spot.holder.blocks if spot.holder is not None else ()
    others = [block for block in blocks if block is not spot.block]
    has_default = any(block.kind == "default" for block in blocks)
    return has_default and all(any(step.type == TERMINATE for step in block.steps) for block in others)


def _waits_for(steps: tuple[Step, ...], spot: Spot) -> bool:
    """Return whether a JOIN among `steps` waits for the step at this position, or for a later step in its arm."""
    behind = {inner.reference for step in spot.block.steps[spot.index :] for inner in step.walk()}
    return any(step.type in JOINS and behind.intersection(step.join_on) for step in steps)


def _name(step: Step | None) -> str:
    return "" if step is None else step.reference
