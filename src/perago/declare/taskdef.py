"""Builds the TaskDef of a task, which is its definition in Conductor.

The rule: every field in the controls is written, even if it has its default, so that a limit removed from a
declaration is also removed from the server.  Schemas come from the models.  `workspace` has the shape that is passed
between tasks, with `ref_type` or `refType` but never both.  An output must have one of the two.  An input may contain
a list of workspaces to join, whereas an output contains exactly one workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from perago.declare.task import TaskDefinition
from perago.errors import TaskDefinitionError

MISSING: Any = None
"""Placeholder for a field that exists on only one of the two sides being compared."""

_NAME = {"type": "string", "minLength": 1}
_WORKSPACE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "repository": _NAME,
        "branch": _NAME,
        "ref_type": {"const": "commit"},
        "refType": {"const": "commit"},
        "ref": _NAME,
    },
    "required": ["repository", "branch", "ref"],
    "additionalProperties": False,
}
_GIVEN: dict[str, Any] = _WORKSPACE | {"not": {"required": ["ref_type", "refType"]}}
_WORKSPACES = {
    "input": {"anyOf": [_GIVEN, {"type": "array", "items": _GIVEN, "minItems": 1}]},
    "output": _WORKSPACE | {"oneOf": [{"required": ["ref_type"]}, {"required": ["refType"]}]},
}
_OPENED = _GIVEN | {"required": ["repository", "branch"]}
"""The workspace that a run starts from: without a ref, it is the branch's head."""
_MAPS = ("properties", "patternProperties", "$defs")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "contains", "not")


def build_taskdef(task: TaskDefinition) -> dict[str, Any]:
    """Return the TaskDef in the form that Conductor accepts."""
    inputs, outputs = _schema(task, "input", "params"), _schema(task, "output", "result")
    return {
        "name": task.name,
        "description": task.description or "",
        "ownerEmail": task.owner_email,
        **_control_fields(task),
        "inputKeys": list(inputs["data"]["properties"]),
        "outputKeys": list(outputs["data"]["properties"]),
        "inputSchema": inputs,
        "outputSchema": outputs,
    }


def write_taskdef(task: TaskDefinition, output: Path) -> Path:
    """Write a task's TaskDef to a JSON file, as perago 0.6.1 does."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(build_taskdef(task), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return output


def taskdef_warnings(task: TaskDefinition) -> list[str]:
    """Return warnings about settings that are valid but probably unintended."""
    return [f"task {task.name!r}: {text}" for text in _budget_warnings(task)]


def declaration_warnings(task: TaskDefinition) -> list[str]:
    """Return the warnings of `taskdef_warnings`, plus those that are meant only for task authors.

    Commands for operators do not show the latter.
    """
    return [*(f"task {task.name!r}: {text}" for text in _timeout_warnings(task)), *taskdef_warnings(task)]


def _timeout_warnings(task: TaskDefinition) -> Iterator[str]:
    timeout = task.controls.timeout
    for_ever = "a body that hangs keeps its lease, and its slot, for ever"
    if not timeout.seconds and not timeout.total_seconds:
        yield f"controls.timeout has no total time-out: {for_ever}; say TimeoutPolicy(seconds=…)"
    elif timeout.policy == "ALERT_ONLY":
        yield f"controls.timeout.policy = 'ALERT_ONLY' ends nothing: {for_ever}; say 'RETRY' or 'TIME_OUT_WF'"


def _budget_warnings(task: TaskDefinition) -> Iterator[str]:
    budget = task.controls.publish_budget
    if budget is None or task.workspace is None:
        return
    response, needed = task.controls.response_timeout_seconds, budget.response_timeout_seconds
    if task.workspace.read_only:
        yield "controls.publish_budget is not used: read_only=True publishes nothing"
    elif response < needed:
        yield (
            f"controls.timeout.response_seconds = {response} is shorter than the publish budget, "
            f"which needs {needed}; Conductor may take the task away while it publishes"
        )


def difference(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return (path, Perago's value, server's value) for every field that Perago sets and that differs on the server."""
    return list(_find_differences("", wanted, actual, exact=False))


