"""What a task says about its workspace: the part it sees, its checks, and what a retry does.

The rule: a spec that exists is right.  `prefix` reads as people write it (`/`, `/a/b`), `object_prefix` is the
form that object names begin with, cut at path parts, so that `/audio` never sees `audiobook/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import PlainValidator, model_validator

from perago.declare.checks import Check, not_a_check
from perago.declare.declared import Declared, Flag
from perago.declare.mistakes import BrokenRule
from perago.protocol.paths import (
    ACTIONS,
    either,
    first_broken,
    has_backslash,
    has_control_character,
    has_dot_part,
    has_empty_part,
    has_outer_space,
    in_actions,
    is_empty,
    leads_out,
)
from perago.protocol.policies import (
    DEFAULT,
    POLICIES,
    REBASE,
    REUSE,
    SUPERSEDE,
    AdvancedName,
    PolicyName,
    declared,
)

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


def _checks(value: object) -> tuple[Check, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of checks")
    for number, check in enumerate(value):
        wrong = not_a_check(check)
        if wrong is not None:
            raise BrokenRule(number, wrong, check)
    return tuple(value)


class WorkspaceSpec(Declared):
    """The part of the repository a task works on, and the rules it works by."""

    prefix: Annotated[str, PlainValidator(_prefix)] = "/"
    """The folder of the repository that the task sees and publishes, such as `/events`; `/` is all of it."""

    pre: Annotated[Sequence[Check], PlainValidator(_checks)] = ()
    """Checks on the input, run before the body. One that fails ends the task for good, without a retry."""

    post: Annotated[Sequence[Check], PlainValidator(_checks)] = ()
    """Checks on the result, run after the body. One that fails fails the attempt, and nothing is published."""

    read_only: Flag = False
    """Whether the task only reads: it publishes nothing, and its output is its input's commit."""

    on_abandoned: PolicyName = DEFAULT.name
    """What a retry does with a publication of an earlier attempt that Conductor never accepted.

    `replace` moves the branch back over it, `supersede` publishes on top of it (the one for protected branches), `reuse`
    does the same and skips the body where the branch already holds the result of the same input.
    """

    on_advanced: AdvancedName = "refuse"
    """What an attempt does when others have advanced the branch since its input.

    `refuse` fails it. `rebase` publishes on top of them if nothing that the task sees has changed; it needs `on_abandoned`
    `supersede` or `reuse`.
    """

    placement: Placement = "auto"
    """Where a Spark task's files are: `local` in a folder of the worker, `direct` on the staging branch, which the whole
    cluster reads and writes; `auto` is `direct` unless Spark's master is local."""

    @model_validator(mode="after")
    def _read_only_publishes_nothing(self) -> Self:
        if self.read_only and self.on_abandoned != DEFAULT.name:
            rule = "has no meaning with read_only=True: such a task publishes nothing"
            raise BrokenRule("on_abandoned", rule, self.on_abandoned)
        return self

    @model_validator(mode="after")
    def _rebase_restages(self) -> Self:
        if self.rebases and self.read_only:
            rule = "has no meaning with read_only=True: such a task publishes nothing"
            raise BrokenRule("on_advanced", rule, self.on_advanced)
        if self.rebases and not POLICIES[self.on_abandoned].restages:
            rule = (
                f"needs {declared(SUPERSEDE)} or {declared(REUSE)}: with {declared(POLICIES[self.on_abandoned])} a retry "
                "moves the branch back, and would take the commits of others along"
            )
            raise BrokenRule("on_advanced", rule, self.on_advanced)
        return self

    @property
    def rebases(self) -> bool:
        """Whether an attempt may publish on top of others' commits."""
        return self.on_advanced == REBASE

    @property
    def object_prefix(self) -> str:
        """What the names of the workspace's objects begin with: empty for the root, else `a/b/`."""
        return "" if self.prefix == "/" else self.prefix[1:] + "/"
