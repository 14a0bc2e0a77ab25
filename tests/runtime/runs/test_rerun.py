"""A run that starts at a step works on new branches, at the commits that the original steps were given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perago.lake.local.lake import LocalLake
from perago.runtime.runs.rerun import Sibling, redirections, siblings_of, with_last_joined_commit
from tests.support.processes.lake_writers import upload_of


@dataclass
class Done:
    seq: int
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Old:
    done: list[Done]
    after: list[Done]
    branches: dict[str, dict[str, str]] = field(default_factory=dict)


def on(ref: str, branch: str = "main", repository: str = "songs") -> dict[str, Any]:
    return {"workspace": {"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref}}


def test_the_branch_begins_at_what_the_step_was_given_and_not_where_the_run_left_it() -> None:
    old = Old([Done(1, on("A"), on("B"))], [Done(3, on("C"), on("D")), Done(2, on("B"), on("C"))])
    assert list(siblings_of(old, "two", "1a2b3c")) == [
        Sibling("songs", "main", "main-from-two-1a2b3c", "B", origin="main")
    ]


def test_every_branch_that_the_run_worked_on_gets_its_own() -> None:
    done = [Done(1, on("A"), on("B")), Done(2, on("X", "dev"), on("Y", "dev"))]
    found = list(siblings_of(Old(done, [Done(3, on("Y", "dev"))]), "three", "1a2b3c"))
    assert [(one.branch, one.commit) for one in found] == [("main", "B"), ("dev", "Y")]


def test_an_input_without_a_workspace_needs_no_branch() -> None:
    assert (
        list(siblings_of(Old([], [Done(1, {"params": {}}), Done(2, {"workspace": None})]), "one", "t")) == []
    )


def test_a_step_whose_name_no_branch_can_have_is_spelled_in_another_way() -> None:
    (found,) = siblings_of(Old([], [Done(1, on("A"))]), "ein/zwei drei", "t")
    assert found.name == "main-from-ein-zwei-drei-t"


def test_a_run_that_started_at_a_step_itself_is_followed_from_its_own_branch() -> None:
    moved = {"songs": {"main": "main-from-two-t"}}
    old = Old(
        [Done(1, on("A"), on("B")), Done(2, on("B", "main-from-two-t"))],
        [Done(3, on("C", "main-from-two-t"))],
        moved,
    )
    (found,) = siblings_of(old, "three", "u")
    assert found == Sibling("songs", "main-from-two-t", "main-from-three-u", "C", origin="main")
    assert redirections(moved, [found]) == {
        "songs": {"main-from-two-t": "main-from-three-u", "main": "main-from-three-u"}
    }


def test_a_step_that_joins_begins_at_the_commit_that_holds_all_of_it(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("songs")
    commits = []
    for name in ("one", "two"):
        lake.upload("songs", "main", [upload_of(tmp_path, name, b"a")])
        commits.append(lake.commit("songs", "main", name, {}))
    first, last = commits
    joins = {"workspace": [on(last)["workspace"], on(first)["workspace"]]}

    (found,) = siblings_of(Old([], [Done(3, joins)]), "sum", "t")

    assert found.joined == (last, first)
    assert with_last_joined_commit(lake, found).commit == last
