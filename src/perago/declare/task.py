"""The `@task` decorator, which declares a function as a task and builds its `TaskDefinition`.

The rule: every definition that exists is valid.  The decorated function is the author's function, unchanged except
for `__perago_task__`, so a plain unit test can call it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Never, TypeVar

from pydantic import BaseModel

from perago.declare import payload
from perago.declare.checks import label, takes_workspace
from perago.declare.controls import TaskControls
from perago.declare.diagnostics import Diagnostic, SourceLocation, calling_place, report
from perago.declare.signature import METRICS_ARE_GONE, Kind, NotATask, TaskSignature, read_signature
from perago.declare.spark_controls import SparkControls
from perago.declare.templates import template_diagnostics
from perago.declare.workspace import WorkspaceSpec
from perago.protocol.paths import has_backslash, has_dot_part, leads_out
from perago.protocol.suggestions import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])

OWNER_DEFAULT = "__owner_email__"
"""The name of the module-level variable that contains the default owner of the module's tasks."""

OWNER_SETTING = "PERAGO_OWNER_EMAIL"
"""The environment variable that names the default owner.

It is read here and not from the settings: a declaration is evaluated on import, before any settings are loaded.
"""

_declared: dict[str, list[TaskDefinition]] = {}


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A declared task: its function and its contract.  `place` is the file and line of the declaration."""

    name: str
    owner_email: str
    fn: Callable[..., Any]
    params_model: type[BaseModel]
    result_model: type[BaseModel]
    place: SourceLocation
    kind: Kind = "plain"
    description: str | None = None
    workspace: WorkspaceSpec | None = None
    controls: TaskControls = field(default_factory=TaskControls)
    version: str = "1"
    strict_params: bool = True
    spark: SparkControls | None = None
    run_step: Literal["", "open", "publish"] = ""
    """Set only for the two built-in tasks that open and publish a run."""

    @property
    def output_model(self) -> type[BaseModel]:
        """The result model, under the name that it had in perago 0.6.1."""
        return self.result_model

    @property
    def has_workspace(self) -> bool:
        """True if the task works on a workspace."""
        return self.workspace is not None

    def parse_params(self, text: str | bytes) -> BaseModel:
        """Parse params from JSON text.  Raises `TaskInputError`, naming the field, if they are invalid."""
        return payload.parse_params(self.params_model, text, strict=self.strict_params)

    def invalid_params(self, text: str | bytes) -> Iterator[tuple[str, str, bool]]:
        """Yield the name of each invalid param, its problem, and whether the model does not declare it."""
        return payload.invalid_params(self.params_model, text, strict=self.strict_params)

    def dump_result(self, value: object) -> dict[str, Any]:
        """Return the body's result as JSON values.  Raises `TaskResultError`, naming the field, if it is invalid."""
        return payload.dump_result(self.result_model, value)

    def parse_result(self, text: str | bytes) -> BaseModel:
        """Parse a recorded result from JSON text.  Raises `TaskResultError`, naming the field, if it is invalid."""
        return payload.parse_result(self.result_model, text)


def task(
    *misplaced: Never,
    name: str | None = None,
    owner_email: str | None = None,
    description: str | None = None,
    workspace: WorkspaceSpec | None = None,
    controls: TaskControls | None = None,
    version: str = "1",
    strict_params: bool = True,
    spark: SparkControls | None = None,
    **unknown: Never,
) -> Callable[[Function], Function]:
    """Declare a function as a task.  Raises one `TaskDefinitionError` that lists every error in the declaration.

    Args:
        name: The name that workflows use for the task, and the name of its TaskDef. The default is the function's name.
            It must not contain a slash or a backslash.
        owner_email: The owner that Conductor requires. By default the module's `__owner_email__`, or else
            `PERAGO_OWNER_EMAIL`.
        description: A description of the task, shown in Conductor.
        workspace: The part of a repository that the task works on. Required if the function takes a workspace, and not
            allowed otherwise.
        controls: Retries, timeouts, limits and the publish budget. The default is 3 retries, 60 seconds apart.
        version: The version of the task's code. With `on_abandoned="reuse"`, an earlier result is reused only if it has
            the same version, so change the version when the code would produce a different result.
        strict_params: True to reject params that the model does not declare, False to ignore them.
        spark: Memory, cores, packages, files and other settings of Spark. Only for Spark tasks.
    """
    if misplaced:
        report([Diagnostic("@task", "takes keyword arguments only: @task(owner_email=…)")], calling_place())
        return lambda fn: fn
    declared = {
        "name": name,
        "owner_email": owner_email,
        "description": description,
        "workspace": workspace,
        "controls": TaskControls() if controls is None else controls,
        "version": version,
        "strict_params": strict_params,
        "spark": spark,
    }

    def decorate(fn: Function) -> Function:
        # The caller's local names: a unit test may define its models inside the test function.
        definition = _define(fn, _with_defaults(fn, declared), unknown, sys._getframe(1).f_locals)
        if definition is not None:
            fn.__perago_task__ = definition  # type: ignore[attr-defined]
            remember_task(definition)
        return fn

    return decorate


