"""Joining: which commit comes last, what is below it, and what of a publication must not have changed since."""

from __future__ import annotations

import pytest

from perago.protocol.publication import MAX_RANGE, Commit
from perago.protocol.workspace_join import (
    candidates,
    changed_since_reason,
    find_ancestors,
    not_joinable_reason,
    segments_to_compare,
    written_by,
)


def chain(count: int, **metadata: str) -> list[Commit]:
    """c0, c1 … one after the other, newest first."""
    return [Commit(f"c{n}", (f"c{n - 1}",) if n else (), "", metadata, 0) for n in range(count)][::-1]


def test_the_commit_that_is_no_parent_is_tried_first_then_the_newest() -> None:
    two, one, zero = chain(3)
    assert [commit.id for commit in candidates([zero, one, two, one])] == ["c2", "c0", "c1"]
    late, early = Commit("late", ("x",), created=2), Commit("early", ("y",), created=1)
    assert candidates([early, late]) == [late, early]


def test_what_is_below_is_found_with_the_commits_above_it() -> None:
    found = find_ancestors("c3", ["c1", "c3", "c2"], iter(chain(4)))
    assert {ref: [one.id for one in above] for ref, above in found.above.items()} == {
        "c2": ["c3"],
        "c1": ["c3", "c2"],
    }
    assert found.missing == ()


def test_history_is_read_no_further_than_needed() -> None:
    history = iter(chain(9))
    find_ancestors("c8", ["c7"], history)
    assert next(history).id == "c6"


@pytest.mark.parametrize(("back", "missing"), [(MAX_RANGE, ()), (MAX_RANGE + 1, ("c0",))])
def test_at_most_1024_commits_back(back: int, missing: tuple[str, ...]) -> None:
    assert find_ancestors(f"c{back}", ["c0"], chain(back + 1)).missing == missing


@pytest.mark.parametrize(
    ("metadata", "roots"),
    [
        ({}, ()),
        ({"perago.phase": "confirm"}, ()),
        (
            {"perago.phase": "confirm", "perago.logical_task_key": "w/s", "perago.writes": '["a", "b/"]'},
            ("a", "b/"),
        ),
        (
            {"perago.phase": "try", "perago.logical_task_key": "w/s", "perago.prefix": "/old/one"},
            ("old/one/",),
        ),
        ({"perago.phase": "try", "perago.logical_task_key": "w/s", "perago.prefix": "/"}, ("",)),
        ({"perago.phase": "try", "perago.logical_task_key": "w/s", "perago.writes": "no JSON"}, ("",)),
        ({"perago.phase": "try", "perago.logical_task_key": "w/s", "perago.writes": '"a"'}, ("a",)),
    ],
)
def test_a_publication_may_write_its_declared_paths(metadata: dict[str, str], roots: tuple[str, ...]) -> None:
    assert written_by(Commit("c", (), metadata=metadata)) == roots


@pytest.mark.parametrize(
    ("key", "input_ref", "segments"),
    [
        ("w/later", "c0", [("c2", "c3")]),
        ("w/later", "c1", [("c0", "c1"), ("c2", "c3")]),
        ("w/beside", "before", [("c0", "c3")]),
        ("ww/later", "c0", [("c0", "c3")]),
        ("", "c0", [("c0", "c3")]),
    ],
)
def test_steps_of_the_same_workflow_that_started_since_are_aside(
    key: str, input_ref: str, segments: list[tuple[str, str]]
) -> None:
    three, two, one, _ = chain(4)
    if segments[0] == ("c2", "c3"):
        two = Commit("c2", ("c0",), "", {"perago.logical_task_key": key, "perago.input_ref": input_ref})
        assert segments_to_compare("w", "c0", [three, two]) == segments
        return
    two = Commit("c2", ("c1",), "", {"perago.logical_task_key": key, "perago.input_ref": input_ref})
    assert segments_to_compare("w", "c0", [three, two, one]) == segments


def test_refusals_name_both_workspaces_and_what_came_in_between() -> None:
    assert not_joinable_reason("workspace[0]", "workspace[1]", "branch 'main'").startswith(
        "workspace[0] is not among the first-parent ancestors of workspace[1], at most 1024 back on branch 'main'"
    )
    said = changed_since_reason(
        "workspace[0]", "workspace[1]", "plays/a.csv", Commit("c1", ("c0",), "by hand")
    )
    assert "c1 (not made by Perago: 'by hand') changed 'plays/a.csv' in between" in said
