"""Steps that are forced by `--force` and `--full`."""

from __future__ import annotations

import pytest

from perago.protocol.ledger import NOTHING_FORCED, Recompute

LOAD = Recompute(steps=frozenset({"load"}))


@pytest.mark.parametrize(
    ("recompute", "reference", "forced"),
    [
        (NOTHING_FORCED, "load", False),
        (LOAD, "load", True),
        (LOAD, "clean", False),
        (LOAD, "load__2", True),
        (LOAD, "load__raw", False),
        (LOAD, "load__", False),
        (Recompute(steps=frozenset({"load__2"})), "load__2", True),
        (Recompute(steps=frozenset({"load__2"})), "load__1", False),
        (Recompute(full=True), "anything", True),
    ],
)
def test_a_step_is_forced_by_its_name_in_each_iteration(
    recompute: Recompute, reference: str, forced: bool
) -> None:
    assert recompute.forces(reference) is forced


def test_two_are_added_up_and_said_as_options() -> None:
    both = Recompute(full=True) | LOAD | Recompute(steps=frozenset({"clean"}))

    assert both.options == ["--full", "--force", "clean", "--force", "load"]
    assert [bool(one) for one in (both, LOAD, Recompute(full=True), NOTHING_FORCED)] == [
        True,
        True,
        True,
        False,
    ]
