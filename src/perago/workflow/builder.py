"""Builds steps that run Perago tasks, for the official client's workflows.

`new_workflow` returns a workflow, `step` and `fork` return steps, and `given` returns params with values from earlier steps.

As far as types can express it, a type checker accepts the same steps as `perago check`.  The type of the task's function
includes both models, so an editor marks a wrong param, keyword or result field.  Without a type checker, the same error
makes the module's import fail and names the line.

Params are written to the JSON as the author passed them.  Fields that were left out stay out, so the task's own defaults
apply when it runs.  A fork's JOIN never waits for a step that may be retried: Conductor evaluates the JOIN up to twenty
times a second, and fails the whole workflow if it sees a failure there before the retry is scheduled (decision 0022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast, overload

from pydantic import AliasChoices, AliasPath, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perago.declare.diagnostics import calling_place, short_repr
from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.task import TaskDefinition
from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import (
    ConductorWorkflow,
    Fork,
    TaskStep,
    conductor_workflow,
    is_step,
)
from perago.protocol.policies import AdvancedName
from perago.protocol.suggestions import did_you_mean, listed
from perago.workflow.check.check import check_step
from perago.workflow.check.schema import task_shapes
from perago.workflow.references import (
    INPUT_WORKSPACE,
    NoSuchField,
    Reference,
    Workspace,
    reference,
    workspace_at,
)

if TYPE_CHECKING:
    from typing import Never

Model = TypeVar("Model", bound=BaseModel)
Fields = ParamSpec("Fields")
Params = TypeVar("Params", bound=BaseModel)
Result = TypeVar("Result", bound=BaseModel)
ResultOf = TypeVar("ResultOf", bound=BaseModel, covariant=True)


def new_workflow(
    name: str,
    *steps: Any,
    owner_email: str | None = None,
    version: int = 1,
    description: str | None = None,
    output: Mapping[str, Any] | None = None,
) -> ConductorWorkflow:
    """Return a workflow of these steps, an object of the official client's class.  No server is needed.

    Args:
        name: The workflow's name, under which it is registered and started.
        steps: Steps and forks in the order in which they run; the client's own step objects work, too.
        owner_email: The owner, whom Conductor requires.
        version: The version of the definition; Conductor keeps all of them and starts the newest.
        description: A description of the workflow, shown in Conductor.
        output: The workflow's output by name, such as `{"rows": clean.result.rows}`.
    """
    if not isinstance(name, str) or not name.strip():
        _fail(f"a workflow needs a name, and got {short_repr(name)}")
    for one in steps:
        if not is_step(one):
            hint = 'put steps that run in parallel into fork("…", [first], [second])'
            how = hint if isinstance(one, list | tuple) else "make a step of a task with step(task, …)"
            _fail(f"workflow {name!r}: {short_repr(one)} is not a step; {how}")
    made = conductor_workflow(name, steps, version=version, description=description)
    if output is not None:
        if not isinstance(output, Mapping):
            _fail(
                f"workflow {name!r}: output is {short_repr(output)}; name its values: "
                '{"rows": clean.result.rows}'
            )
        made.output_parameters({str(key): to_json(value) for key, value in output.items()})
    return made if owner_email is None else made.owner_email(owner_email)


def fork(name: str, *arms: Sequence[Any]) -> Fork:
    """Return a fork and its join: `new_workflow("plays", clean, fork("both", [count], [audit]))`.

    Args:
        name: The fork's name, unique in the workflow; its join is called `<name>_join`.
        arms: Lists of steps.  The steps in a list run one after the other; the lists run in parallel.
    """
    if not isinstance(name, str) or not name.strip():
        raise TaskDefinitionError(
            f"{calling_place()}: a fork needs a unique name in the workflow, and got {short_repr(name)}"
        )
    for arm in arms or ((),):
        if not isinstance(arm, list | tuple) or not arm or not all(map(is_step, arm)):
            raise TaskDefinitionError(
                f"{calling_place()}: fork {name!r} takes one list of steps for each arm, and got {short_repr(arm)}: "
                f'fork("{name}", [first], [second])'
            )
    return Fork(name, arms)


def given(model: Callable[Fields, Model], /, *args: Fields.args, **fields: Fields.kwargs) -> Model:
    """Return a params model in which some fields come from earlier steps: `given(CountParams, top=clean.result.kept)`.

    Type checkers see the model's own constructor.  Known values are checked when the step is created, all others by the
    task when it runs.
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


