"""What registering a workflow would change on an orchestrator.

The rule: a definition is put in the place of the old one as a whole, so a field that only the server has is a change too.
What the server fills in by itself (times, empty fields, its defaults) is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from perago.runtime.registration import Change

_SERVERS_OWN = frozenset({"createTime", "updateTime", "createdBy", "updatedBy", "ownerApp"})
_DEFAULTS = {
    "version": 1,
    "schemaVersion": 2,
    "restartable": True,
    "timeoutPolicy": "ALERT_ONLY",
    "enforceSchema": True,
    "type": "SIMPLE",
}
"""What Conductor 3.32.3 makes of a field that a definition leaves out, where that is not empty."""

Field = tuple[str, Any, Any]


class Workflows(Protocol):
    """The part of the orchestrator that looking at definitions needs."""

    def workflow_definition(self, name: str, *, version: int | None = None) -> Any:
        """The registered definition, or None."""


def plan_workflow(server: Workflows, definition: Mapping[str, Any]) -> Change:
    """Compare a workflow's definition with the server's of the same version."""
    name, wanted = str(definition["name"]), dict(definition)
    actual = server.workflow_definition(name, version=definition.get("version") or 1)
    if actual is None:
        return Change(name, "create", (), wanted)
    theirs = {key: value for key, value in actual.items() if key not in _SERVERS_OWN}
    ours = {key: value for key, value in wanted.items() if key not in _SERVERS_OWN}
    fields = tuple(_differing("", ours, theirs))
    return Change(name, "update" if fields else "keep", fields, wanted)


def _differing(path: str, wanted: Any, actual: Any) -> Iterator[Field]:
    if isinstance(wanted, Mapping) and isinstance(actual, Mapping):
        for key in [*wanted, *(key for key in actual if key not in wanted)]:
            default = _DEFAULTS.get(str(key))
            inner = f"{path}.{key}" if path else str(key)
            yield from _differing(inner, wanted.get(key, default), actual.get(key, default))
    elif _are_steps(wanted) and _are_steps(actual):
        ours, theirs = _by_reference(wanted), _by_reference(actual)
        if list(ours) == list(theirs):
            for reference, step in ours.items():
                yield from _differing(f"{path}[{reference}]", step, theirs[reference])
        else:
            yield from _differing_steps(path, ours, theirs)
    elif wanted != actual and (wanted or actual):
        yield path, wanted, actual


def _differing_steps(path: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[Field]:
    """Steps that came, went or moved; one that is on both sides is looked into."""
    yield path, list(ours), list(theirs)
    for reference in ours:
        if reference in theirs:
            yield from _differing(f"{path}[{reference}]", ours[reference], theirs[reference])


def _are_steps(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(one, Mapping) and "taskReferenceName" in one for one in value)
    )


def _by_reference(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(step["taskReferenceName"]): step for step in steps}
