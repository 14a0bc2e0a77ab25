"""The `on_abandoned` policies: how an attempt treats commits that earlier attempts of its step left on the branch.

    policy       relocates    restages    records results
    replace      yes          no          no
    supersede    no           yes         no
    reuse        no           yes         yes

- relocates: moves the branch back over an abandoned publication.  No server can fence that move, a protected branch refuses
  it, and it bypasses pre-merge actions and uncommitted objects: so all of these are checked first.
- restages: publishes by merge, on top of its own step's commits.
- records results: keeps the result in the publication, and answers equal work from there.

`on_advanced` decides what an attempt does if others have advanced the branch since its input: `refuse`, or `rebase`, which
publishes on top of them if nothing that the task sees has changed.  That needs a policy that restages: moving a branch back
would remove others' commits too.

No other module compares policy names: they read the row's properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["replace", "supersede", "reuse"]
AdvancedName = Literal["refuse", "rebase"]
REBASE: AdvancedName = "rebase"
REBASES = f'on_advanced="{REBASE}"'
"""The declaration of a task that publishes on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table; `column` is the policy's column in the publication table."""

    name: PolicyName
    column: Literal["replace", "supersede"]
    relocates: bool = False
    restages: bool = False
    records_results: bool = False

    @property
    def fits_hard_fence(self) -> bool:
        """True if the server itself can fence every way to publish."""
        return not self.relocates

    @property
    def fits_protected_branch(self) -> bool:
        """True if it publishes only by merge, which a protected branch allows."""
        return not self.relocates

    @property
    def asks_what_a_move_passes_by(self) -> bool:
        """True if uncommitted objects and pre-merge actions make it refuse."""
        return self.relocates


REPLACE = Policy("replace", column="replace", relocates=True)
SUPERSEDE = Policy("supersede", column="supersede", restages=True)
REUSE = Policy("reuse", column="supersede", restages=True, records_results=True)

DEFAULT = REPLACE
POLICIES: Mapping[PolicyName, Policy] = {policy.name: policy for policy in (REPLACE, SUPERSEDE, REUSE)}


def declared(policy: Policy) -> str:
    """Return the declaration of a policy, for messages that recommend it."""
    return f'on_abandoned="{policy.name}"'
