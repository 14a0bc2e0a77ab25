"""The `on_abandoned` policies: how an attempt treats commits that earlier attempts of its step left on the branch.

    policy            relocates    replaces unsigned    restages    records results
    replace           yes          yes                  no          no
    replace-signed    yes          no                   no          no
    supersede         no           no                   yes         no
    reuse             no           no                   yes         yes

- relocates: moves the branch back to undo an abandoned publication.  No server can fence that move, a protected branch
  rejects it, and it skips pre-merge actions and ignores uncommitted objects, so all of these are checked first.
- replaces unsigned: takes a commit that no task signed, right after its input, for an abandoned publication.  A person
  may have made it.  `unsigned="refuse"` turns `replace` into `replace-signed`, which refuses such a commit.
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

AbandonedName = Literal["replace", "supersede", "reuse"]
UnsignedName = Literal["replace", "refuse"]
PolicyName = Literal["replace", "replace-signed", "supersede", "reuse"]
AdvancedName = Literal["refuse", "rebase"]
REBASE: AdvancedName = "rebase"
REFUSE_UNSIGNED: UnsignedName = "refuse"
REBASES = f'on_advanced="{REBASE}"'
"""The text of the declaration that lets a task publish on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the policy table.  `column` is the policy's column in `publication.TABLE`."""

    name: PolicyName
    on_abandoned: AbandonedName
    column: Literal["replace", "supersede"]
    relocates: bool = False
    replaces_unsigned: bool = False
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


REPLACE = Policy("replace", "replace", column="replace", relocates=True, replaces_unsigned=True)
REPLACE_SIGNED = Policy("replace-signed", "replace", column="replace", relocates=True)
SUPERSEDE = Policy("supersede", "supersede", column="supersede", restages=True)
REUSE = Policy("reuse", "reuse", column="supersede", restages=True, records_results=True)

DEFAULT = REPLACE
POLICIES: Mapping[PolicyName, Policy] = {
    policy.name: policy for policy in (REPLACE, REPLACE_SIGNED, SUPERSEDE, REUSE)
}


def policy_of(on_abandoned: AbandonedName, unsigned: UnsignedName) -> Policy:
    """Return the policy that a declaration selects."""
    policy = POLICIES[on_abandoned]
    return REPLACE_SIGNED if policy.replaces_unsigned and unsigned == REFUSE_UNSIGNED else policy


def declaration_text(policy: Policy) -> str:
    """Return a policy as written in a task's declaration, for messages that recommend it."""
    refused = f', unsigned="{REFUSE_UNSIGNED}"' if policy.relocates and not policy.replaces_unsigned else ""
    return f'on_abandoned="{policy.on_abandoned}"{refused}'
