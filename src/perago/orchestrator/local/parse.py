"""Parses workflow JSON in Conductor's own form, or refuses it as a whole.

Everything that the embedded orchestrator cannot run is found here, before anything runs, and named by its reference:
all in one error.  Fields that only concern people or listeners are ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.definition import SIMPLE, Step, WorkflowDefinition
from perago.orchestrator.local.step_types import STEP_TYPES
from perago.workflow.model.expressions import expressions_in, source_of

Json = Mapping[str, Any]
_WORKFLOW_POLICIES = ("TIME_OUT_WF", "ALERT_ONLY")


@lru_cache(maxsize=256)
def parse_workflow(text: str) -> WorkflowDefinition:
    """Parse a JSON text.  Raises `OrchestratorRefused` listing everything that is not supported."""
    return read_workflow(json.loads(text))


def read_workflow(source: Json) -> WorkflowDefinition:
    """Parse a JSON object.  Raises `OrchestratorRefused` listing everything that is not supported."""
    name = source.get("name")
    if not isinstance(name, str) or not name:
        raise OrchestratorRefused("a workflow definition needs a name")
    unsupported = list(_unsupported_steps(source.get("tasks") or ()))
    unsupported.extend(_unsupported_fields(source))
    if unsupported:
        listed = "; ".join(unsupported)
        raise OrchestratorRefused(
            f"workflow {name} cannot run on the embedded orchestrator: {listed} "
            f"(it runs {', '.join(STEP_TYPES)}; a Conductor server runs the rest)"
        )
    definition = _build(name, source)
    wrong = list(_diagnostics(definition))
    if wrong:
        raise OrchestratorRefused(f"workflow {name} is not valid: {'; '.join(wrong)}")
    return definition


def _build(name: str, source: Json) -> WorkflowDefinition:
    try:
        return WorkflowDefinition(
            name=name,
            version=int(source.get("version") or 1),
            steps=_steps(source["tasks"]),
            output_parameters=source.get("outputParameters") or {},
            input_template=source.get("inputTemplate") or {},
            variables=source.get("variables") or {},
            timeout_seconds=int(source.get("timeoutSeconds") or 0),
            timeout_policy=source.get("timeoutPolicy") or "ALERT_ONLY",
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OrchestratorRefused(f"workflow {name} is not valid: {type(error).__name__}: {error}") from error


def _steps(sources: Sequence[Json]) -> tuple[Step, ...]:
    return tuple(_step(source) for source in sources)


def _step(source: Json) -> Step:
    retries = source.get("retryCount")
    return Step(
        reference=source["taskReferenceName"],
        name=source["name"],
        type=source.get("type") or SIMPLE,
        input_parameters=source.get("inputParameters") or {},
        optional=bool(source.get("optional")),
        retry_count=None if retries is None else int(retries),
        start_delay=int(source.get("startDelay") or 0),
        evaluator=source.get("evaluatorType") or "",
        expression=source.get("expression") or "",
        cases={key: _steps(block) for key, block in (source.get("decisionCases") or {}).items()},
        default_case=_steps(source.get("defaultCase") or ()),
        branches=tuple(_steps(block) for block in source.get("forkTasks") or ()),
        join_on=tuple(source.get("joinOn") or ()),
        loop_condition=source.get("loopCondition") or "",
        loop_over=_steps(source.get("loopOver") or ()),
    )


def _unsupported_steps(sources: Sequence[Json], loop: str | None = None) -> Iterator[str]:
    for source in sources:
        label = f"{source.get('taskReferenceName')!r}"
        kind = source.get("type") or SIMPLE
        row = STEP_TYPES.get(kind)
        if row is None:
            yield f"task {label} has the type {kind}"
        loops = row is not None and row.loops
        if loops and loop:
            yield f"task {label} is a {kind} inside the {kind} {loop}"
        yield from (f"task {label} {what}" for what in _unsupported_settings(source))
        if row is not None:
            yield from (f"task {label} {what}" for what in row.unsupported(source))
        inside = label if loops else loop
        for block in _blocks(source):
            yield from _unsupported_steps(block, inside)


def _unsupported_settings(source: Json) -> Iterator[str]:
    if source.get("permissive"):
        yield "is permissive"
    if source.get("taskDefinition"):
        yield "brings its own taskDefinition (register it instead)"
    if source.get("items") or {"_items", "keepLastN"} & set(source.get("inputParameters") or {}):
        yield "uses items or keepLastN"


def _unsupported_fields(source: Json) -> Iterator[str]:
    if source.get("failureWorkflow"):
        yield f"failureWorkflow {source['failureWorkflow']!r}"
    if source.get("schemaVersion", 2) != 2:
        yield f"schemaVersion {source['schemaVersion']!r}"
    if source.get("timeoutPolicy") not in (None, *_WORKFLOW_POLICIES):
        yield f"timeoutPolicy {source['timeoutPolicy']!r}"


def _blocks(source: Json) -> Iterator[Sequence[Json]]:
    yield from (source.get("decisionCases") or {}).values()
    yield source.get("defaultCase") or ()
    yield from source.get("forkTasks") or ()
    yield source.get("loopOver") or ()


def _diagnostics(definition: WorkflowDefinition) -> Iterator[str]:
    """Yield errors that Conductor refuses too, or would only find while the workflow runs."""
    if not definition.steps:
        yield "it has no tasks"
    known = Counter(step.reference for step in definition.walk())
    for reference, times in known.items():
        if times > 1:
            yield f"the reference {reference!r} is used {times} times"
    for step in definition.walk():
        label = f"task {step.reference!r}"
        yield from (f"{label} {what}" for what in STEP_TYPES[step.type].diagnostics(definition, step))
        for unknown in sorted(set(step.join_on) - set(known)):
            yield f"{label} joins on {unknown!r}, which is not a task of this workflow"
        # Like Conductor, check for unknown tasks only in top-level steps; elsewhere they resolve to null.
        names = known if step in definition.steps else None
        yield from (f"{label}: {what}" for what in _wrong_paths(step.input_parameters, names))
    yield from (f"outputParameters: {what}" for what in _wrong_paths(definition.output_parameters))


def _wrong_paths(value: Any, known: Mapping[str, int] | None = None) -> Iterator[str]:
    for expression in expressions_in(value):
        try:
            source = source_of(expression)
        except ValueError as error:
            yield str(error)
            continue
        if source is not None and known is not None and source not in known:
            yield f"${{{expression}}} reads from {source!r}, which is not a task of this workflow"
