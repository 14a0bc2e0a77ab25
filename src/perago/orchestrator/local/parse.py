"""Parses workflow JSON in Conductor's own format, or rejects it as a whole.

Everything that the embedded orchestrator cannot run is found here, before anything runs, and is listed in a single
error, with the references of the steps.  Fields that matter only to people or listeners are ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.js_parser import UnsupportedScript, parse_script
from perago.orchestrator.local.step_handlers import HANDLERS
from perago.workflow.model import definition as model
from perago.workflow.model.definition import ITERATION_MARK, Json, Step, WorkflowDefinition
from perago.workflow.model.expressions import expressions_in, source_of
from perago.workflow.model.step_types import DO_WHILE, FORK_JOIN, JOIN, SWITCH

_SCRIPT_EVALUATORS = ("javascript", "graaljs")
_WORKFLOW_POLICIES = ("TIME_OUT_WF", "ALERT_ONLY")


@lru_cache(maxsize=256)
def parse_workflow(text: str) -> WorkflowDefinition:
    """Parse a workflow definition from JSON.  Raises `OrchestratorRefused` listing everything that is not supported."""
    return read_workflow(json.loads(text))


def read_workflow(source: Json) -> WorkflowDefinition:
    """Parse a JSON object.  Raises `OrchestratorRefused` listing everything that is not supported."""
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise OrchestratorRefused("a workflow definition needs a name")
    definition = model.read_workflow(source)
    unsupported = [*_unsupported_steps(definition.top.steps), *_unsupported_fields(source)]
    if unsupported:
        listed = "; ".join(unsupported)
        raise OrchestratorRefused(
            f"workflow {name} cannot run on the embedded orchestrator: {listed} "
            f"(it runs {', '.join(HANDLERS)}; a Conductor server runs the rest)"
        )
    try:
        _read_fields(definition)
    except (KeyError, TypeError, ValueError) as error:
        raise OrchestratorRefused(f"workflow {name} is not valid: {type(error).__name__}: {error}") from error
    wrong = [one.message for one in definition.problems] or list(_diagnostics(definition))
    if wrong:
        raise OrchestratorRefused(f"workflow {name} is not valid: {'; '.join(wrong)}")
    return definition


def _read_fields(definition: WorkflowDefinition) -> None:
    """Read the fields that the model parses lazily, so that an invalid one is rejected before anything runs."""
    attrgetter("version", "timeout_seconds")(definition)
    iter(definition.source["tasks"])
    for step in definition.walk():
        itemgetter("taskReferenceName", "name")(step.source)
        attrgetter("retry_count", "start_delay")(step)


def _unsupported_steps(steps: Sequence[Step], loop: str | None = None) -> Iterator[str]:
    for step in steps:
        label = f"{step.source.get('taskReferenceName')!r}"
        if step.type not in HANDLERS:
            yield f"task {label} has the type {step.type}"
        loops = step.shape == "loop"
        if loops and loop:
            yield f"task {label} is a {step.type} inside the {step.type} {loop}"
        yield from (f"task {label} {what}" for what in _unsupported_settings(step))
        yield from (f"task {label} {what}" for what in _UNSUPPORTED.get(step.type, _nothing)(step))
        for block in step.blocks:
            yield from _unsupported_steps(block.steps, label if loops else loop)


def _unsupported_settings(step: Step) -> Iterator[str]:
    if step.source.get("permissive"):
        yield "is permissive"
    if step.source.get("taskDefinition"):
        yield "brings its own taskDefinition (register it instead)"
    if step.source.get("items") or {"_items", "keepLastN"} & set(step.inputs):
        yield "uses items or keepLastN"


def _unsupported_switch(step: Step) -> Iterator[str]:
    evaluator = step.source.get("evaluatorType")
    if evaluator in _SCRIPT_EVALUATORS:
        yield from _unsupported_script("expression", step)
    elif evaluator != "value-param":
        yield f"has the evaluatorType {evaluator!r}"


def _unsupported_loop(step: Step) -> Iterator[str]:
    yield from _unsupported_script("loopCondition", step)


def _unsupported_script(field: str, step: Step) -> Iterator[str]:
    try:
        parse_script(step.source.get(field) or "")
    except UnsupportedScript as error:
        yield f"has a {field} that is not supported ({error})"


def _unsupported_fields(source: Json) -> Iterator[str]:
    if source.get("failureWorkflow"):
        yield f"failureWorkflow {source['failureWorkflow']!r}"
    if source.get("schemaVersion", 2) != 2:
        yield f"schemaVersion {source['schemaVersion']!r}"
    if source.get("timeoutPolicy") not in (None, *_WORKFLOW_POLICIES):
        yield f"timeoutPolicy {source['timeoutPolicy']!r}"


def _diagnostics(definition: WorkflowDefinition) -> Iterator[str]:
    """Yield the errors that Conductor would also report, or would discover only while the workflow is running."""
    if not definition.top.steps:
        yield "it has no tasks"
    known = Counter(step.reference for step in definition.walk())
    for reference, times in known.items():
        if times > 1:
            yield f"the reference {reference!r} is used {times} times"
    for step in definition.walk():
        label = f"task {step.reference!r}"
        yield from (f"{label} {what}" for what in _DIAGNOSTICS.get(step.type, _nothing)(definition, step))
        for unknown in sorted(set(step.join_on) - set(known)):
            yield f"{label} joins on {unknown!r}, which is not a task of this workflow"
        # Like Conductor, check for unknown tasks only in top-level steps; elsewhere they resolve to null.
        names = known if step in definition.top.steps else None
        yield from (f"{label}: {what}" for what in _wrong_paths(step.inputs, names))
    yield from (f"outputParameters: {what}" for what in _wrong_paths(definition.output_parameters))


def _switch_diagnostics(_definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    if not step.blocks_of("case"):
        yield "has no decisionCases"
    if not step.expression:
        yield "has no expression"


def _fork_diagnostics(definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    following = definition.next_after(step.reference)
    if following is None or following.type != JOIN:
        yield "is not followed by a JOIN"
    arms = step.blocks_of("arm")
    if not arms or not all(arm.steps for arm in arms):
        yield "needs at least one task in each of its forkTasks"


def _loop_diagnostics(_definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    if not step.body:
        yield "has nothing in loopOver"
    if any(ITERATION_MARK in inner.reference for inner in step.walk()):
        yield f"holds a reference with {ITERATION_MARK!r}, which marks iterations"


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


# Checks by step type: forms that the embedded orchestrator cannot run, and errors on any orchestrator.
_UNSUPPORTED: Mapping[str, Callable[[Step], Iterator[str]]] = {
    SWITCH: _unsupported_switch,
    DO_WHILE: _unsupported_loop,
}
_DIAGNOSTICS: Mapping[str, Callable[[WorkflowDefinition, Step], Iterator[str]]] = {
    SWITCH: _switch_diagnostics,
    FORK_JOIN: _fork_diagnostics,
    DO_WHILE: _loop_diagnostics,
}


def _wrong_paths(value: Any, known: Mapping[str, int] | None = None) -> Iterator[str]:
    for expression in expressions_in(value):
        try:
            source = source_of(expression)
        except ValueError as error:
            yield str(error)
            continue
        if source is not None and known is not None and source not in known:
            yield f"${{{expression}}} reads from {source!r}, which is not a task of this workflow"
