"""`step`: a step of a Perago task, for the official client's workflows.

The rule: what a type checker accepts and what `perago check` accepts is the same, as far as a type can say it.  The task's
function carries both models in its type, so the editor marks a wrong param, a wrong keyword and a wrong field of a result;
without one, the same mistake ends the import of the module, with the line that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, overload

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from perago.declare.mistakes import calling_place, shortened
from perago.declare.task import TaskDefinition
from perago.declare.workflow.check import check_step
from perago.declare.workflow.shapes import task_shapes
from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import TaskStep
from perago.protocol.nearest import did_you_mean
from perago.workflow.params import refuse_secrets, written
from perago.workflow.references import NoSuchField, Workspace, reference, workspace_at

if TYPE_CHECKING:
    from typing import Never

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
