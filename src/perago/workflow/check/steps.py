"""Reads a workflow's JSON into a tree of steps, each with its path from the top.

Unknown parts are never refused.  A step of an unknown type has an unknown output; only parts that Conductor itself cannot
read (a step without a name, steps that are not in a list) are errors, and are left out.

    in the JSON                    a block of    its steps run
    decisionCases, defaultCase     cases         in at most one of them
    forkTasks                      arms          side by side
    loopOver                       body          once or more
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.workflow.check.diagnostics import Finding, error
from perago.workflow.check.step_types import BRING_NO_STEPS

DEFAULT_CASE = "defaultCase"
SIMPLE = "SIMPLE"
JOIN = "JOIN"
JOINS = (JOIN, "EXCLUSIVE_JOIN")
TERMINATE = "TERMINATE"


@dataclass(frozen=True, slots=True)
class Block:
    """A list of steps."""

    kind: Literal["top", "case", "arm", "body"]
    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of the workflow's tasks; `given_otherwise` if its input does not come from inputParameters alone."""

    reference: str
    task: str
    type: str
    inputs: Mapping[str, Any]
    blocks: tuple[Block, ...] = ()
    join_on: tuple[str, ...] = ()
    optional: bool = False
    given_otherwise: bool = False

    def walk(self) -> Iterator[Step]:
        """Yield this step and every step inside it."""
        yield self
        for block in self.blocks:
            for step in block.steps:
                yield from step.walk()


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of a step in one block, and the step that contains the block."""

    holder: Step | None
    block: Block
    index: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The whole tree; `open_ended` if steps may be added at run time, `has_twins` if two steps share a name."""

    top: Block
    steps: Mapping[str, Step]
    trails: Mapping[str, tuple[Spot, ...]]
    open_ended: bool
    has_twins: bool = False


@dataclass(slots=True)
class _Reading:
    findings: list[Finding] = field(default_factory=list)
    steps: dict[str, Step] = field(default_factory=dict)
    trails: dict[str, tuple[Spot, ...]] = field(default_factory=dict)
    has_twins: bool = False


def read_flow(definition: Mapping[str, Any]) -> tuple[Flow, list[Finding]]:
    """Return the steps of a definition, and findings about unreadable parts."""
    reading = _Reading()
    listed = definition.get("tasks")
    if not isinstance(listed, list) or not listed:
        reading.findings.append(error(None, 'the workflow has no steps: "tasks" must be a list of them'))
    top = Block("top", "", _steps(listed, None, reading))
    _index(top, None, (), reading)
    open_ended = any(step.type not in BRING_NO_STEPS for step in reading.steps.values())
    return Flow(top, reading.steps, reading.trails, open_ended, reading.has_twins), reading.findings


def _steps(listed: Any, holder: str | None, reading: _Reading) -> tuple[Step, ...]:
    if not isinstance(listed, list):
        if listed is not None and holder is not None:
            reading.findings.append(error(holder, f"step {holder!r} holds steps that are not a list"))
        return ()
    found = (_step(source, number, holder, reading) for number, source in enumerate(listed, start=1))
    return tuple(step for step in found if step is not None)


def _step(source: Any, number: int, holder: str | None, reading: _Reading) -> Step | None:
    where = f"step {number}" if holder is None else f"step {number} inside {holder!r}"
    if not isinstance(source, Mapping):
        reading.findings.append(error(None, f"{where} must be an object, not {type(source).__name__}"))
        return None
    reference = source.get("taskReferenceName")
    if not isinstance(reference, str) or not reference:
        named = f" ({source['name']})" if source.get("name") else ""
        reading.findings.append(error(None, f"{where}{named} has no taskReferenceName"))
        return None
    kind = source.get("type") or SIMPLE
    name = source.get("name")
    if kind == SIMPLE and (not isinstance(name, str) or not name):
        reading.findings.append(error(reference, f'step {reference!r} has no "name", which names its task'))
        return None
    inputs = source.get("inputParameters") or {}
    if not isinstance(inputs, Mapping):
        text = f"step {reference!r}: inputParameters must be an object, not {type(inputs).__name__}"
        reading.findings.append(error(reference, text))
        inputs = {}
    return Step(
        reference=reference,
        task=str(name),
        type=str(kind),
        inputs=inputs,
        blocks=tuple(_blocks(source, reference, reading)),
        join_on=_join_on(source.get("joinOn"), reference, reading),
        optional=bool(source.get("optional")),
        given_otherwise=bool(source.get("inputExpression") or source.get("taskDefinition")),
    )


def _join_on(listed: Any, reference: str, reading: _Reading) -> tuple[str, ...]:
    if listed is None or isinstance(listed, list):
        return tuple(map(str, listed or ()))
    text = f'step {reference!r}: "joinOn" must be a list of steps, not {type(listed).__name__}'
    reading.findings.append(error(reference, text))
    return ()


def _blocks(source: Mapping[str, Any], reference: str, reading: _Reading) -> Iterator[Block]:
    cases = source.get("decisionCases")
    for name, listed in (cases if isinstance(cases, Mapping) else {}).items():
        # A case named like the default case is an ordinary case: it runs for that value only.
        called = repr(name) if name == DEFAULT_CASE else str(name)
        yield Block("case", called, _steps(listed, reference, reading))
    if source.get(DEFAULT_CASE):
        yield Block("case", DEFAULT_CASE, _steps(source[DEFAULT_CASE], reference, reading))
    arms = source.get("forkTasks")
    for number, listed in enumerate(arms if isinstance(arms, list) else []):
        yield Block("arm", str(number), _steps(listed, reference, reading))
    if source.get("loopOver"):
        yield Block("body", "", _steps(source["loopOver"], reference, reading))


def _index(block: Block, holder: Step | None, above: tuple[Spot, ...], reading: _Reading) -> None:
    for index, step in enumerate(block.steps):
        trail = (*above, Spot(holder, block, index))
        if step.reference in reading.steps:
            text = (
                f"two steps are called {step.reference!r}: a taskReferenceName must be unique in its workflow; "
                "rename one of them"
            )
            reading.has_twins = True
            reading.findings.append(error(step.reference, text))
        else:
            reading.steps[step.reference], reading.trails[step.reference] = step, trail
        for inner in step.blocks:
            _index(inner, step, trail, reading)
