"""Putting a folder beside others who write: whole or not at all, and never over what somebody else just did."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeRefused, LakeUnavailable
from perago.lake.base import Lake, Upload
from perago.lake.local.lake import LocalLake
from perago.protocol.names import put_branch_name
from perago.runtime.folder_put import Putting, Target, plan_put, read_folder
from tests.support.ports import Wrapped, before, refusing

TARGET = Target("songs", "main")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    with closing(LocalLake(tmp_path / "lake")) as opened:
        opened.create_repository("songs")
        put(opened, tmp_path, {"kept": "1", "changed": "1"})
        yield opened


def put(lake: Lake, folder: Path, files: dict[str, str], *, delete: bool = False) -> str:
    """What `perago put` does; the commit."""
    target = Target("songs", "main", delete=delete)
    uploads = read(lake, folder, files, target)
    putting = Putting(lake, target, uploads, names())
    return putting.publish(plan_put(lake, target, uploads), "put", lambda *_: nullcontext())[0]


def read(lake: Lake, folder: Path, files: dict[str, str], target: Target = TARGET) -> list[Upload]:
    at = folder / f"in-{next(_numbers)}"
    at.mkdir()
    for path, text in files.items():
        (at / path).write_text(text)
    return read_folder(lake, target, at, leave_out=folder / "lake")


_numbers = itertools.count()


def names() -> Iterator[str]:
    return (put_branch_name(1e9, f"{number:012x}") for number in _numbers)


def files(lake: Lake) -> dict[str, str]:
    return {
        entry.path: b"".join(lake.read("songs", "main", entry.path)).decode()
        for entry in lake.list("songs", "main", "")
    }


def left(lake: Lake) -> list[str]:
    return [branch.name for branch in lake.branches("songs", "perago-")]


def test_a_head_that_moved_elsewhere_is_put_on_top_of(lake: LocalLake, tmp_path: Path) -> None:
    others = before(lake, "merge", lambda: put(lake, tmp_path, {"theirs": "2"}))

    commit = put(others, tmp_path, {"ours": "3"})

    assert files(lake) == {"kept": "1", "changed": "1", "theirs": "2", "ours": "3"}
    assert lake.head("songs", "main").id == commit
    assert left(lake) == []


def test_a_file_that_somebody_changed_meanwhile_is_not_covered(lake: LocalLake, tmp_path: Path) -> None:
    others = before(lake, "merge", lambda: put(lake, tmp_path, {"changed": "theirs"}))

    with pytest.raises(LakeRefused, match=r"moved to .* files that this put is about; nothing was put"):
        put(others, tmp_path, {"changed": "ours"})

    assert files(lake) == {"kept": "1", "changed": "theirs"}
    assert left(lake) == []


def test_a_file_that_came_meanwhile_is_not_deleted(lake: LocalLake, tmp_path: Path) -> None:
    others = before(lake, "merge", lambda: put(lake, tmp_path, {"theirs": "2"}))

    with pytest.raises(LakeRefused, match="nothing was put"):
        put(others, tmp_path, {"changed": "ours"}, delete=True)

    assert files(lake) == {"kept": "1", "changed": "1", "theirs": "2"}


def test_a_branch_that_always_moves_is_given_up_on(lake: LocalLake, tmp_path: Path) -> None:
    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "merge":
            put(lake, tmp_path, {f"theirs-{next(_numbers)}": "2"})
        return call(*arguments)

    with pytest.raises(LakeRefused, match="moved 5 times while files were put; nothing was put"):
        put(Wrapped(lake, around), tmp_path, {"ours": "3"})  # type: ignore[arg-type]

    assert "ours" not in files(lake)
    assert left(lake) == []


def test_a_branch_with_uncommitted_objects_is_refused_with_the_way_on(
    lake: LocalLake, tmp_path: Path
) -> None:
    lake.upload("songs", "main", read(lake, tmp_path, {"loose": "1"}))

    with pytest.raises(
        LakeRefused, match="has uncommitted objects, and nothing was put: commit or reset them"
    ):
        put(lake, tmp_path, {"ours": "3"})

    assert left(lake) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_merge_without_an_answer_is_settled_by_the_branch(
    lake: LocalLake, tmp_path: Path, landed: bool
) -> None:
    calls: list[str] = []

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls.append(name)
        if name == "merge":
            if landed:
                call(*arguments)
            raise LakeUnavailable("the connection was cut")
        return call(*arguments)

    cut: Any = Wrapped(lake, around)
    if landed:
        assert put(cut, tmp_path, {"ours": "3"}) == lake.head("songs", "main").id
    else:
        with pytest.raises(LakeUnavailable, match="nothing was put, run the command again: the connection"):
            put(cut, tmp_path, {"ours": "3"})

    assert ("ours" in files(lake)) is landed
    after = calls[calls.index("merge") :]
    assert after.index("drop_branch") < after.index("barrier") < after.index("log"), (
        "only then it cannot land late"
    )


def test_an_outcome_that_cannot_be_found_out_is_said_to_be_unknown(lake: LocalLake, tmp_path: Path) -> None:
    away = refusing(lake, "merge", "barrier", error=LakeUnavailable("the server is away"))

    with pytest.raises(
        LakeUnavailable, match="look with `perago history songs main` before you run it again"
    ):
        put(away, tmp_path, {"ours": "3"})


def test_a_put_that_dies_before_its_merge_shows_nothing_to_readers(lake: LocalLake, tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name in ("merge", "drop_branch"):
            raise Died
        return call(*arguments)

    with pytest.raises(Died):
        put(Wrapped(lake, around), tmp_path, {"changed": "ours", "ours": "3"})  # type: ignore[arg-type]

    assert files(lake) == {"kept": "1", "changed": "1"}
    assert not lake.uncommitted("songs", "main")
    assert all(name.startswith("perago-put-1000000000-") for name in left(lake)), "a sweep knows its age"


def test_a_hard_fence_that_is_asked_for_and_not_there_puts_nothing(lake: LocalLake, tmp_path: Path) -> None:
    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return {"fence_level": "soft", "why_soft": "carries no fence"}.get(name) or call(*arguments)

    soft: Any = Wrapped(lake, around)
    target = Target("songs", "main", fence="hard")
    uploads = read(lake, tmp_path, {"ours": "3"}, target)

    with pytest.raises(LakeRefused, match=r"PERAGO_FENCE=hard, but .* carries no fence"):
        Putting(soft, target, uploads, names()).publish(
            plan_put(soft, target, uploads), "put", lambda *_: nullcontext()
        )
    assert "ours" not in files(lake)
