"""A step's params: a model, in which fields may hold references instead of values.

The rule: what the author wrote is what the workflow says.  Fields that were left out stay out, so that the task's own
defaults hold when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from pydantic import AliasChoices, AliasPath, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from perago.declare.mistakes import calling_place, shortened
from perago.errors import TaskDefinitionError
from perago.protocol.nearest import did_you_mean, listed
from perago.workflow.references import Reference

Model = TypeVar("Model", bound=BaseModel)
Fields = ParamSpec("Fields")


def given(model: Callable[Fields, Model], /, *args: Fields.args, **fields: Fields.kwargs) -> Model:
    """A model some of whose fields come from earlier steps: `given(CountParams, top=clean.result.kept)`.

    Type checkers see the model's own constructor.  The values that are known are checked when the step is made; the others
    by the task, when it runs.
    """
    if not isinstance(model, type) or not issubclass(model, BaseModel) or args:
        raise TaskDefinitionError(
            f"{calling_place()}: given() takes a params model and its fields by name, such as given(CountParams, top=…)"
        )
    names = {_key(name, field) for name, field in model.model_fields.items()} | model.model_fields.keys()
    for name in fields:
        if name not in names and model.model_config.get("extra") != "allow":
            meant = did_you_mean(name, names, otherwise=f"; it has {listed(model.model_fields)}")
            raise TaskDefinitionError(f"{calling_place()}: {model.__name__} has no field {name!r}{meant}")
    values: dict[str, Any] = dict(fields)
    return model.model_construct(**values)  # type: ignore[return-value]


def written(value: Any) -> Any:
    """A value as the workflow's JSON has it."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, BaseModel):
        later = {name for name, one in _set_fields(value) if any(True for _ in references_in(one))}
        known = value.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude=later, warnings=False
        )
        infos = type(value).model_fields
        return known | {
            _key(name, infos.get(name)): written(one) for name, one in _set_fields(value) if name in later
        }
    if isinstance(value, Mapping):
        return {str(key): written(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [written(one) for one in value]
    return to_jsonable_python(value)


def references_in(value: Any) -> Iterator[Reference]:
    """Every reference in a value, however deep."""
    for one in _leaves(value):
        if isinstance(one, Reference):
            yield one


def refuse_secrets(params: BaseModel, label: str) -> None:
    """A workflow's definition can be read by everyone who can see the server, and pydantic would write stars into it."""
    for one in _leaves(params):
        if isinstance(one, SecretStr | SecretBytes):
            raise TaskDefinitionError(
                f"{calling_place()}: {label}: params hold {shortened(one)}, and a workflow's definition is no place for a "
                "secret; have the task read it where it runs"
            )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, BaseModel):
        for _, one in _set_fields(value):
            yield from _leaves(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _set_fields(model: BaseModel) -> list[tuple[str, Any]]:
    return [(name, getattr(model, name)) for name in sorted(model.model_fields_set)]


def _key(name: str, field: FieldInfo | None) -> str:
    """The name that a field has in the JSON that the task reads."""
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return name if alias is None or isinstance(alias, AliasPath) else alias
