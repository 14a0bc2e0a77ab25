"""The table of policies: its words, and that no other module depends on a policy's name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import perago
from perago.declare.workspace import WorkspaceSpec
from perago.protocol import policies
from perago.protocol.policies import (
    DEFAULT,
    POLICIES,
    REPLACE,
    REPLACE_SIGNED,
    Policy,
    PolicyName,
    declaration_text,
)
from perago.protocol.publication import TABLE
from tests.support.docs.sources import parsed

MOVES_BACK = (REPLACE, REPLACE_SIGNED)
SRC = Path(perago.__file__).parent


def test_the_words_at_the_top_are_the_table() -> None:
    rows = re.findall(
        r"^    ([\w-]+) +(yes|no) +(yes|no) +(yes|no) +(yes|no)$", policies.__doc__ or "", re.MULTILINE
    )

    words = {True: "yes", False: "no"}
    assert rows == [
        (
            one.name,
            words[one.relocates],
            words[one.replaces_unsigned],
            words[one.restages],
            words[one.records_results],
        )
        for one in POLICIES.values()
    ]


def test_every_policy_that_can_be_declared_has_a_row() -> None:
    assert tuple(POLICIES) == get_args(PolicyName)
    assert WorkspaceSpec().policy is DEFAULT is REPLACE
    assert declaration_text(DEFAULT) == 'on_abandoned="replace"'


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_text_of_a_policy_declares_it(policy: Policy) -> None:
    assert eval(f"WorkspaceSpec({declaration_text(policy)})").policy is policy


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_does_what_its_column_of_the_publication_table_decides(policy: Policy) -> None:
    decided = {step for row in TABLE.values() for step in row[policy.column]}

    assert ("relocate" in decided, "restage" in decided) == (policy.relocates, policy.restages)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_only_a_policy_that_moves_the_branch_back_cannot_be_fenced_by_a_server(policy: Policy) -> None:
    assert policy.fits_hard_fence == policy.fits_protected_branch == (policy not in MOVES_BACK)
    assert policy.checks_before_relocating == (policy in MOVES_BACK)


def test_only_one_policy_takes_a_commit_that_no_task_signed_for_an_abandoned_publication() -> None:
    assert [policy for policy in POLICIES.values() if policy.replaces_unsigned] == [REPLACE]


def test_nothing_compares_the_name_of_a_policy() -> None:
    found = []
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Compare) and any(
                isinstance(part, ast.Constant) and part.value in POLICIES for part in ast.walk(node)
            ):
                found.append(f"{path.relative_to(SRC)}:{node.lineno}")

    assert found == []
