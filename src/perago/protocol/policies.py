"""The `on_abandoned` policies: how an attempt treats commits that earlier attempts of its step left on the branch.

    policy       relocates    restages    records results
    replace      yes          no          no
    supersede    no           yes         no
    reuse        no           yes         yes

- relocates: moves the branch back to undo an abandoned publication.  No server can fence that move, a protected branch
  rejects it, and it skips pre-merge actions and ignores uncommitted objects, so all of these are checked first.
- restages: publishes by merge, on top of its own step's commits.
- records results: stores the result in the publication, so that a retry with the same input can return it.

`on_advanced` decides what an attempt does if others have advanced the branch since its input.  `refuse` fails the
attempt.  `rebase` publishes on top of their commits if nothing that the task sees has changed.  It requires a policy
that restages, because moving the branch back would also remove others' commits.

No other module compares policy names.  They all use the properties of `Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["replace", "supersede", "reuse"]
AdvancedName = Literal["refuse", "rebase"]
REBASE: AdvancedName = "rebase"
REBASES = f'on_advanced="{REBASE}"'
"""The text of the declaration that lets a task publish on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the policy table.  `column` is the policy's column in `publication.TABLE`."""

    name: PolicyName
    column: Literal["replace", "supersede"]
    relocates: bool = False
    restages: bool = False
    records_results: bool = False

    @property
    def fits_hard_fence(self) -> bool:
        """True if the server itself can fence every publication under this policy."""
        return not self.relocates

    @property
    def fits_protected_branch(self) -> bool:
        """True if the policy publishes only by merge, which a protected branch allows."""
        return not self.relocates

    @property
    def checks_before_relocating(self) -> bool:
        """True if uncommitted objects and pre-merge actions must be checked, because a relocation bypasses them."""
        return self.relocates


REPLACE = Policy("replace", column="replace", relocates=True)
SUPERSEDE = Policy("supersede", column="supersede", restages=True)
REUSE = Policy("reuse", column="supersede", restages=True, records_results=True)

DEFAULT = REPLACE
POLICIES: Mapping[PolicyName, Policy] = {policy.name: policy for policy in (REPLACE, SUPERSEDE, REUSE)}


def declaration_text(policy: Policy) -> str:
    """Return a policy as written in a task's declaration, for messages that recommend it."""
    return f'on_abandoned="{policy.name}"'
