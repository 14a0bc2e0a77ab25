"""The wire format of an attempt's input and output.

The input is checked before any data is transferred.  Its top level has exactly `workspace` and `params` (exactly
`params` for a task without a workspace).  A workspace has exactly four fields, of which `ref_type` is optional and
defaults to `commit`.  `refType` is accepted in place of `ref_type`; the output uses the input's spelling and always
includes the field.  `workspace` may also be a list of workspaces on one branch of one repository, which are then
joined.  All violations are reported together in a single-line `TaskInputError`, which names each field, the type found
there and what to send instead.

The result is checked before anything is published, to be sure that the orchestrator will accept it.
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
from perago.declare.user_code import user_code
from perago.declare.workspace import WorkspaceSpec
from perago.errors import LakeNotFound, TaskInputError, TaskResultError
from perago.lake.base import Commit, ReadableLake
from perago.protocol.names import is_run_branch
from perago.protocol.paths import has_nul
from perago.protocol.policies import SUPERSEDE
from perago.protocol.signing import MAX_RECORDED_RESULT, encode_result
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
ANOTHER_LAKE = "if a worker on another lake opened the run, PERAGO_RUN_STEPS gives the workers of each lake their own names"
"""A hint for a run that is not in this lake.  Its branch and its commits have the same names in no other lake."""
_MAX_NAMED = 5
_KNOWN_TYPES = {"branch", "tag", "ref"}


@dataclass(frozen=True, slots=True)
class Input:
    """A validated input: the params as a model and as JSON, and the workspaces with their original field names."""

    params: BaseModel
    raw_params: Mapping[str, Any]
    workspaces: Sequence[Mapping[str, str]] = ()
    """Normally one workspace; several if they are to be joined, and none for a task without a workspace."""

    @property
    def plain_params(self) -> Mapping[str, Any]:
        """The params as JSON values, with the model's defaults, or as they were sent if the model cannot be dumped."""
        return dump_params(self.params, self.raw_params)


