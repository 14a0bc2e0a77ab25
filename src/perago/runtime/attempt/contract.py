"""The wire form of an attempt's input and output.

The input is checked before a byte moves.  Top level exactly `workspace` and `params` (exactly `params` for a task without
a workspace); `workspace` has exactly its four fields, of which `ref_type` is optional and defaults to `commit`.  `refType`
is accepted for `ref_type`, and the output uses the same spelling; an output always has one of the two.  A list of
workspaces, all of one repository and branch, is to be joined.  All violations are reported in one `TaskInputError`, in one
line that names each field, the type found there and what to send.

The output is checked before anything is published: would the orchestrator accept the result?
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from perago.declare.payload import input_type
from perago.declare.task import TaskDefinition
from perago.declare.user_code import author_code
from perago.errors import LakeNotFound, TaskInputError, TaskResultError
from perago.lake.base import Commit, Lake
from perago.protocol.paths import has_nul
from perago.protocol.policies import SUPERSEDE
from perago.protocol.signing import recordable
from perago.runtime.attempt.publish_decision import Published

log = logging.getLogger("perago.transaction")

_EXAMPLES = {"workspace": '"${workflow.input.workspace}"', "params": '{"name": "value"}'}
_SEND = {
    "repository": "the repository's name",
    "branch": "the branch's name",
    "ref": "a commit id",
    "ref_type": "'commit', or leave it out",
    "refType": "'commit', or leave it out",
}
_MAX_NAMED = 5
_KNOWN_TYPES = {"branch", "tag", "ref"}


@dataclass(frozen=True, slots=True)
class Input:
    """A checked input: the params as model and as JSON, and the workspaces with their original spelling."""

    params: BaseModel
    raw_params: Mapping[str, Any]
    workspaces: Sequence[Mapping[str, str]] = ()
    """One entry; several if they are to be joined; none for a task without a workspace."""


def read_input(task: TaskDefinition, payload: Mapping[str, Any]) -> Input:
    """Check an attempt's input against the task's contract.  Raises `TaskInputError` with all violations."""
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
    return Input(params, raw, tuple(map(_with_ref_type, given)))


def given_workspaces(given: Any) -> Sequence[Any]:
    """Return the workspaces of an input that has one or a list of them, unchecked."""
    return given if isinstance(given, list) else (given,)


def workspace_label(given: Sequence[object], number: int) -> str:
    """Return the name of one of the workspaces for error messages."""
    return "workspace" if len(given) == 1 else f"workspace[{number}]"


def commit_of(lake: Lake, given: Mapping[str, str], label: str = "workspace") -> Commit:
    """Return the commit that a workspace names.  Raises `TaskInputError` for a branch or tag name."""
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
    """Return the input workspace with `ref` set to the published commit; the spelling of its fields is kept."""
    return {**given, "ref": ref}


def _with_ref_type(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the workspace with its `ref_type`, which the input may leave out."""
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
        yield f"{label} must have exactly repository, branch, ref and optionally ref_type; {'; '.join(wrong)}"
    for name in (*required, type_name):
        value = given.get(name)
        if name not in given:
            continue
        if not isinstance(value, str):
            yield f"{label}.{name} must be a string, not {input_type(value)}; send {_SEND[name]}"
        elif not value.strip():
            yield f"{label}.{name} must not be blank; send {_SEND[name]}"
        elif name == type_name and value != "commit":
            # Never quote the input: it may be a secret in the wrong field.
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
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        yield f"not expected: {', '.join(others[:_MAX_NAMED])}{more}"


def to_record(result: Mapping[str, Any]) -> str | None:
    """Return the result in the form a publication records for reuse, or None if it is too large."""
    text = recordable(result)
    if text is None:
        log.warning(
            "the result is too large to be recorded for reuse; using policy %s this time", SUPERSEDE.name
        )
    return text


def output_of(
    task: TaskDefinition, given: Mapping[str, str], published: Published, result: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the output, its workspace spelled like the input's.  The result model validates a recorded result again."""
    if published.recorded is not None:
        log.info("reusing the result recorded by commit %s", published.ref)
        with author_code("the result model"):
            result = task.dump_result(task.parse_result(published.recorded))
    return {"workspace": workspace_output(given, published.ref), "result": result}


def check_size(result: Mapping[str, Any], most: int | None) -> None:
    """Raise `TaskResultError` if the result is not valid JSON text, contains U+0000, or exceeds `most` bytes."""
    for place in _with_nul("result", result):
        raise TaskResultError(
            f"{place} holds U+0000, which Conductor cannot store on PostgreSQL: remove it with text.replace('\\0', '')"
        )
    try:
        size = len(json.dumps(result, ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 40) : error.end]
        raise TaskResultError(
            f"the result holds text that is not valid Unicode, near {near!r}: if it is a file name, decode it with "
            "os.fsencode(name).decode(errors='replace')"
        ) from None
    if most is not None and size > most:
        raise TaskResultError(
            f"the result is {size} bytes of JSON, and Conductor takes at most {most}: put bulk into the "
            "workspace and return where it is"
        )


def _with_nul(path: str, value: object) -> Iterator[str]:
    """Yield the places of strings and keys that contain U+0000."""
    if isinstance(value, str):
        if has_nul(value):
            yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if has_nul(name):
                yield f"the key {name!r} of {path}"
            yield from _with_nul(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _with_nul(f"{path}[{number}]", item)
