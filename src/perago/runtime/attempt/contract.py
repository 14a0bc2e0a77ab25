"""What an attempt was asked to do: the wire form of its input and output, checked before a byte moves.

Top level exactly `workspace` and `params` (exactly `params` for a task without a workspace); `workspace` exactly
its four fields, of which `ref_type` may be left out and is `commit` then.  `refType` is taken for `ref_type`, and answered
in kind; an output always has one of the two.  A list of workspaces, all of one repository and branch, is to be joined.
All that is wrong is one `TaskInputError` in one line: it names each field and the type of what is there, and says what
to send.

What an attempt answers with: the workspace's new ref and its result, or the one that was recorded for equal work.

Whether the orchestrator would take a result: asked while nothing is published yet.
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


log = logging.getLogger("perago.transaction")


def to_record(result: Mapping[str, Any]) -> str | None:
    """The result as a publication keeps it for reuse, or None where it is too large."""
    text = recordable(result)
    if text is None:
        log.warning(
            "the result is too large to be recorded for reuse: the policy is %s this time", SUPERSEDE.name
        )
    return text


def output_of(
    task: TaskDefinition, given: Mapping[str, str], published: Published, result: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The output, its workspace spelled like the given one; a recorded result goes through the result model again."""
    if published.recorded is not None:
        log.info("answering with the result that %s records", published.ref)
        with author_code("the result model"):
            result = task.dump_result(task.parse_result(published.recorded))
    return {"workspace": workspace_output(given, published.ref), "result": result}


def check_size(result: Mapping[str, Any], most: int | None) -> None:
    """Refuse a result that is no JSON text, that no database keeps, or that has more than `most` bytes."""
    for place in _with_nul("result", result):
        raise TaskResultError(
            f"{place} holds U+0000, which Conductor cannot keep on PostgreSQL: take it out, with text.replace('\\0', '')"
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
            f"the result is {size} bytes of JSON, and {most} are the most that Conductor takes: put bulk into the "
            "workspace and return where it is"
        )


def _with_nul(path: str, value: object) -> Iterator[str]:
    """The places of strings and keys with U+0000."""
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
