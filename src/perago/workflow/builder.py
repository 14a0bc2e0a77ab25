"""Steps side by side: a fork whose arms can be retried.

The rule: the JOIN never waits for a step that may fail and come again.  Conductor looks at it up to twenty times a second,
and fails the whole workflow if it finds a failure there before the retry is scheduled (decision 0022).

A step's params: a model, in which fields may hold references instead of values.

The rule: what the author wrote is what the workflow says.  Fields that were left out stay out, so that the task's own
defaults hold when it runs.

`step`: a step of a Perago task, for the official client's workflows.

The rule: what a type checker accepts and what `perago check` accepts is the same, as far as a type can say it.  The task's
function carries both models in its type, so the editor marks a wrong param, a wrong keyword and a wrong field of a result;
without one, the same mistake ends the import of the module, with the line that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast, overload

from pydantic import AliasChoices, AliasPath, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perago.declare.diagnostics import calling_place, shortened
from perago.declare.task import TaskDefinition
from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import Fork, TaskStep, is_step
from perago.protocol.suggestions import did_you_mean, listed
from perago.workflow.check.check import check_step
from perago.workflow.check.shapes import task_shapes
from perago.workflow.references import NoSuchField, Reference, Workspace, reference, workspace_at

if TYPE_CHECKING:
    from typing import Never


def fork(name: str, *arms: Sequence[Any]) -> Fork:
    """A fork, and the join behind it: `workflow >> fork("both", [clean, count], [audit])`.

    Args:
        name: The fork's own name, unique in the workflow; its join is called `<name>_join`.
        arms: Lists of steps; the steps of a list run one after the other, the lists side by side.
    """
    if not isinstance(name, str) or not name.strip():
        raise TaskDefinitionError(
            f"{calling_place()}: a fork needs a name of its own in the workflow, and got {shortened(name)}"
        )
    for arm in arms or ((),):
        if not isinstance(arm, list | tuple) or not arm or not all(map(is_step, arm)):
            raise TaskDefinitionError(
                f"{calling_place()}: fork {name!r} takes one list of steps for each arm, and got {shortened(arm)}: "
                f'fork("{name}", [first], [second])'
            )
    return Fork(name, arms)


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


Params = TypeVar("Params", bound=BaseModel)
Result = TypeVar("Result", bound=BaseModel)
ResultOf = TypeVar("ResultOf", bound=BaseModel, covariant=True)

_OUTPUT = ("workspace", "result")


class Step(TaskStep, Generic[ResultOf]):
    """A step of the official client (a `SimpleTask`) whose output has types."""

    def __init__(self, task: TaskDefinition, name: str, inputs: dict[str, Any]) -> None:
        super().__init__(task.name, name, inputs)
        self._result = reference(f"${{{name}.output.result}}", task_shapes(task).output.at("result"))
        self._workspace = None if task.workspace is None else workspace_at(f"${{{name}.output.workspace}}")

    @property
    def result(self) -> ResultOf:
        """What the task returns; its fields are references to give to later steps."""
        return cast(ResultOf, self._result)

    @property
    def workspace(self) -> Workspace:
        """Where the step left its workspace: the next step that works on the branch starts here."""
        if self._workspace is None:
            raise NoSuchField(
                f"{calling_place()}: step {self.task_reference_name!r} has no workspace: its task declares none"
            )
        return self._workspace

    if TYPE_CHECKING:
        # The client's classes take every unknown attribute for an output; of our steps only two exist.
        def __getattribute__(self, name: Never, /) -> Any: ...  # type: ignore[misc, override]

    else:

        def __getattribute__(self, name):
            try:
                return object.__getattribute__(self, name)
            except AttributeError as error:
                if name.startswith("_") or isinstance(error, NoSuchField):
                    raise
            meant = did_you_mean(name, _OUTPUT, otherwise="; its output has workspace and result")
            raise NoSuchField(f"{calling_place()}: step {self.task_reference_name!r} has no {name!r}{meant}")


@overload
def step(task: Callable[[Params], Result], name: str, *, params: Params) -> Step[Result]: ...
@overload
def step(
    task: Callable[[Any, Params], Result],
    name: str,
    *,
    workspace: Workspace | Sequence[Workspace],
    params: Params,
) -> Step[Result]: ...
def step(
    task: Callable[..., Result],
    name: str,
    *,
    params: BaseModel,
    workspace: Workspace | Sequence[Workspace] | None = None,
) -> Step[Result]:
    """A step that runs a task, called `name` in its workflow; what is wrong with it is one `TaskDefinitionError`.

    Args:
        task: The function that is decorated with `@task`.
        name: The step's own name (`taskReferenceName`), unique in its workflow.
        workspace: Where it starts, for a task that has a workspace: `INPUT_WORKSPACE` or an earlier step's `.workspace`;
            after a fork a list of them, `[a.workspace, b.workspace]`: it starts from the commit that holds all of them.
        params: The task's params model; `given(Model, …)` if some of its values come from earlier steps.
    """
    label = f"step {name!r}"
    definition = getattr(task, "__perago_task__", None)
    if not isinstance(definition, TaskDefinition):
        _wrong(
            f"{label}: {shortened(task)} is not a task; decorate the function with @task, and name it here"
        )
    if not isinstance(name, str) or not name.strip():
        _wrong(
            f"a step of {definition.name!r} needs a name of its own in the workflow, and got {shortened(name)}"
        )
    if not isinstance(params, definition.params_model):
        wanted = definition.params_model.__name__
        _wrong(f"{label}: params is {shortened(params)}; {definition.name!r} takes a {wanted}: {wanted}(…)")
    if workspace is None and definition.workspace is not None:
        _wrong(
            f"{label} has no workspace, and its task {definition.name!r} works on one; add "
            "workspace=INPUT_WORKSPACE, or an earlier step's .workspace"
        )
    given = list(workspace) if isinstance(workspace, list | tuple) else [workspace]
    if workspace is not None and not (given and all(isinstance(one, Workspace) for one in given)):
        _wrong(
            f"{label}: workspace is {shortened(workspace)}; give it INPUT_WORKSPACE, an earlier step's .workspace, "
            "expression('${…}', Workspace), or a list of those to join"
        )
    refuse_secrets(params, label)
    inputs: dict[str, Any] = {}
    if workspace is not None:
        inputs["workspace"] = list(map(str, given)) if isinstance(workspace, list | tuple) else str(workspace)
    try:
        inputs["params"] = written(params)
    except PydanticSerializationError as error:
        _wrong(f"{label}: params have no JSON form: {error}; a workflow's definition is JSON")
    for text in check_step(
        {"name": definition.name, "taskReferenceName": name, "inputParameters": inputs}, definition
    ):
        _wrong(text)
    return Step(definition, name, inputs)


def _wrong(text: str) -> NoReturn:
    raise TaskDefinitionError(f"{calling_place()}: {text}")