def to_json(value: Any) -> Any:
    """Return a value in the form in which it is written into the workflow's JSON."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, BaseModel):
        later = {name for name, one in _set_fields(value) if any(True for _ in references_in(one))}
        known = value.model_dump(
            mode="json", by_alias=True, exclude_unset=True, exclude=later, warnings=False
        )
        infos = type(value).model_fields
        return known | {
            _key(name, infos.get(name)): to_json(one) for name, one in _set_fields(value) if name in later
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(one) for one in value]
    return to_jsonable_python(value)


def references_in(value: Any) -> Iterator[Reference]:
    """Yield every reference in a value, at any depth."""
    for one in _leaves(value):
        if isinstance(one, Reference):
            yield one


def refuse_secrets(params: BaseModel, label: str) -> None:
    """Raise `TaskDefinitionError` if the params contain a secret.

    Anyone with access to the server can read a workflow's definition.  Besides, pydantic would write asterisks into it in
    place of the secret.
    """
    for one in _leaves(params):
        if isinstance(one, SecretStr | SecretBytes):
            raise TaskDefinitionError(
                f"{calling_place()}: {label}: params hold {short_repr(one)}, and a workflow's definition must not contain a "
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
    """Return a field's name in the JSON that the task reads."""
    alias = None if field is None else field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return name if alias is None or isinstance(alias, AliasPath) else alias


class _TypedStep(TaskStep):
    """A `SimpleTask` of the official client, of whose output only the declared parts can be read."""

    _OUTPUT: tuple[str, ...] = ()

    if TYPE_CHECKING:
        # The client's classes treat every unknown attribute as an output; Perago's steps have only these.
        def __getattribute__(self, name: Never, /) -> Any: ...  # type: ignore[misc, override]

    else:

        def __getattribute__(self, name):
            try:
                return object.__getattribute__(self, name)
            except AttributeError as error:
                if name.startswith("_") or isinstance(error, NoSuchField):
                    raise
            meant = did_you_mean(
                name, self._OUTPUT, otherwise=f"; its output has {' and '.join(self._OUTPUT)}"
            )
            raise NoSuchField(f"{calling_place()}: step {self.task_reference_name!r} has no {name!r}{meant}")


class Step(_TypedStep, Generic[ResultOf]):
    """A step for the official client's workflows: a `SimpleTask` with a typed output."""

    _OUTPUT = ("workspace", "result")

    def __init__(self, task: TaskDefinition, name: str, inputs: dict[str, Any]) -> None:
        super().__init__(task.name, name, inputs)
        self._result = reference(f"${{{name}.output.result}}", task_shapes(task).output.at("result"))
        self._workspace = None if task.workspace is None else workspace_at(f"${{{name}.output.workspace}}")

    @property
    def result(self) -> ResultOf:
        """The task's result; its fields are references that can be passed to later steps."""
        return cast(ResultOf, self._result)

    @property
    def workspace(self) -> Workspace:
        """The workspace after the step.  The next step that works on the branch starts from it."""
        if self._workspace is None:
            raise NoSuchField(
                f"{calling_place()}: step {self.task_reference_name!r} has no workspace: its task declares none"
            )
        return self._workspace


class PublishedRun(_TypedStep):
    """The step that publishes a whole run as one commit."""

    _OUTPUT = ("workspace",)

    def __init__(self, name: str, inputs: dict[str, Any]) -> None:
        super().__init__(PUBLISH.name, name, inputs)

    @property
    def workspace(self) -> Workspace:
        """The branch that the run was published to, at the run's commit."""
        return workspace_at(f"${{{self.task_reference_name}.output.workspace}}")


class Run(_TypedStep):
    """The step that opens a run.  The steps of the run start from its `workspace`, and `publish` ends it."""

    _OUTPUT = ("workspace", "origin")

    def __init__(self, name: str, inputs: dict[str, Any]) -> None:
        super().__init__(OPEN.name, name, inputs)

    @property
    def workspace(self) -> Workspace:
        """The run branch, on which nobody but the run's steps can see what they publish."""
        return workspace_at(f"${{{self.task_reference_name}.output.workspace}}")

    @property
    def origin(self) -> Workspace:
        """The branch and the commit that the run started from."""
        return workspace_at(f"${{{self.task_reference_name}.output.origin}}")

    def publish(
        self,
        workspace: Workspace | Sequence[Workspace],
        *,
        name: str = "publish",
        on_advanced: AdvancedName = "refuse",
    ) -> PublishedRun:
        """Return the step that publishes the run, as one commit on the branch that the run started from.

        Args:
            workspace: The last step's `.workspace`, or a list of those of all last steps.
            name: The step's name, unique in its workflow.
            on_advanced: What to do if others have advanced the branch since the run was opened: `refuse`, or `rebase` if
                nothing has changed that one of the run's steps saw.
        """
        label = f"step {name!r}"
        params = {"origin": str(self.origin)} | (
            {} if on_advanced == "refuse" else {"on_advanced": on_advanced}
        )
        inputs = {"workspace": _starts(label, workspace), "params": params}
        _check_built_in(PUBLISH, name, inputs)
        return PublishedRun(name, inputs)


