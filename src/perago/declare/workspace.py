"""A task's workspace: the paths it sees and may change, its checks, and what a retry does.

The rule: every spec that exists is valid.  `prefix` is the form that authors write (`/`, `/a/b`).  `object_prefix` is
the prefix of the object names and ends with a `/`, so that `/audio` never includes `audiobook/`.  `reads` and
`writes` are paths below the prefix, and they too match only whole path parts.  `view` combines them.  A path may name
params in braces: such a spec is `filled` for each attempt, and everything after that works on the filled paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, PlainValidator, model_validator

from perago.declare import templates
from perago.declare.checks import Check, label, not_a_check
from perago.declare.diagnostics import BrokenRule
from perago.declare.spec_base import Flag, SpecBase
from perago.errors import TaskInputError
from perago.protocol.partitions import fill, template_names, without_templates
from perago.protocol.paths import (
    ACTIONS,
    LONGEST_NAME,
    LONGEST_PATH,
    MARKER,
    either,
    first_broken,
    has_backslash,
    has_control_character,
    has_dot_part,
    has_empty_part,
    has_long_part,
    has_marker_part,
    has_outer_space,
    has_wildcard,
    in_actions,
    is_absolute,
    is_empty,
    leads_out,
)
from perago.protocol.policies import (
    DEFAULT,
    POLICIES,
    REBASE,
    REFUSE_UNSIGNED,
    REUSE,
    SUPERSEDE,
    AbandonedName,
    AdvancedName,
    Policy,
    UnsignedName,
    declaration_text,
    policy_of,
)
from perago.protocol.view import View

Placement = Literal["auto", "local", "direct"]

_NO_PREFIX = (
    (either(is_empty, has_outer_space), "must not be empty, and must not begin or end with white space"),
    (
        either(has_backslash, has_control_character),
        "must use '/' between its parts and hold no control characters",
    ),
)
_NO_FOLDER = (
    (has_empty_part, "must not hold empty parts ('//' or a '/' at the end)"),
    (either(has_dot_part, leads_out), "must not hold '.' or '..'"),
)
_NO_PATH = (
    (is_empty, "must not be empty; leave the field out for everything below the prefix"),
    (is_absolute, "must be relative to the workspace's prefix, not absolute"),
    *_NO_PREFIX,
    (leads_out, "must not lead out of the prefix: '..' is not allowed"),
    *_NO_FOLDER,
    (
        has_wildcard,
        "must be a plain path, without '*', '?', '[' or '{' (except around the name of a param, as in 'day={day}'): "
        "name the file or its folder",
    ),
    (has_marker_part, f"must not name {MARKER}, which is Perago's own"),
    (has_long_part, f"must not have a part longer than {LONGEST_NAME} bytes"),
)


def _prefix(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    if value == "/":
        return value
    path = value.removeprefix("/")
    wrong = first_broken(value, _NO_PREFIX) or first_broken(path, _NO_FOLDER)
    if wrong is not None:
        raise ValueError(wrong)
    if in_actions(f"{path}/"):
        raise ValueError(f"must not be inside {ACTIONS}, where lakeFS keeps its actions")
    return f"/{path}"


def _paths(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of paths below the prefix, such as ('plays', 'songs')")
    for number, path in enumerate(value):
        wrong = first_broken(without_templates(path), _NO_PATH) if isinstance(path, str) else "must be text"
        if wrong is not None:
            raise BrokenRule(number, wrong, path)
    return tuple(value)


def _checks(value: object) -> tuple[Check, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of checks")
    for number, check in enumerate(value):
        wrong = not_a_check(check)
        if wrong is not None:
            raise BrokenRule(number, wrong, check)
    return tuple(value)


class WorkspaceSpec(SpecBase):
    """The part of the repository that a task works on, and the rules for it."""

    prefix: Annotated[str, PlainValidator(_prefix)] = "/"
    """The folder of the repository that the task sees and publishes, such as `/events`; `/` is the whole repository."""

    reads: Annotated[tuple[str, ...] | None, PlainValidator(_paths)] = None
    """The files and folders below the prefix that the task reads, such as `("plays", "songs")`; None means all of them.

    The task sees only these and `writes`, and only they are downloaded. They are plain paths, without patterns:
    `plays` is the file or folder with that name, never `plays-old`. A name in braces is filled with the value of that
    param, so `raw/day={day}` is another folder for each day.
    """

    writes: Annotated[tuple[str, ...] | None, PlainValidator(_paths)] = None
    """The files and folders below the prefix that the task may change; None means everything that it reads.

    If the task creates, changes or deletes a file anywhere else, the attempt fails and nothing is published.
    """

    pre: Annotated[Sequence[Check], PlainValidator(_checks)] = ()
    """Checks on the input, run before the body. If one fails, the task fails without a retry."""

    post: Annotated[Sequence[Check], PlainValidator(_checks)] = ()
    """Checks on the result, run after the body. If one fails, the attempt fails and nothing is published."""

    read_only: Flag = False
    """True if the task only reads. It then publishes nothing, and its output is the commit of its input."""

    on_abandoned: AbandonedName = DEFAULT.on_abandoned
    """The action that a retry takes on an earlier attempt's publication that Conductor never accepted.

    `replace` moves the branch back to undo it. `supersede` publishes on top of it, which also works on protected
    branches. `reuse` does the same, but skips the body if the branch already contains the result of the same input.
    """

    unsigned: UnsignedName = "replace"
    """The action that an attempt takes on a commit that no task signed, made right after its input.

    `replace` takes it for an abandoned publication: the commit leaves the branch, and a tag keeps it. `refuse` fails the
    attempt and keeps the commit; use it wherever people also commit by hand. With `supersede` and `reuse`, it is always
    `refuse`.
    """

    on_advanced: AdvancedName = "refuse"
    """The action that an attempt takes if others have advanced the branch since its input.

    `refuse` fails the attempt. `rebase` publishes on top of their commits if nothing that the task sees has changed. It
    requires `on_abandoned` to be `supersede` or `reuse`.
    """

    placement: Placement = "auto"
    """The location of a Spark task's files. `local`: in a folder on the worker. `direct`: on the staging branch, which
    the whole cluster reads and writes. `auto`: `local` if Spark's master is local, otherwise `direct`."""

    @model_validator(mode="before")
    @classmethod
    def _default_for_unsigned(cls, values: Any) -> Any:
        """Set `unsigned` to `refuse` if the policy never replaces a commit, and the author has not set it."""
        if not isinstance(values, dict) or "unsigned" in values:
            return values
        policy = next((one for name, one in POLICIES.items() if name == values.get("on_abandoned")), DEFAULT)
        return values if policy.relocates else values | {"unsigned": REFUSE_UNSIGNED}

    @model_validator(mode="after")
    def _read_only_publishes_nothing(self) -> Self:
        rule = "has no meaning with read_only=True: such a task publishes nothing"
        if self.read_only and self.on_abandoned != DEFAULT.on_abandoned:
            raise BrokenRule("on_abandoned", rule, self.on_abandoned)
        if self.read_only and self.unsigned == REFUSE_UNSIGNED:
            raise BrokenRule("unsigned", rule, self.unsigned)
        return self

    @model_validator(mode="after")
    def _only_replace_replaces(self) -> Self:
        if not self.policy.relocates and self.unsigned != REFUSE_UNSIGNED:
            rule = (
                f'must be "{REFUSE_UNSIGNED}" with {declaration_text(self.policy)}, which never replaces a commit: '
                "leave it out"
            )
            raise BrokenRule("unsigned", rule, self.unsigned)
        return self

    @model_validator(mode="after")
    def _view_can_be_worked_in(self) -> Self:
        if self.read_only and self.writes is not None:
            rule = "has no meaning with read_only=True: such a task publishes nothing"
            raise BrokenRule("writes", rule, self.writes)
        if self.writes is not None and not self.writes:
            raise BrokenRule("writes", "must name a path; a task that changes nothing has read_only=True", ())
        if self.reads is not None and not (self.reads or self.writes):
            raise BrokenRule(
                "reads", "must name a path where no writes are given: the task would see nothing", ()
            )
        for field, paths in (("reads", self.reads), ("writes", self.writes)):
            for number, path in enumerate(paths or ()):
                if in_actions(f"{self.object_prefix}{path}/"):
                    rule = f"must not be inside {ACTIONS}, where lakeFS keeps its actions"
                    raise BrokenRule(f"{field}[{number}]", rule, path)
        return self

    @model_validator(mode="after")
    def _checks_look_into_the_view(self) -> Self:
        for field, checks in (("pre", self.pre), ("post", self.post)):
            for number, check in enumerate(checks):
                if templates.is_certainly_outside(check, self):
                    rule = (
                        f"{label(check)} looks outside what the task sees ({self._described_view()}); "
                        "name that path in reads, or leave the check out"
                    )
                    raise BrokenRule(f"{field}[{number}]", rule)
        for number, check in enumerate(self.pre):
            if getattr(check, "compares", False):
                rule = f"{label(check)} compares the result with the input, so it belongs in post"
                raise BrokenRule(f"pre[{number}]", rule)
        return self

    @model_validator(mode="after")
    def _rebase_restages(self) -> Self:
        if self.rebases and self.read_only:
            rule = "has no meaning with read_only=True: such a task publishes nothing"
            raise BrokenRule("on_advanced", rule, self.on_advanced)
        if self.rebases and not POLICIES[self.on_abandoned].restages:
            rule = (
                f"needs {declaration_text(SUPERSEDE)} or {declaration_text(REUSE)}: "
                f"with {declaration_text(POLICIES[self.on_abandoned])} a retry "
                "moves the branch back, and would take the commits of others along"
            )
            raise BrokenRule("on_advanced", rule, self.on_advanced)
        return self

    @property
    def view(self) -> View:
        """The paths that the task sees and may change.

        Until the spec is `filled`, a path that names params is represented by the folders above the first of them.
        """
        return templates.view_of(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the params in `reads` and `writes`, in order; empty if the paths are the same in each attempt."""
        return template_names((*(self.reads or ()), *(self.writes or ())))

    def filled(self, params: BaseModel) -> WorkspaceSpec:
        """Return the spec of one attempt, whose paths are filled with the values of its params.

        Values are escaped as Spark escapes them in the names of partition folders.  Raises `TaskInputError`, naming the
        param, if a value cannot fill a path.
        """
        if not self.names:
            return self
        texts = templates.param_texts(self, params)
        problems = [
            problem
            for path in (*(self.reads or ()), *(self.writes or ()))
            if (problem := self._misfilled(path, texts))
        ]
        if problems:
            raise TaskInputError("; ".join(dict.fromkeys(problems)))
        return self.model_copy(
            update={
                "reads": None if self.reads is None else tuple(fill(path, texts) for path in self.reads),
                "writes": None if self.writes is None else tuple(fill(path, texts) for path in self.writes),
                "pre": tuple(templates.fill_check(check, texts) for check in self.pre),
                "post": tuple(templates.fill_check(check, texts) for check in self.post),
            }
        )

    def _misfilled(self, path: str, texts: Mapping[str, str]) -> str | None:
        """Return the message for a path that breaks a rule once it is filled, or None."""
        filled = fill(path, texts)
        object_path = f"{self.object_prefix}{filled}"
        rule = first_broken(filled, _NO_PATH)
        if rule is None and in_actions(f"{object_path}/"):
            rule = f"must not be inside {ACTIONS}, where lakeFS keeps its actions"
        if rule is None and len(object_path.encode()) > LONGEST_PATH:
            rule = f"must not be longer than {LONGEST_PATH} bytes"
        return (
            None if rule is None else templates.cannot_fill(template_names([path]), path, f"the path {rule}")
        )

    def _described_view(self) -> str:
        if self.names:
            return ", ".join(dict.fromkeys((*(self.reads or ()), *(self.writes or ()))))
        return self.view.describe_roots(self.view.roots)

    @property
    def policy(self) -> Policy:
        """The policy for commits that an attempt finds on top of its input."""
        return policy_of(self.on_abandoned, self.unsigned)

    @property
    def rebases(self) -> bool:
        """True if an attempt may publish on top of others' commits."""
        return self.on_advanced == REBASE

    @property
    def object_prefix(self) -> str:
        """The prefix of the workspace's object names: empty for the root, otherwise a path such as `a/b/`."""
        return "" if self.prefix == "/" else self.prefix[1:] + "/"
