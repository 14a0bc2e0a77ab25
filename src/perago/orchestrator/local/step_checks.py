"""Checks of a step by its type: forms that the embedded orchestrator cannot run, and errors on any orchestrator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perago.orchestrator.local.definition import JOIN, LOOP_MARK, Step, WorkflowDefinition
from perago.orchestrator.local.js_parser import UnsupportedScript, parse_script

Json = Mapping[str, Any]
SCRIPT_EVALUATORS = ("javascript", "graaljs")


def unsupported_switch(source: Json) -> Iterator[str]:
    """Yield an unknown evaluator, or an unsupported script."""
    evaluator = source.get("evaluatorType")
    if evaluator in SCRIPT_EVALUATORS:
        yield from _unsupported_script("expression", source)
    elif evaluator != "value-param":
        yield f"has the evaluatorType {evaluator!r}"


def unsupported_loop(source: Json) -> Iterator[str]:
    """Yield an unsupported condition."""
    yield from _unsupported_script("loopCondition", source)


def switch_diagnostics(_definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    """Check that a SWITCH has cases and an expression."""
    if not step.cases:
        yield "has no decisionCases"
    if not step.expression:
        yield "has no expression"


def fork_diagnostics(definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    """Check that a FORK_JOIN has non-empty branches and a JOIN."""
    following = definition.next_after(step.reference)
    if following is None or following.type != JOIN:
        yield "is not followed by a JOIN"
    if not step.branches or not all(step.branches):
        yield "needs at least one task in each of its forkTasks"


def loop_diagnostics(_definition: WorkflowDefinition, step: Step) -> Iterator[str]:
    """Check that a DO_WHILE has a body, and that its references can take an iteration suffix."""
    if not step.loop_over:
        yield "has nothing in loopOver"
    if any(LOOP_MARK in inner.reference for inner in step.walk()):
        yield f"holds a reference with {LOOP_MARK!r}, which marks iterations"


def _unsupported_script(field: str, source: Json) -> Iterator[str]:
    try:
        parse_script(source.get(field) or "")
    except UnsupportedScript as error:
        yield f"has a {field} that is not supported ({error})"