def open_run(name: str = "open", *, workspace: Workspace | None = None, isolate: bool = True) -> Run:
    """Return the step that opens a run: `run = open_run()`, then steps from `run.workspace`, then `run.publish(…)`.

    Readers of the branch see nothing of the run until it is published, and then all of it.

    Args:
        name: The step's name, unique in its workflow.
        workspace: The branch that the run starts from and publishes to; by default the workflow's input, `INPUT_WORKSPACE`,
            which then needs no commit.
        isolate: False to let every step publish by itself; the run is then not one transaction.
    """
    given = INPUT_WORKSPACE if workspace is None else workspace
    inputs = {"workspace": _starts(f"step {name!r}", given), "params": {} if isolate else {"isolate": False}}
    _check_built_in(OPEN, name, inputs)
    return Run(name, inputs)


def _check_built_in(task: TaskDefinition, name: str, inputs: dict[str, Any]) -> None:
    if not isinstance(name, str) or not name.strip():
        _fail(f"a step of {task.name!r} needs a unique name in the workflow, and got {short_repr(name)}")
    for text in check_step({"name": task.name, "taskReferenceName": name, "inputParameters": inputs}, task):
        _fail(text)


def _starts(label: str, workspace: Workspace | Sequence[Workspace]) -> str | list[str]:
    """Return a step's workspace, or the workspaces that it joins, in the form in which they are written into the JSON."""
    starts = list(workspace) if isinstance(workspace, list | tuple) else [workspace]
    if not (starts and all(isinstance(one, Workspace) for one in starts)):
        _fail(
            f"{label}: workspace is {short_repr(workspace)}; give it INPUT_WORKSPACE, an earlier step's .workspace, "
            "expression('${…}', Workspace), or a list of those to join"
        )
    return list(map(str, starts)) if isinstance(workspace, list | tuple) else str(workspace)


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
    """Return a step that runs a task and is called `name`.  Raises `TaskDefinitionError` if the step is invalid.

    Args:
        task: The function decorated with `@task`.
        name: The step's name (`taskReferenceName`), unique in its workflow.
        workspace: The workspace that the step starts from, if the task has one: `INPUT_WORKSPACE` or an earlier step's
            `.workspace`.  After a fork, pass a list, `[a.workspace, b.workspace]`: the step then starts from the commit
            that contains all of them.
        params: The task's params model, or `given(Model, …)` if some of its values come from earlier steps.
    """
    label = f"step {name!r}"
    definition = getattr(task, "__perago_task__", None)
    if not isinstance(definition, TaskDefinition):
        _fail(
            f"{label}: {short_repr(task)} is not a task; decorate the function with @task, and name it here"
        )
    if not isinstance(name, str) or not name.strip():
        _fail(
            f"a step of {definition.name!r} needs a unique name in the workflow, and got {short_repr(name)}"
        )
    if not isinstance(params, definition.params_model):
        wanted = definition.params_model.__name__
        _fail(f"{label}: params is {short_repr(params)}; {definition.name!r} takes a {wanted}: {wanted}(…)")
    if workspace is None and definition.workspace is not None:
        _fail(
            f"{label} has no workspace, and its task {definition.name!r} works on one; add "
            "workspace=INPUT_WORKSPACE, or an earlier step's .workspace"
        )
    inputs: dict[str, Any] = {} if workspace is None else {"workspace": _starts(label, workspace)}
    refuse_secrets(params, label)
    try:
        inputs["params"] = to_json(params)
    except PydanticSerializationError as error:
        _fail(f"{label}: params have no JSON form: {error}; a workflow's definition is JSON")
    for text in check_step(
        {"name": definition.name, "taskReferenceName": name, "inputParameters": inputs}, definition
    ):
        _fail(text)
    return Step(definition, name, inputs)


def _fail(text: str) -> NoReturn:
    raise TaskDefinitionError(f"{calling_place()}: {text}")
