"""Paths of a workspace that name params in braces: whether the params fit them, and filling them for an attempt.

`protocol/partitions` has the rules for values and their escaping.  A template in `reads` or `writes` must name a field of
the task's params model, of a type whose values have one obvious form in a path.  If a spec has such templates, names in
braces in the paths of its checks are templates, too; in all other checks, a brace is an ordinary character.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from perago.declare.checks import Check, TemplatedCheck, looks_outside
from perago.declare.diagnostics import Diagnostic
from perago.errors import TaskInputError
from perago.protocol.partitions import (
    CannotFill,
    conservative,
    fill,
    filling,
    nearest_filling,
    template_names,
    textual,
)
from perago.protocol.suggestions import did_you_mean, listed
from perago.protocol.view import View

if TYPE_CHECKING:
    from perago.declare.workspace import WorkspaceSpec


def template_diagnostics(spec: WorkspaceSpec, model: type[BaseModel]) -> Iterator[Diagnostic]:
    """Yield a diagnostic for every template that the params model cannot fill."""
    if not spec.names:
        return
    for where, path in _templates(spec):
        for name in template_names([path]):
            problem = _name_problem(name, model)
            if problem is not None:
                yield Diagnostic(f"workspace.{where}", problem, path)


def view_of(spec: WorkspaceSpec) -> View:
    """Return the view of a spec.  Until templates are filled, each is represented by the folders above it."""
    if not spec.names:
        return View(spec.object_prefix, spec.reads, spec.writes)
    return View(spec.object_prefix, conservative(spec.reads), conservative(spec.writes))


def is_certainly_outside(check: object, spec: WorkspaceSpec) -> bool:
    """Return whether a check looks outside what the task sees, however the templates are filled.

    The same template in a check and in the spec stands for the same path; two different ones stand for two paths.
    """
    if not spec.names or not isinstance(check, TemplatedCheck):
        return looks_outside(check, view_of(spec))

    def nearest(paths: tuple[str, ...] | None, path: str) -> tuple[str, ...] | None:
        return None if paths is None else tuple(nearest_filling(one, path) for one in paths)

    return any(
        check.is_outside(
            textual(path), View(spec.object_prefix, nearest(spec.reads, path), nearest(spec.writes, path))
        )
        for path in check.paths
    )


def param_texts(spec: WorkspaceSpec, params: BaseModel) -> Mapping[str, str]:
    """Return the texts with which params fill a spec's templates.

    Raises `TaskInputError`, naming each param and never its value, if one cannot fill a path.
    """
    texts: dict[str, str] = {}
    problems = []
    for name, path in _first_uses(spec, type(params)).items():
        try:
            texts[name] = filling(getattr(params, name))
        except CannotFill as error:
            problems.append(cannot_fill((name,), path, f"it {error}"))
    if problems:
        raise TaskInputError("; ".join(problems))
    return texts


def cannot_fill(names: tuple[str, ...], path: str, rule: str) -> str:
    """Return the message for params that cannot fill a path."""
    named = " and ".join(f"params.{name}" for name in names)
    return f"{named} cannot fill {path!r}: {rule}; send another value"


def fill_check(check: Check, texts: Mapping[str, str]) -> Check:
    """Return the check with the names in its paths filled.  Callables get the params themselves, and stay as they are."""
    return check.filled(lambda path: fill(path, texts)) if isinstance(check, TemplatedCheck) else check


def _templates(spec: WorkspaceSpec) -> Iterator[tuple[str, str]]:
    """Yield every path that may contain templates, with its place in the spec."""
    for field, paths in (("reads", spec.reads), ("writes", spec.writes)):
        for number, path in enumerate(paths or ()):
            yield f"{field}[{number}]", path
    for field, checks in (("pre", spec.pre), ("post", spec.post)):
        for number, check in enumerate(checks):
            for path in check.paths if isinstance(check, TemplatedCheck) else ():
                yield f"{field}[{number}]", path


def _first_uses(spec: WorkspaceSpec, model: type[BaseModel]) -> dict[str, str]:
    """Return the names of the params that fill the spec, each with the first path that it fills."""
    uses: dict[str, str] = {}
    for _, path in _templates(spec):
        for name in template_names([path]):
            if name in model.model_fields:
                uses.setdefault(name, path)
    return uses


def _name_problem(name: str, model: type[BaseModel]) -> str | None:
    fields = model.model_fields
    if name not in fields:
        has = f"which has {listed(fields)}{did_you_mean(name, fields)}"
        return f"{{{name}}} is not a param of {model.__name__}, {has}"
    if not model.__pydantic_complete__:
        return (
            None  # it refers to a class defined later in the module; a value that does not fit is wrong input
        )
    annotation = fields[name].annotation
    if not _fills(annotation):
        shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        rule = "must be a str, int, date, or an enum of str or int, to be filled into a path"
        return f"param {name!r} of {model.__name__} {rule}, not {shown}"
    if fields[name].default_factory is not None:
        rule = "must not have a default_factory: a retry could fill another path"
        return f"param {name!r} of {model.__name__} {rule}"
    return None


def _fills(annotation: Any) -> bool:
    if annotation in (str, int, date):
        return True
    if get_origin(annotation) is Literal:
        values = [value.value if isinstance(value, Enum) else value for value in get_args(annotation)]
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        values = [member.value for member in annotation]
    else:
        return False
    return all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
