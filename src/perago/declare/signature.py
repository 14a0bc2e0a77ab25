"""The signature of a task function: its kind of workspace, its params model and its result model.

A task has one of these three signatures:

    (workspace: Path, params: M) -> R              a workspace in a folder
    (workspace: SparkWorkspace, params: M) -> R    a workspace for Spark
    (params: M) -> R                               no workspace

M and R are pydantic models.  Annotations may be strings (`from __future__ import annotations`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, RootModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from perago.declare.diagnostics import Diagnostic
from perago.errors import install_extra

Kind = Literal["plain", "spark"]

SIGNATURES = (
    "(workspace: Path, params: Model) -> Model, (workspace: SparkWorkspace, params: Model) -> Model "
    "or (params: Model) -> Model"
)
METRICS_ARE_GONE = (
    "is not supported: Perago counts attempts itself, and a task body records its own metrics with "
    "OpenTelemetry (opentelemetry.metrics.get_meter)"
)
_WRONG_KINDS = {
    Parameter.POSITIONAL_ONLY: "must not be positional-only",
    Parameter.KEYWORD_ONLY: "must not be keyword-only",
    Parameter.VAR_POSITIONAL: "must not be variadic (*args)",
    Parameter.VAR_KEYWORD: "must not be variadic (**kwargs)",
}


@dataclass(frozen=True, slots=True)
class TaskSignature:
    """A valid task signature: its kind, whether it has a workspace, and its two models."""

    kind: Kind
    has_workspace: bool
    params_model: type[BaseModel]
    result_model: type[BaseModel]


class NotATask(Exception):
    """Raised if a function's signature is not valid for a task.  `diagnostics` lists every problem."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("; ".join(map(str, diagnostics)))
        self.diagnostics = diagnostics


def read_signature(fn: Callable[..., object], local_names: Mapping[str, Any]) -> TaskSignature:
    """Return a function's signature.  Raises `NotATask`, listing every problem, if it is not valid for a task."""
    diagnostics = list(_function_diagnostics(fn)) or list(_parameter_diagnostics(fn))
    if diagnostics:
        raise NotATask(diagnostics)
    names = list(inspect.signature(fn).parameters)
    hints = {name: _hint(fn, name, local_names) for name in [*names, "return"]}
    diagnostics = [
        *_workspace_diagnostics(hints),
        *_model_diagnostics("params", hints),
        *_model_diagnostics("return", hints),
    ]
    if diagnostics:
        raise NotATask(diagnostics)
    workspace = hints.get("workspace", Path)
    return TaskSignature(
        kind="plain" if workspace is Path else "spark",
        has_workspace="workspace" in hints,
        params_model=hints["params"],
        result_model=hints["return"],
    )


def _function_diagnostics(fn: Callable[..., object]) -> Iterator[Diagnostic]:
    if not inspect.isroutine(fn):
        yield Diagnostic("function", "must be a function", fn)
    elif inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        yield Diagnostic(
            "function", "must not be async: Perago runs each attempt in a process of its own", fn
        )
    elif inspect.isgeneratorfunction(fn):
        yield Diagnostic("function", "must not be a generator: it returns its result once", fn)


def _parameter_diagnostics(fn: Callable[..., object]) -> Iterator[Diagnostic]:
    parameters = inspect.signature(fn).parameters
    for name, parameter in parameters.items():
        if name == "metrics":
            yield Diagnostic("parameter 'metrics'", METRICS_ARE_GONE)
        elif parameter.kind in _WRONG_KINDS:
            yield Diagnostic(f"parameter {name!r}", _WRONG_KINDS[parameter.kind])
        elif parameter.default is not Parameter.empty:
            yield Diagnostic(f"parameter {name!r}", "must not have a default", parameter.default)
    names = [name for name in parameters if name != "metrics"]
    usual = all(parameter.kind not in _WRONG_KINDS for parameter in parameters.values())
    if usual and names not in (["params"], ["workspace", "params"]):
        yield Diagnostic("signature", f"must be {SIGNATURES}", f"({', '.join(parameters)})")


def _hint(fn: Callable[..., object], name: str, local_names: Mapping[str, Any]) -> Any:
    """Return the annotation of a parameter, or of the return value, as a type.

    Returns a `Diagnostic` if the annotation is missing or cannot be resolved.
    """
    where = "return value" if name == "return" else f"parameter {name!r}"
    inner = inspect.unwrap(fn)
    annotations = inspect.get_annotations(inner)
    if name not in annotations:
        return Diagnostic(where, f"must be annotated: a task is {SIGNATURES}")
    one = SimpleNamespace(__annotations__={name: annotations[name]})
    global_names = getattr(inner, "__globals__", {})
    try:
        return get_type_hints(one, globalns=global_names, localns=dict(local_names))[name]
    except Exception as error:
        rule = f"its annotation cannot be resolved when the module is imported ({error})"
        return Diagnostic(where, rule, annotations[name])


def _workspace_diagnostics(hints: Mapping[str, Any]) -> Iterator[Diagnostic]:
    if "workspace" not in hints:
        return
    hint = hints["workspace"]
    if isinstance(hint, Diagnostic):
        yield hint
    elif getattr(hint, "__perago_workspace__", None) == "spark":
        if find_spec("pyspark") is None:
            rule = f"needs the extra 'spark': run `{install_extra('spark')}`"
            yield Diagnostic("parameter 'workspace'", rule, hint)
    elif hint is not Path:
        yield Diagnostic("parameter 'workspace'", "must be a pathlib.Path or a perago.SparkWorkspace", hint)


def _model_diagnostics(name: str, hints: Mapping[str, Any]) -> Iterator[Diagnostic]:
    where = "return value" if name == "return" else f"parameter {name!r}"
    model = hints[name]
    if isinstance(model, Diagnostic):
        yield model
        return
    if not isinstance(model, type) or not issubclass(model, BaseModel) or model is BaseModel:
        yield Diagnostic(where, "must be a pydantic model (a subclass of BaseModel)", model)
        return
    for root in (found for found in models_of(model) if issubclass(found, RootModel)):
        yield Diagnostic(
            where, f"must hold no root model: {root.__name__} is one; give it a named field", model
        )
    if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
        return  # it refers to a class defined later in the module; build_taskdef checks again
    try:
        model.model_json_schema(mode="serialization" if name == "return" else "validation")
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        yield Diagnostic(where, f"has no JSON form ({error.message})", model)


def models_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the model and every model nested in it, without duplicates."""
    found: dict[type[BaseModel], None] = {}
    waiting: list[Any] = [model]
    while waiting:
        annotation = waiting.pop()
        waiting.extend(get_args(annotation))
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
            found[annotation] = None
            waiting.extend(field.annotation for field in annotation.model_fields.values())
    return list(found)