def merge_taskdef(wanted: Mapping[str, Any], actual: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the TaskDef to send: Perago's fields, plus the server's values for all other fields."""
    return {**(actual or {}), **wanted}


def _control_fields(task: TaskDefinition) -> dict[str, Any]:
    retry, timeout, limits = task.controls.retry, task.controls.timeout, task.controls.limits
    return {
        "retryCount": retry.count,
        "retryLogic": retry.logic,
        "retryDelaySeconds": retry.delay_seconds,
        "maxRetryDelaySeconds": retry.max_delay_seconds,
        "backoffJitterMs": retry.jitter_ms,
        "timeoutPolicy": timeout.policy,
        "timeoutSeconds": timeout.seconds,
        "responseTimeoutSeconds": timeout.response_seconds,
        "pollTimeoutSeconds": timeout.poll_seconds,
        "totalTimeoutSeconds": timeout.total_seconds,
        # Conductor expresses "no limit" as 0, with a window of one second.
        "concurrentExecLimit": limits.concurrent_exec_limit or 0,
        "rateLimitPerFrequency": limits.rate_limit_per_frequency or 0,
        "rateLimitFrequencyInSeconds": (
            1 if limits.rate_limit_frequency_in_seconds is None else limits.rate_limit_frequency_in_seconds
        ),
    }


def _schema(task: TaskDefinition, side: str, key: str) -> dict[str, Any]:
    model = _model_schema(task, task.params_model if key == "params" else task.result_model, key)
    definitions = model.pop("$defs", {})
    properties = _properties(task, side, key, model)
    data: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    if definitions:
        data["$defs"] = definitions
    return {"name": f"{task.name}.{side}", "version": 1, "type": "JSON", "data": data}


def _properties(task: TaskDefinition, side: str, key: str, model: Mapping[str, Any]) -> dict[str, Any]:
    workspace = {"workspace": _WORKSPACES[side]} if task.has_workspace else {}
    match task.run_step, side:
        case "open", "input":
            return {"workspace": _OPENED, key: model}
        case "open", "output":
            return workspace | {"origin": _WORKSPACES[side]}
        case "publish", "output":
            return workspace
        case _:
            return workspace | {key: model}


def _model_schema(task: TaskDefinition, model: type[BaseModel], key: str) -> dict[str, Any]:
    try:
        if key == "result":
            by_alias = bool(model.model_config.get("serialize_by_alias", False))
            return model.model_json_schema(mode="serialization", by_alias=by_alias)
        schema = model.model_json_schema(mode="validation")
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise TaskDefinitionError(
            f"{task.place}: {key}: {model.__name__} has no JSON form: {error.message}"
        ) from None
    _close_objects(schema, strict=task.strict_params)
    return schema


def _close_objects(schema: Any, *, strict: bool) -> None:
    """Set `additionalProperties` at every level according to `strict_params`, overriding the models' own config."""
    if not isinstance(schema, dict):
        return
    if "properties" in schema:
        if strict:
            schema["additionalProperties"] = False
        else:
            schema.pop("additionalProperties", None)
    for name in _MAPS:
        for inner in schema.get(name, {}).values():
            _close_objects(inner, strict=strict)
    for name in _LISTS:
        for inner in schema.get(name, []):
            _close_objects(inner, strict=strict)
    for name in _SINGLE:
        _close_objects(schema.get(name), strict=strict)


def _find_differences(path: str, wanted: Any, actual: Any, *, exact: bool) -> Iterator[tuple[str, Any, Any]]:
    if not (isinstance(wanted, Mapping) and isinstance(actual, Mapping)):
        if wanted != actual:
            yield path, wanted, actual
        return
    # A schema's `data` is entirely Perago's, so it must match exactly.  Everywhere else the server may add fields.
    names = [*wanted, *(name for name in actual if exact and name not in wanted)]
    for name in names:
        inner = f"{path}.{name}" if path else name
        yield from _find_differences(
            inner, wanted.get(name, MISSING), actual.get(name, MISSING), exact=exact or name == "data"
        )
