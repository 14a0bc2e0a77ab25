"""Own commits aside: which commits are compared, and which staging may still be merged."""

from __future__ import annotations

import itertools

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY
from perago.protocol.publication import Commit, own_commits
from perago.protocol.rebase import commits_in_segment, reusable_staging_base, segments

ATTEMPT = Attempt("wf", "task-2", "clean", "clean_events", retry_count=1, seq=1, iteration=0)


def branch(makers: str) -> list[Commit]:
    """Commits c1, c2 … on A, newest first; `O` is the step's own, `o` another one's."""
    found: list[Commit] = []
    for number, maker in enumerate(makers, start=1):
        parent = f"c{number - 1}" if number > 1 else "A"
        signed = {KEY: "wf/clean"} if maker == "O" else {KEY: "another-wf/other"}
        found.insert(0, Commit(f"c{number}", (parent,), metadata=signed))
    return found


@pytest.mark.parametrize(
    ("makers", "expected"),
    [
        ("o", [("A", "c1")]),
        ("ooo", [("A", "c3")]),
        ("oOo", [("A", "c1"), ("c2", "c3")]),
        ("Oo", [("c1", "c2")]),
        ("oO", [("A", "c1")]),
        ("O", []),
        ("OO", []),
        ("OoO", [("c1", "c2")]),
        ("ooOoOOoo", [("A", "c2"), ("c3", "c4"), ("c6", "c8")]),
    ],
)
def test_the_view_is_compared_at_both_ends_of_what_others_made(
    makers: str, expected: list[tuple[str, str]]
) -> None:
    assert segments(ATTEMPT, "A", branch(makers)) == expected


@pytest.mark.parametrize(
    "makers", ["".join(made) for n in range(1, 6) for made in itertools.product("Oo", repeat=n)]
)
def test_every_commit_of_others_lies_in_one_segment_and_no_own_one_does(makers: str) -> None:
    advance = branch(makers)
    inside = [
        commit
        for segment in segments(ATTEMPT, "A", advance)
        for commit in commits_in_segment(segment, advance)
    ]
    own = own_commits(ATTEMPT, advance)
    assert inside == [commit for commit in reversed(advance) if commit not in own]


@pytest.mark.parametrize(
    ("makers", "bases", "expected"),
    [
        ("oo", {"c2"}, "c2"),
        ("oo", {"c1"}, "c1"),
        ("ooo", {"c1", "c2"}, "c2"),
        ("oO", {"c2"}, "c2"),
        ("oO", {"c1"}, None),
        ("oOo", {"c2"}, "c2"),
        ("oOo", {"c1"}, None),
        ("oo", {"gone"}, None),
        ("oo", {"A"}, None),
        ("oo", set(), None),
    ],
)
def test_a_staging_fits_until_an_own_commit_comes_after_it(
    makers: str, bases: set[str], expected: str | None
) -> None:
    assert reusable_staging_base(ATTEMPT, branch(makers), bases) == expected
