"""The input of a workflow or a task, as listings and pages show it: its workspaces, and everything else as short text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perago.protocol.names import SHORT

MOST_CHARS = 1000
"""The maximum length of a value's JSON in a run's record.  The orchestrator has the value in full."""
SHOWN_CHARS = 40
Mask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class WorkspaceRef:
    """A workspace that an input or output names."""

    repository: str
    branch: str
    ref: str

    def text(self, length: int | None = None) -> str:
        """Return the workspace as `repository@branch commit`, with so many characters of the commit."""
        at = f"@{self.branch}" if self.branch else ""
        return f"{self.repository}{at} {self.ref[:length]}".rstrip()


def workspaces_in(values: Mapping[str, Any], *, only: str | None = None) -> list[WorkspaceRef]:
    """Return the workspaces that an input or output names, under any name or under the name `only`.

    A value may be a list of workspaces, which a task joins.
    """
    found = []
    for name, value in values.items():
        if only in (None, name):
            items = value if isinstance(value, list) else [value]
            found += [_workspace(one) for one in items if _is_workspace(one)]
    return found


def other_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are no workspaces.  `params` is replaced by its content if it is an object."""
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if name == "params" and isinstance(value, Mapping):
            rest.update(value)
        elif not (isinstance(value, list) and value and all(map(_is_workspace, value))) and not _is_workspace(
            value
        ):
            rest[name] = value
    return rest


def params_of(values: Mapping[str, Any]) -> Any:
    """Return the params in a task's input: its `params`, or else everything but the workspace."""
    return values.get("params", {name: value for name, value in values.items() if name != "workspace"})


def values_text(values: Mapping[str, Any], most: int = SHOWN_CHARS) -> str:
    """Return the values that are no workspaces as `name=value`, truncated to `most` characters."""
    text = " ".join(f"{name}={_compact(value)}" for name, value in other_values(values).items())
    return shortened(text, most)


def workspaces_text(values: Mapping[str, Any], length: int | None = SHORT) -> str:
    """Return the first workspace in an input, and how many others there are."""
    found = workspaces_in(values)
    more = f" +{len(found) - 1}" if len(found) > 1 else ""
    return found[0].text(length) + more if found else ""


def recorded_input(values: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    """Return the input for a run's record: without secrets, and with long values truncated."""
    kept: dict[str, Any] = masked(values, mask)
    for name, value in kept.items():
        text = json.dumps(value, ensure_ascii=False, default=str)
        if len(text) > MOST_CHARS:
            kept[name] = shortened(text, MOST_CHARS)
    return kept


def masked(value: Any, mask: Mask) -> Any:
    """Return a JSON value with the secrets in its strings masked."""
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {str(name): masked(one, mask) for name, one in value.items()}
        case list() | tuple():
            return [masked(one, mask) for one in value]
        case _:
            return value


def shortened(text: str, most: int) -> str:
    """Return the text, cut to `most` characters with an ellipsis if it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _compact(value: Any) -> str:
    if isinstance(value, str) and value and not set(value) & set(" \t\n\"'="):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _is_workspace(value: Any) -> bool:
    return isinstance(value, Mapping) and "repository" in value and "ref" in value


def _workspace(value: Mapping[str, Any]) -> WorkspaceRef:
    return WorkspaceRef(str(value["repository"]), str(value.get("branch", "")), str(value["ref"]))
