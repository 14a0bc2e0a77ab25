"""What an attempt was asked to do: the wire form of its input and output, checked before a byte moves.

Top level exactly `workspace` and `params` (exactly `params` for a task without a workspace); `workspace` exactly
its four fields, of which `ref_type` may be left out and is `commit` then.  `refType` is taken for `ref_type`, and answered
in kind; an output always has one of the two.  A list of workspaces, all of one repository and branch, is to be joined.
All that is wrong is one `TaskInputError` in one line: it names each field and the type of what is there, and says what
to send.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perago.declare.payload import input_type
from perago.declare.task import TaskDefinition
from perago.errors import LakeNotFound, TaskInputError
from perago.lake.base import Commit, Lake

_EXAMPLES = {"workspace": '"${workflow.input.workspace}"', "params": '{"name": "value"}'}
_SEND = {
    "repository": "the repository's name",
    "branch": "the branch's name",
    "ref": "a commit id",
    "ref_type": "'commit', or leave it out",
    "refType": "'commit', or leave it out",
}
_SHOWN = 5
_KNOWN_TYPES = {"branch", "tag", "ref"}


@dataclass(frozen=True, slots=True)
class Input:
    """A checked input: the model the body gets, the same as JSON, and the workspaces as they were spelled."""

    params: BaseModel
    raw_params: Mapping[str, Any]
    workspaces: Sequence[Mapping[str, str]] = ()
    """One; several where they are to be joined; none for a task without a workspace."""


def read_input(task: TaskDefinition, payload: Mapping[str, Any]) -> Input:
    """Check an attempt's input against the task's contract."""
    wanted = ("params",) if task.workspace is None else ("workspace", "params")
    wrong = list(_wrong_top(wanted, payload))
    if wrong:
        raise TaskInputError("; ".join(wrong))
    if task.workspace is not None:
        wrong = list(_wrong_workspaces(payload["workspace"]))
    raw = payload["params"]
    try:
        params = task.parse_params(json.dumps(raw))
    except TaskInputError as error:
        raise TaskInputError("; ".join([*wrong, str(error)])) from None
    if wrong:
        raise TaskInputError("; ".join(wrong))
    given = () if task.workspace is None else given_workspaces(payload["workspace"])
    return Input(params, raw, tuple(map(_spelled_out, given)))


def given_workspaces(given: Any) -> Sequence[Any]:
    """The workspaces of an input, whether it has one or a list of them; they are not checked here."""
    return given if isinstance(given, list) else (given,)


def workspace_label(given: Sequence[object], number: int) -> str:
    """How an error names one of the workspaces."""
    return "workspace" if len(given) == 1 else f"workspace[{number}]"


def commit_of(lake: Lake, given: Mapping[str, str], label: str = "workspace") -> Commit:
    """The commit that a workspace names, looked up once; a branch or tag name is refused."""
    repository, ref = given["repository"], given["ref"]
    try:
        commit = lake.commit_at(repository, ref)
    except LakeNotFound as missing:
        raise LakeNotFound(
            f"input ref {ref!r} of repository {repository!r} does not exist: {missing}"
        ) from missing
    if not commit.id.startswith(ref):
        raise TaskInputError(
            f"{label}.ref {ref!r} is a branch, a tag or an expression, not a commit id: it names commit "
            f"{commit.id} now, and could name another one on the next retry. Send the commit id"
        )
    return commit


def workspace_output(given: Mapping[str, str], ref: str) -> dict[str, str]:
    """The input workspace with `ref` set to what is published, its fields spelled as they came."""
    return {**given, "ref": ref}


def _spelled_out(given: Mapping[str, str]) -> Mapping[str, str]:
    """The workspace with its type of ref, which may have been left out."""
    return dict(given) if "refType" in given else {**given, "ref_type": "commit"}


def _wrong_top(wanted: tuple[str, ...], given: Mapping[str, Any]) -> Iterator[str]:
    wrong = list(_other_fields(wanted, wanted, given))
    if wrong:
        example = ", ".join(f'"{name}": {_EXAMPLES[name]}' for name in wanted)
        yield (
            f"task input must have exactly {' and '.join(wanted)}; {'; '.join(wrong)}; send the step's "
            f"inputParameters as {{{example}}}"
        )


def _wrong_workspaces(given: object) -> Iterator[str]:
    if not isinstance(given, list):
        yield from _wrong_workspace(given, "workspace")
        return
    if not given:
        yield "workspace is an empty list; send one workspace, or those that are to be joined"
        return
    wrong = [
        text for number, one in enumerate(given) for text in _wrong_workspace(one, f"workspace[{number}]")
    ]
    yield from wrong or _of_several_branches(given)


def _of_several_branches(given: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for number, one in enumerate(given):
        for name in ("repository", "branch"):
            if one[name] != given[0][name]:
                yield (
                    f"workspace[{number}].{name} is not that of workspace[0]; send workspaces of one repository and "
                    "branch, which alone can be joined"
                )
                return


def _wrong_workspace(given: object, label: str) -> Iterator[str]:
    if not isinstance(given, Mapping):
        others = ", or a list of such objects" if label == "workspace" else ""
        yield f"{label} must be an object, not {input_type(given)}; send its repository, branch and ref{others}"
        return
    type_name = "refType" if "refType" in given and "ref_type" not in given else "ref_type"
    required = ("repository", "branch", "ref")
    wrong = list(_other_fields(required, (*required, type_name), given))
    if wrong:
        yield f"{label} must have exactly repository, branch, ref and, if you like, ref_type; {'; '.join(wrong)}"
    for name in (*required, type_name):
        value = given.get(name)
        if name not in given:
            continue
        if not isinstance(value, str):
            yield f"{label}.{name} must be a string, not {input_type(value)}; send {_SEND[name]}"
        elif not value.strip():
            yield f"{label}.{name} must not be blank; send {_SEND[name]}"
        elif name == type_name and value != "commit":
            # Nothing that was sent is quoted: it may be a secret that got into the wrong field.
            other = repr(value) if value in _KNOWN_TYPES else "another string"
            yield f"{label}.{name} must be 'commit', not {other}; send {_SEND[name]}"


def _other_fields(
    required: tuple[str, ...], allowed: tuple[str, ...], given: Mapping[str, Any]
) -> Iterator[str]:
    missing = [name for name in required if name not in given]
    if missing:
        yield f"missing: {', '.join(missing)}"
    others = sorted(str(name) for name in given if name not in allowed)
    if others:
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"not expected: {', '.join(others[:_SHOWN])}{more}"
