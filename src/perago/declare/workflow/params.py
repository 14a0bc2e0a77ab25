"""A step's params against its task's model, as far as they are known before the workflow runs.

The rule: the model itself validates, in the same mode as in an attempt, and what it says about a value that is not known, or
that holds one, does not count.  What the author's own validators say is a warning, and only if everything is known: they
may look at other fields, or at the machine they run on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from perago.declare.signature import models_of
from perago.declare.task import TaskDefinition
from perago.declare.workflow.values import UNKNOWN, Path, at, has_unknown, without_unknown

_AUTHORS = {"value_error", "assertion_error", "path_not_file", "path_not_directory", "path_exists"}
_CERTAIN = set(get_args(ErrorType)) - _AUTHORS
_NOT_DECLARED = {"extra_forbidden", "unexpected_keyword_argument"}


@dataclass(frozen=True, slots=True)
class Misfit:
    """One thing about params that the model refuses; `kind` says which."""

    path: Path
    kind: str
    rule: str
    certain: bool = True

    @property
    def missing(self) -> bool:
        """Whether the model requires what is not there."""
        return self.kind == "missing"

    @property
    def not_declared(self) -> bool:
        """Whether the model has no such field."""
        return self.kind in _NOT_DECLARED


def misfits(task: TaskDefinition, params: Any) -> list[Misfit]:
    """What the task's model refuses in params, one for each path."""
    if not isinstance(params, Mapping):
        return [] if params is UNKNOWN else [Misfit((), "type", f"must be an object, not {_kind(params)}")]
    whole = not has_unknown(params)
    if not whole and _moves_fields(task.params_model):
        return []
    found: dict[Path, Misfit] = {}
    for details in _refused(task, without_unknown(params)):
        misfit = _misfit(details, params, whole=whole)
        if misfit is not None:
            found.setdefault(misfit.path, misfit)
    return list(found.values())


def takes_null(task: TaskDefinition, params: Any, path: Path) -> bool:
    """Whether the model takes null at a path of params; True where that is not certain."""
    if any(isinstance(part, int) for part in path):
        return True
    changed = _with_null(params, path)
    return not any(misfit.certain and misfit.path == path for misfit in misfits(task, changed))


def _refused(task: TaskDefinition, params: Any) -> Sequence[ErrorDetails]:
    try:
        task.params_model.model_validate_json(
            json.dumps(params), strict=True, extra="forbid" if task.strict_params else "ignore"
        )
    except ValidationError as error:
        return error.errors(include_url=False, include_context=False)
    except Exception:
        # A validator of the author's that cannot do with a part of the fields.
        return ()
    return ()


def _misfit(details: ErrorDetails, params: Any, *, whole: bool) -> Misfit | None:
    path, choice = _data_path(details, params)
    kind = details["type"]
    about = at(params, path)
    # Which choice of a union was meant cannot be known while a part of the value is not.
    if has_unknown(choice) or about is UNKNOWN:
        return None
    if kind == "missing":
        return Misfit(path, kind, "is missing")
    if kind in _NOT_DECLARED:
        return Misfit(path, kind, "is not declared")
    if has_unknown(about) or (kind not in _CERTAIN and not whole):
        return None
    return Misfit(path, kind, f"{details['msg']}, got {_kind(about)}", certain=kind in _CERTAIN)


def _data_path(details: ErrorDetails, params: Any) -> tuple[Path, Any]:
    """Where in the params an error is, and the value of the first union on the way: its choices are no part of the path."""
    path: Path = ()
    value, choice = params, None
    for number, part in enumerate(details["loc"], start=1):
        inside = (isinstance(value, Mapping) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        absent = details["type"] == "missing" and number == len(details["loc"])
        if inside or absent:
            path, value = (*path, part), at(value, (part,))
        elif choice is None:
            choice = value
    return path, choice


def _moves_fields(model: type[BaseModel]) -> bool:
    """Whether a field's value may come from somewhere else than the field's name in the JSON."""
    for one in models_of(model):
        decorators = one.__pydantic_decorators__
        if decorators.root_validators or any(
            validator.info.mode != "after" for validator in decorators.model_validators.values()
        ):
            return True
        if any(
            isinstance(field.validation_alias, AliasChoices | AliasPath)
            for field in one.model_fields.values()
        ):
            return True
    return False


def _with_null(value: Any, path: Path) -> Any:
    if not path:
        return None
    inner = value if isinstance(value, Mapping) else {}
    return {**inner, path[0]: _with_null(inner.get(path[0]), path[1:])}


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
