"""References: the `${…}` expressions in a workflow, each with the type that its value will have.

To a type checker, a reference is the value itself (an `int`, a `str`, a model).  At run time it is the expression's text.
It can be passed on and put into an f-string, and the fields and items that its type has can be accessed.  Comparisons and
arithmetic would silently operate on the text, so they are rejected; only `==` and `+` with a string are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from perago.declare.diagnostics import calling_place, short_repr
from perago.errors import TaskDefinitionError
from perago.protocol.suggestions import did_you_mean, listed
from perago.workflow.check.schema import Shape
from perago.workflow.model.expressions import whole

T = TypeVar("T")

_WORKSPACE_FIELDS = ("repository", "branch", "ref_type", "ref")
_WORKSPACE = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in _WORKSPACE_FIELDS},
    "additionalProperties": False,
}
_REFUSED = (
    *("__bool__", "__len__", "__iter__", "__contains__", "__int__", "__float__", "__index__", "__neg__"),
    *("__lt__", "__le__", "__gt__", "__ge__", "__mod__", "__mul__", "__rmul__", "__sub__", "__rsub__"),
    *("__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__rpow__"),
)


class NoSuchField(TaskDefinitionError, AttributeError):
    """Raised if a reference or a step has no such field.  It is also an `AttributeError`, so that `hasattr` works."""


class Reference(str):
    """The text of a `${…}` expression, with the known shape of its value."""

    __slots__ = ("_shape",)
    _shape: Shape

    if not TYPE_CHECKING:

        def __getattribute__(self, name):
            # Fields take precedence over the methods of str: a result may have a field called `count` or `title`.
            return super().__getattribute__(name) if name.startswith("_") else self._inner(name, f".{name}")

        def __getitem__(self, key):
            return self._inner(key, f"[{key}]" if isinstance(key, int) else f"['{key}']")

    def _inner(self, part: str | int, written: str) -> Reference:
        shape = self._shape.at(part)
        if shape.missing:
            names = list(self._shape.names)
            otherwise = f"; it has {listed(names)}" if names else f"; pass it on as it is: {_LATER}"
            meant = did_you_mean(str(part), names, otherwise=otherwise)
            raise NoSuchField(f"{calling_place()}: {self} has no {part!r}{meant}")
        return reference(f"{str(self)[:-1]}{written}}}", shape)

    def __add__(self, other: Any) -> str:
        return str(self) + other if isinstance(other, str) else _refuse(self)

    def __radd__(self, other: Any) -> str:
        return other + str(self) if isinstance(other, str) else _refuse(self)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if isinstance(other, str) else _refuse(self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __deepcopy__(self, memo: object) -> Reference:
        return self


_LATER = "only the running workflow knows the value"


def _refuse(found: Reference, *_: object) -> NoReturn:
    raise TaskDefinitionError(
        f"{calling_place()}: {found} cannot be compared or calculated with here: {_LATER}; decide with a SwitchTask, or "
        "calculate in a task"
    )


for _name in _REFUSED:
    setattr(Reference, _name, _refuse)


if TYPE_CHECKING:

    class Workspace:
        """A workspace that a step starts from: a repository, a branch and a commit."""

        repository: str
        branch: str
        ref_type: str
        ref: str

else:

    class Workspace(Reference):
        """A workspace that a step starts from: a repository, a branch and a commit."""

        __slots__ = ()


def reference(text: str, shape: Shape, kind: type[Reference] = Reference) -> Reference:
    """Create a reference from the text of an expression and the shape of its value."""
    made = kind(text)
    made._shape = shape
    return made


def workspace_at(text: str) -> Workspace:
    """Return a reference to a workspace, given the text of its expression."""
    made: Any = reference(text, Shape([_WORKSPACE], _WORKSPACE), Workspace)  # type: ignore[arg-type]
    return made  # type: ignore[no-any-return]


def expression(text: str, kind: type[T], /) -> T:
    """Return any `${…}` expression as a value of the given type: `expression(plays.input("day"), str)`.

    Use it for the workflow's input, or for the output of a step that is not Perago's.  The type is not checked.
    """
    if not isinstance(text, str) or whole(text) is None:
        raise TaskDefinitionError(
            f"{calling_place()}: {short_repr(text)} is not an expression; write one, such as "
            "'${workflow.input.day}', or the official client's workflow.input('day')"
        )
    if kind is Workspace:
        made: Any = workspace_at(str(text))
        return made  # type: ignore[no-any-return]
    try:
        schema = TypeAdapter(kind).json_schema(mode="serialization")
        shape = Shape([schema], schema)
    except PydanticUserError:
        shape = Shape(None, {})
    typed: Any = reference(str(text), shape)
    return typed  # type: ignore[no-any-return]


INPUT_WORKSPACE: Workspace = workspace_at("${workflow.input.workspace}")
"""The workspace that `perago run` or `perago submit` started the workflow with: `--workspace REPO[@BRANCH]`."""
