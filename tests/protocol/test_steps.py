"""The table of steps: its rows in the module's own words, and what must hold from one row to the next."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from perago.protocol import steps
from perago.protocol.steps import CLAIM, HAND_OVER, NOT_BEGUN, ORDER, PUBLISH, STAGE, Step, step_named


def test_the_words_at_the_top_are_the_table() -> None:
    rows = re.findall(
        r"^    (\w[\w ]*?) {2,}(none|direct|any) {2,}(\w[\w ]*)$", steps.__doc__ or "", re.MULTILINE
    )

    assert rows == [(step.name, step.staging, step.claim) for step in ORDER]


@pytest.mark.parametrize("step", [NOT_BEGUN, *ORDER])
def test_a_step_is_found_by_its_name(step: Step) -> None:
    assert step_named(step.name) is step


def test_an_unknown_step_has_no_row() -> None:
    with pytest.raises(KeyError):
        step_named("lunch")


def test_a_staging_branch_that_may_be_there_may_be_there_until_the_end() -> None:
    strength = ["none", "direct", "any"]

    assert all(strength.index(a.staging) <= strength.index(b.staging) for a, b in pairwise(ORDER))
    assert not NOT_BEGUN.may_have_staging


def test_a_claim_is_given_up_only_where_one_may_be_and_never_while_the_branch_may_move() -> None:
    assert [step for step in (NOT_BEGUN, *ORDER) if step.may_give_up_claim] == [STAGE, CLAIM]
    assert [step for step in ORDER if step.claim == "in flight"] == [PUBLISH, HAND_OVER]
