"""Putting a folder while others write: whole or not at all, and never over a concurrent change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeRefused, LakeUnavailable
from perago.lake.base import Upload
from perago.protocol.names import put_branch_name
from perago.runtime.folder_upload import FolderPut, Target, plan_put, read_folder
from tests.contract.lakes import LAKES
from tests.support.faults.ports import Wrapped, before, refusing


@dataclass(frozen=True, slots=True)
class Place:
    """A repository of a lake, and a folder to put from."""

    lake: Any
    repository: str
    folder: Path

    def seen_by(self, lake: Any) -> Place:
        """The same repository, through another port."""
        return replace(self, lake=lake)

    def target(self, **options: Any) -> Target:
        return Target(self.repository, "main", **options)

    def read(self, files: dict[str, str], target: Target | None = None) -> list[Upload]:
        at = self.folder / f"in-{next(_numbers)}"
        at.mkdir()
        for path, text in files.items():
            (at / path).write_text(text)
        return read_folder(self.lake, target or self.target(), at, leave_out=self.folder / "lake")

    def put(self, files: dict[str, str], **options: Any) -> str:
        """Upload a folder as `perago put` does; returns the commit."""
        target = self.target(**options)
        uploads = self.read(files, target)
        plan = plan_put(self.lake, target, uploads)
        put = FolderPut(self.lake, target, uploads, names())
        return put.publish(plan, "put", lambda *_: nullcontext())[0]

    def files(self) -> dict[str, str]:
        return {
            entry.path: b"".join(self.lake.read(self.repository, "main", entry.path)).decode()
            for entry in self.lake.list(self.repository, "main", "")
        }

    def left(self) -> list[str]:
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]


_numbers = itertools.count()


def names() -> Iterator[str]:
    return (put_branch_name(1e9, f"{number:012x}") for number in _numbers)


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items()])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with LAKES[request.param].open(request) as opened:
        made = Place(opened.lake, opened.repository, tmp_path)
        made.put({"kept": "1", "changed": "1"})
        yield made


def test_a_head_that_moved_elsewhere_is_put_on_top_of(place: Place) -> None:
    others = place.seen_by(before(place.lake, "merge", lambda: place.put({"theirs": "2"})))

    commit = others.put({"ours": "3"})

    assert place.files() == {"kept": "1", "changed": "1", "theirs": "2", "ours": "3"}
    assert place.lake.head(place.repository, "main").id == commit
    assert place.left() == []


def test_a_file_that_somebody_changed_meanwhile_is_not_covered(place: Place) -> None:
    others = place.seen_by(before(place.lake, "merge", lambda: place.put({"changed": "theirs"})))

    with pytest.raises(LakeRefused, match=r"moved to .* files that this put is about; nothing was put"):
        others.put({"changed": "ours"})

    assert place.files() == {"kept": "1", "changed": "theirs"}
    assert place.left() == []


def test_a_file_that_came_meanwhile_is_not_deleted(place: Place) -> None:
    others = place.seen_by(before(place.lake, "merge", lambda: place.put({"theirs": "2"})))

    with pytest.raises(LakeRefused, match="nothing was put"):
        others.put({"changed": "ours"}, delete=True)

    assert place.files() == {"kept": "1", "changed": "1", "theirs": "2"}


def test_a_branch_that_always_moves_is_given_up_on(place: Place) -> None:
    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "merge":
            place.put({f"theirs-{next(_numbers)}": "2"})
        return call(*arguments)

    with pytest.raises(LakeRefused, match="moved 5 times while files were put; nothing was put"):
        place.seen_by(Wrapped(place.lake, around)).put({"ours": "3"})

    assert "ours" not in place.files()
    assert place.left() == []


def test_a_branch_with_uncommitted_objects_is_refused_with_the_way_on(place: Place) -> None:
    place.lake.upload(place.repository, "main", place.read({"loose": "1"}))

    with pytest.raises(
        LakeRefused, match="has uncommitted objects, and nothing was put: commit or reset them"
    ):
        place.put({"ours": "3"})

    assert place.left() == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_merge_without_an_answer_is_settled_by_the_branch(place: Place, landed: bool) -> None:
    calls: list[str] = []

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls.append(name)
        if name == "merge":
            if landed:
                call(*arguments)
            raise LakeUnavailable("the connection was cut")
        return call(*arguments)

    cut = place.seen_by(Wrapped(place.lake, around))
    if landed:
        assert cut.put({"ours": "3"}) == place.lake.head(place.repository, "main").id
    else:
        with pytest.raises(LakeUnavailable, match="nothing was put, run the command again: the connection"):
            cut.put({"ours": "3"})

    assert ("ours" in place.files()) is landed
    after = calls[calls.index("merge") :]
    assert after.index("drop_branch") < after.index("barrier") < after.index("log"), (
        "only then it cannot land late"
    )


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown(place: Place) -> None:
    error = LakeUnavailable("the server is away")
    away = place.seen_by(refusing(place.lake, "merge", "barrier", error=error))

    with pytest.raises(
        LakeUnavailable, match=r"look with `perago history .* main --remote` before you run it again"
    ):
        away.put({"ours": "3"})


def test_a_put_that_dies_before_its_merge_shows_nothing_to_readers(place: Place) -> None:
    class Died(BaseException):
        pass

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in ("merge", "drop_branch"):
            raise Died
        return call(*arguments)

    with pytest.raises(Died):
        place.seen_by(Wrapped(place.lake, around)).put({"changed": "ours", "ours": "3"})

    assert place.files() == {"kept": "1", "changed": "1"}
    assert not place.lake.has_uncommitted_changes(place.repository, "main")
    assert all(name.startswith("perago-put-1000000000-") for name in place.left()), "a sweep knows its age"


def test_a_hard_fence_that_is_asked_for_and_not_there_puts_nothing(place: Place) -> None:
    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return {"fence_level": "soft", "fence_gap": "carries no fence"}.get(name) or call(*arguments)

    soft = place.seen_by(Wrapped(place.lake, around))

    with pytest.raises(LakeRefused, match=r"PERAGO_FENCE=hard, but .* carries no fence"):
        soft.put({"ours": "3"}, fence="hard")
    assert "ours" not in place.files()
