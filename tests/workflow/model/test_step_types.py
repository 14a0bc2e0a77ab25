"""The one table of step types: what the check of workflows, the worker of a run and `perago show` read from it."""

from __future__ import annotations

import pytest

from perago.workflow.model.step_types import BRING_NO_STEPS, NAMED, OWN


@pytest.mark.parametrize(
    ("kind", "own", "named", "brings_no_steps"),
    [
        ("SIMPLE", False, True, True),
        ("SWITCH", True, True, True),
        ("FORK_JOIN", True, True, True),
        # What Conductor's states call the task of a FORK_JOIN.
        ("FORK", True, False, False),
        ("HTTP", False, True, True),
        ("SUB_WORKFLOW", False, False, True),
        ("DYNAMIC", False, False, True),
        ("FORK_JOIN_DYNAMIC", False, False, False),
        ("clean_plays", False, False, False),
    ],
)
def test_each_step_type_has_its_meaning(kind: str, own: bool, named: bool, brings_no_steps: bool) -> None:
    assert (kind in OWN, kind in NAMED, kind in BRING_NO_STEPS) == (own, named, brings_no_steps)