_FIELDS = tuple(
    parameter.name
    for parameter in inspect.signature(task).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)


def _with_defaults(fn: Callable[..., Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declaration, filling in the name and the owner if the author left them out."""
    filled = dict(declared)
    if filled["name"] is None:
        filled["name"] = getattr(fn, "__name__", None)
    if filled["owner_email"] is None:
        module = getattr(inspect.unwrap(fn), "__globals__", {})
        filled["owner_email"] = module.get(OWNER_DEFAULT) or os.environ.get(OWNER_SETTING) or None
    return filled


def metrics_are_gone(name: str) -> type:
    """Report the use of a metrics class from perago 0.6.1, and return a dummy class that accepts any arguments."""
    report([Diagnostic(f"perago.{name}", METRICS_ARE_GONE)], calling_place())
    return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


def tasks_declared_in(module: str) -> list[TaskDefinition]:
    """Return the tasks that a module declared, in order."""
    return list(_declared.get(module, []))


def forget_tasks(module: str) -> None:
    """Forget the tasks that a module declared, so that the module can be executed again."""
    _declared.pop(module, None)


def _define(
    fn: Callable[..., Any],
    said: Mapping[str, Any],
    unknown: Mapping[str, object],
    local_names: Mapping[str, Any],
) -> TaskDefinition | None:
    """Return the task's definition, or None if the declaration has errors that are collected instead of raised."""
    place = _place(fn, said["name"])
    diagnostics = [
        *_unknown_field_diagnostics(unknown),
        *_field_diagnostics(said),
        *_name_clashes(fn, said["name"], place),
    ]
    signature = None
    try:
        signature = read_signature(fn, local_names)
        diagnostics += _signature_mismatches(signature, said)
    except NotATask as error:
        diagnostics += error.diagnostics
    if diagnostics or signature is None:
        report(diagnostics, place)
        return None
    return TaskDefinition(
        fn=fn,
        place=place,
        kind=signature.kind,
        params_model=signature.params_model,
        result_model=signature.result_model,
        **said,
    )


def _place(fn: Callable[..., Any], name: object) -> SourceLocation:
    named = name if isinstance(name, str) else getattr(fn, "__name__", None)
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is not None:
        return SourceLocation(code.co_filename, code.co_firstlineno, named)
    return replace(calling_place(), task=named)


def remember_task(definition: TaskDefinition) -> None:
    """Register a task with the module that declares it.  A repeated declaration replaces the earlier one."""
    tasks = _declared.setdefault(definition.fn.__module__, [])
    again = [
        known for known in tasks if known.name == definition.name and _redeclares(known, definition.place)
    ]
    tasks[:] = [known for known in tasks if known not in again] + [definition]


def _redeclares(known: TaskDefinition, place: SourceLocation) -> bool:
    # A module that is reloaded or a notebook cell that is rerun declares the same task again.
    return known.place == place or known.fn.__module__ == "__main__"


def _name_clashes(fn: Callable[..., Any], name: object, place: SourceLocation) -> Iterator[Diagnostic]:
    if "<locals>" in getattr(fn, "__qualname__", ""):
        return  # declared inside a function, perhaps many times; discovery reports duplicate names
    for known in _declared.get(getattr(fn, "__module__", ""), []):
        if known.name == name and not _redeclares(known, place):
            yield Diagnostic(
                "name",
                f"is taken by another task of this module, at line {known.place.line}; give one of them another name",
                name,
            )


def _unknown_field_diagnostics(unknown: Mapping[str, object]) -> Iterator[Diagnostic]:
    for name, value in unknown.items():
        if name == "metrics":
            yield Diagnostic("metrics", METRICS_ARE_GONE)
        else:
            rule = f"is not a field of @task, which has {', '.join(_FIELDS)}{_suggest_field(name)}"
            yield Diagnostic(name, rule, value)


def _suggest_field(name: str) -> str:
    """Return a hint about where an unknown keyword belongs."""
    if name in TaskControls.model_fields:
        return f"; say controls=TaskControls({name}=…)"
    if name in SparkControls.model_fields:
        return f"; say spark=SparkControls({name}=…)"
    if name in WorkspaceSpec.model_fields:
        return f"; say workspace=WorkspaceSpec({name}=…)"
    return did_you_mean(name, _FIELDS)


def _field_diagnostics(said: Mapping[str, Any]) -> Iterator[Diagnostic]:
    yield from _name_diagnostics(said["name"])
    email = said["owner_email"]
    if email is None:
        rule = f"is required: add owner_email='you@example.com', or {OWNER_DEFAULT} = '…' to the module"
        yield Diagnostic("owner_email", f"{rule}, or set {OWNER_SETTING}")
    elif not isinstance(email, str) or not email.strip():
        yield Diagnostic("owner_email", "must be text and not blank", email)
    if said["description"] is not None and not isinstance(said["description"], str):
        yield Diagnostic("description", "must be text", said["description"])
    if said["workspace"] is not None and not isinstance(said["workspace"], WorkspaceSpec):
        yield Diagnostic("workspace", "must be a WorkspaceSpec", said["workspace"])
    if not isinstance(said["controls"], TaskControls):
        yield Diagnostic("controls", "must be a TaskControls", said["controls"])
    elif said["workspace"] is None and said["controls"].publish_budget is not None:
        rule = "needs workspace=WorkspaceSpec(…): a task without a workspace publishes nothing"
        yield Diagnostic("controls.publish_budget", rule)
    if said["spark"] is not None and not isinstance(said["spark"], SparkControls):
        yield Diagnostic("spark", "must be a SparkControls", said["spark"])
    if not isinstance(said["version"], str) or not said["version"].strip():
        yield Diagnostic("version", "must be text and not blank", said["version"])
    if not isinstance(said["strict_params"], bool):
        yield Diagnostic("strict_params", "must be True or False", said["strict_params"])


def _name_diagnostics(name: object) -> Iterator[Diagnostic]:
    if not isinstance(name, str) or not name.strip():
        yield Diagnostic("name", "must be text and not blank", name)
    elif "/" in name or has_backslash(name) or has_dot_part(name) or leads_out(name):
        yield Diagnostic("name", "must not hold path parts ('/', '\\', '.' or '..')", name)
    elif name.strip() != name or not name.isprintable():
        yield Diagnostic("name", "must not begin or end with white space or hold control characters", name)


def _signature_mismatches(signature: TaskSignature, said: Mapping[str, Any]) -> Iterator[Diagnostic]:
    spec = said["workspace"]
    if signature.has_workspace and spec is None:
        yield Diagnostic(
            "workspace", "is required: the function takes a workspace, so say workspace=WorkspaceSpec(…)"
        )
    if not signature.has_workspace and spec is not None:
        yield Diagnostic(
            "workspace", "needs a function that takes one: (workspace: Path, params: Model) -> Model"
        )
    if said["spark"] is not None and signature.kind == "plain":
        yield Diagnostic("spark", "is for Spark tasks: (workspace: SparkWorkspace, params: Model) -> Model")
    if isinstance(spec, WorkspaceSpec) and spec.placement == "direct" and signature.kind == "plain":
        rule = "is for Spark tasks: a function that takes a Path works in a folder"
        yield Diagnostic("workspace.placement", rule, spec.placement)
    if isinstance(spec, WorkspaceSpec):
        yield from template_diagnostics(spec, signature.params_model)
    if isinstance(spec, WorkspaceSpec) and signature.kind == "plain":
        for check in (*spec.pre, *spec.post):
            if getattr(check, "__perago_check__", None) == "table":
                rule = "looks into a table, which only a Spark task can: (workspace: SparkWorkspace, …)"
                yield Diagnostic(f"workspace check {label(check)}", rule)
            elif takes_workspace(check):
                rule = "takes a SparkWorkspace, which only a Spark task has; take the folder: (workdir: Path, params)"
                yield Diagnostic(f"workspace check {label(check)}", rule)
