"""Which action files stand before a branch, by what lakeFS itself would run."""

from __future__ import annotations

import pytest

from perago.lake.lakefs.premerge_actions import is_gate

HOOKS = "hooks: [{id: audit, type: webhook, properties: {url: 'http://localhost/'}}]\n"


def action(on: str) -> bytes:
    return f"name: audit\n{on}\n{HOOKS}".encode()


@pytest.mark.parametrize(
    "on",
    [
        "on: {pre-merge: }",
        "on:\n  pre-merge:",
        "on:\n  pre-merge: ~",
        "on:\n  pre-merge:\n    branches:",
        "on:\n  pre-merge:\n    branches: []",
        "on:\n  pre-merge:\n    branches: [main]",
        "on:\n  pre-merge:\n    branches: [release, 'ma*']",
        "on:\n  pre-merge:\n    branches: ['m?in']",
        "on:\n  pre-merge:\n    branches: ['[k-n]ain']",
        "on:\n  pre-merge:\n    branches: ['[^a-f]ain']",
        "on:\n  pre-merge:\n    branches: ['m\\ain']",
        "on:\n  post-merge:\n  'pre-merge': {branches: ['*']}",
    ],
)
def test_a_pre_merge_action_that_applies_to_the_branch_is_a_gate(on: str) -> None:
    assert is_gate(action(on), "main")


@pytest.mark.parametrize(
    "on",
    [
        "on: {post-merge: {branches: [main]}}",
        "on: {pre-commit: , post-commit: }",
        "on: {pre-merge: {branches: [release]}}",
        "on: {pre-merge: {branches: ['release-*', 'mai', 'mainly', 'm?']}}",
        "on: {pre-merge: {branches: ['[a-f]ain', '[^m]ain', 'main-[0-9]*']}}",
        "on: {pre-merge: {branches: ['\\*']}}",
    ],
)
def test_other_events_and_other_branches_are_none(on: str) -> None:
    assert not is_gate(action(on), "main")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00",
        b"name: [",
        b"- a list",
        b"just words",
        b"[" * 5000,
        action("on: pre-merge"),
        action("on: [pre-merge]"),
        action("on: {pre-merge: main}"),
        action("on: {pre-merge: {branches: main}}"),
        action("on: {pre-merge: {branches: [[main]]}}"),
        action("on: {pre-merge: {branches: ['[']}}"),
        action("on: {pre-merge: {branches: ['[z-a]']}}"),
        action("other: &all {pre-merge: }\non: {<<: *all}"),
    ],
)
def test_an_action_that_cannot_be_parsed_counts_as_a_gate(text: bytes) -> None:
    assert is_gate(text, "main")
