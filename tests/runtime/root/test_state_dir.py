"""Which processes are ours."""

from __future__ import annotations

from perago.runtime.root.state_dir import children


def test_a_child_that_one_look_has_missed_is_found_by_the_next_two() -> None:
    looks = iter([{1, 2}, {1}, {1, 2}, {1, 2}])
    assert children(lambda: next(looks)) == {1, 2}


def test_a_list_that_never_settles_is_taken_as_it_was_last_seen() -> None:
    looks = iter(range(100))
    assert children(lambda: {next(looks)}) == {5}
