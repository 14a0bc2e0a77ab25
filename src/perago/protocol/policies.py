"""What each `on_abandoned` policy allows: how an attempt treats what earlier attempts of its step have left on the branch.

    policy       relocates    restages    records results
    replace      yes          no          no
    supersede    no           yes         no
    reuse        no           yes         yes

- relocates: moves the branch back over an abandoned publication.  No server can fence that move, a protected branch refuses
  it, and it passes by pre-merge actions and uncommitted objects: so all of these are asked about.
- restages: publishes by merge, on top of its own step's commits.
- records results: keeps the result in the publication, and answers equal work from there.

`on_advanced` says what an attempt does where others have advanced the branch since its input: `refuse`, or `rebase`, publish
on top of them if nothing that the task sees has changed.  That needs a policy that restages: moving a branch back would
take others' commits along.

Nothing else compares the name of a policy: who needs to know asks the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PolicyName = Literal["replace", "supersede", "reuse"]
AdvancedName = Literal["refuse", "rebase"]
REBASE: AdvancedName = "rebase"
REBASES = f'on_advanced="{REBASE}"'
"""How a task declares that it publishes on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table; `column` is where the publication table has its decisions."""

    name: PolicyName
    column: Literal["replace", "supersede"]
    relocates: bool = False
    restages: bool = False
    records_results: bool = False

    @property
    def fits_hard_fence(self) -> bool:
        """Whether every way to publish can be compared by the server itself."""
        return not self.relocates

    @property
    def fits_protected_branch(self) -> bool:
        """Whether it publishes by merge alone, which a protected branch allows."""
        return not self.relocates

    @property
    def asks_what_a_move_passes_by(self) -> bool:
        """Whether uncommitted objects and pre-merge actions stand in its way."""
        return self.relocates


REPLACE = Policy("replace", column="replace", relocates=True)
SUPERSEDE = Policy("supersede", column="supersede", restages=True)
REUSE = Policy("reuse", column="supersede", restages=True, records_results=True)

DEFAULT = REPLACE
POLICIES: Mapping[PolicyName, Policy] = {policy.name: policy for policy in (REPLACE, SUPERSEDE, REUSE)}


def declared(policy: Policy) -> str:
    """How a task declares the policy, for messages that recommend it."""
    return f'on_abandoned="{policy.name}"'
