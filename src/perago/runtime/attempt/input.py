"""What an attempt was asked to do: the wire form of its input and output, checked before a byte moves.

Top level exactly `workspace` and `params` (exactly `params` for a task without a workspace); `workspace` exactly
its four fields.  `refType` is taken for `ref_type`, and answered in kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perago.declare.task import TaskDefinition
from perago.errors import LakeNotFound, TaskInputError
from perago.lake.base import Lake
from perago.protocol.publication import Workspace


@dataclass(frozen=True, slots=True)
class Input:
    """A checked input: the model the body gets, the same as JSON, and the workspace as it was spelled."""

    params: BaseModel
    raw_params: Mapping[str, Any]
    workspace: Mapping[str, str] | None


def read_input(task: TaskDefinition, payload: Mapping[str, Any]) -> Input:
    """Check an attempt's input against the task's contract."""
    wanted = {"params"} if task.workspace is None else {"params", "workspace"}
    _exactly(wanted, payload, "task input")
    raw = payload["params"]
    params = task.parse_params(json.dumps(raw))
    workspace = None if task.workspace is None else _workspace(payload["workspace"])
    return Input(params, raw, workspace)


def resolve_workspace(lake: Lake, given: Mapping[str, str], prefix: str) -> Workspace:
    """Turn the input ref into the full commit id, once; a branch or tag name is refused."""
    repository, ref = given["repository"], given["ref"]
    try:
        commit = lake.commit_at(repository, ref)
    except LakeNotFound as missing:
        raise LakeNotFound(
            f"input ref {ref!r} of repository {repository!r} does not exist: {missing}"
        ) from missing
    if not commit.id.startswith(ref):
        raise TaskInputError(
            f"workspace.ref {ref!r} is a branch, a tag or an expression, not a commit id: it names commit "
            f"{commit.id} now, and could name another one on the next retry. Pass the commit id"
        )
    return Workspace(repository, given["branch"], commit.id, prefix)


def workspace_output(given: Mapping[str, str], ref: str) -> dict[str, str]:
    """The input workspace with `ref` set to what is published, its fields spelled as they came."""
    return {**given, "ref": ref}


def _workspace(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise TaskInputError(f"workspace must be an object, not {type(given).__name__}")
    spelled = "refType" if "refType" in given and "ref_type" not in given else "ref_type"
    _exactly({"repository", "branch", spelled, "ref"}, given, "workspace")
    for name, value in given.items():
        if not isinstance(value, str) or not value.strip():
            raise TaskInputError(f"workspace.{name} must be a text that is not blank, not {value!r}")
    if given[spelled] != "commit":
        raise TaskInputError(f"workspace.{spelled} must be 'commit', not {given[spelled]!r}")
    return dict(given)


def _exactly(wanted: set[str], given: Mapping[str, Any], what: str) -> None:
    problems = [f"missing: {', '.join(sorted(wanted - given.keys()))}"] if wanted - given.keys() else []
    if given.keys() - wanted:
        problems.append(f"not expected: {', '.join(sorted(given.keys() - wanted))}")
    if problems:
        raise TaskInputError(f"{what} must have exactly {', '.join(sorted(wanted))}; {'; '.join(problems)}")