def dump_params(params: BaseModel, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return params as JSON values, with the model's defaults.  `sent` is returned if the model cannot be dumped."""
    try:
        return params.model_dump(mode="json")
    except Exception:
        # The author's own serializers may raise anything.
        return sent


def read_input(task: TaskDefinition, payload: Mapping[str, Any]) -> Input:
    """Check an attempt's input against the task's contract.  Raises a `TaskInputError` that lists all violations."""
    wanted = ("params",) if task.workspace is None else ("workspace", "params")
    violations = list(_top_level_violations(wanted, payload))
    if violations:
        raise TaskInputError("; ".join(violations))
    if task.run_step == "open":
        violations = list(_workspace_violations(payload["workspace"], "workspace", ref_required=False))
    elif task.workspace is not None:
        violations = list(_workspaces_violations(payload["workspace"]))
    raw = payload["params"]
    try:
        params = task.parse_params(json.dumps(raw))
    except TaskInputError as error:
        raise TaskInputError("; ".join([*violations, str(error)])) from None
    if violations:
        raise TaskInputError("; ".join(violations))
    given = () if task.workspace is None else given_workspaces(payload["workspace"])
    return Input(params, raw, tuple(map(_with_ref_type, given)))


def given_workspaces(given: Any) -> Sequence[Any]:
    """Return an input's workspaces without validating them.  The input may contain a single workspace or a list."""
    return given if isinstance(given, list) else (given,)


def workspace_label(given: Sequence[object], number: int) -> str:
    """Return the label that error messages use for one of the workspaces."""
    return "workspace" if len(given) == 1 else f"workspace[{number}]"


def commit_of(lake: ReadableLake, given: Mapping[str, str], label: str = "workspace") -> Commit:
    """Return the commit that a workspace refers to.  Raises `TaskInputError` if its ref is a branch or tag name."""
    repository, ref = given["repository"], given["ref"]
    try:
        commit = lake.commit_at(repository, ref)
    except LakeNotFound as missing:
        hint = f"; {ANOTHER_LAKE}" if is_run_branch(given["branch"]) else ""
        raise LakeNotFound(
            f"input ref {ref!r} of repository {repository!r} does not exist: {missing}{hint}"
        ) from missing
    if not commit.id.startswith(ref):
        raise TaskInputError(
            f"{label}.ref {ref!r} is a branch, a tag or an expression, not a commit id: it names commit "
            f"{commit.id} now, and could name another one on the next retry. Send the commit id"
        )
    return commit


def workspace_output(given: Mapping[str, str], ref: str) -> dict[str, str]:
    """Return the input workspace with `ref` set to the published commit.  Field names keep their spelling."""
    return {**given, "ref": ref}


def _with_ref_type(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the workspace with `ref_type` added if the input omits it."""
    return dict(given) if "refType" in given else {**given, "ref_type": "commit"}


def _top_level_violations(wanted: tuple[str, ...], given: Mapping[str, Any]) -> Iterator[str]:
    violations = list(_field_violations(wanted, wanted, given))
    if violations:
        example = ", ".join(f'"{name}": {_EXAMPLES[name]}' for name in wanted)
        yield (
            f"task input must have exactly {' and '.join(wanted)}; {'; '.join(violations)}; send the step's "
            f"inputParameters as {{{example}}}"
        )


def _workspaces_violations(given: object) -> Iterator[str]:
    if not isinstance(given, list):
        yield from _workspace_violations(given, "workspace")
        return
    if not given:
        yield "workspace is an empty list; send one workspace, or those that are to be joined"
        return
    violations = [
        text
        for number, one in enumerate(given)
        for text in _workspace_violations(one, f"workspace[{number}]")
    ]
    yield from violations or _branch_mismatches(given)


def _branch_mismatches(given: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for number, one in enumerate(given):
        for name in ("repository", "branch"):
            if one[name] != given[0][name]:
                yield (
                    f"workspace[{number}].{name} is not that of workspace[0]; send workspaces of one repository and "
                    "branch, which alone can be joined"
                )
                return


def _workspace_violations(given: object, label: str, *, ref_required: bool = True) -> Iterator[str]:
    if not isinstance(given, Mapping):
        others = ", or a list of such objects" if label == "workspace" and ref_required else ""
        yield f"{label} must be an object, not {input_type(given)}; send its repository, branch and ref{others}"
        return
    type_name = "refType" if "refType" in given and "ref_type" not in given else "ref_type"
    fields = ("repository", "branch", "ref", type_name)
    required = fields[:3] if ref_required else fields[:2]
    violations = list(_field_violations(required, fields, given))
    if violations:
        shape = "repository, branch, ref and" if ref_required else "repository, branch and optionally ref and"
        optionally = " optionally" if ref_required else ""
        yield f"{label} must have exactly {shape}{optionally} ref_type; {'; '.join(violations)}"
    for name in fields:
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


def _field_violations(
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
    """Return the result serialized for a publication's metadata, or None if it is too large to be recorded."""
    text = encode_result(result)
    if text is None:
        log.warning(
            "the result is larger than %d KiB and not recorded: it can be neither reused (policy %s applies this time) nor "
            "repeated, so unchanged steps will not be skipped",
            *(MAX_RECORDED_RESULT // 1024, SUPERSEDE.name),
        )
    return text


def output_of(
    task: TaskDefinition, given: Mapping[str, str], published: Published, result: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the output, with the workspace's field names spelled as in the input.

    A recorded result is validated again with the result model.
    """
    if published.recorded is not None:
        log.info("reusing the result recorded by commit %s", published.ref)
        with user_code("the result model"):
            result = task.dump_result(task.parse_result(published.recorded))
    seen = {"view": view_output(task.workspace)} if task.workspace and is_run_branch(given["branch"]) else {}
    return {"workspace": workspace_output(given, published.ref), "result": result, **seen}


def view_output(spec: WorkspaceSpec) -> dict[str, Any]:
    """Return what a step of a run sees and may change, for the step that publishes the run."""
    view = spec.view
    return {"reads": list(view.roots), "writes": [] if spec.read_only else list(view.write_roots)}


def check_size(result: Mapping[str, Any], most: int | None) -> None:
    """Raise `TaskResultError` if the result contains invalid Unicode or U+0000, or exceeds `most` bytes of JSON."""
    for place in _nul_locations("result", result):
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


def _nul_locations(path: str, value: object) -> Iterator[str]:
    """Yield the location of every string and key that contains U+0000."""
    if isinstance(value, str):
        if has_nul(value):
            yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if has_nul(name):
                yield f"the key {name!r} of {path}"
            yield from _nul_locations(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _nul_locations(f"{path}[{number}]", item)
