"""`fsck` finds every kind of damage, and reads of damaged objects fail by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perago.errors import LakeError
from perago.lake.base import Download
from perago.lake.local.blobs import MOST_IN_DATABASE
from perago.lake.local.lake import LocalLake
from tests.support.worlds.lake_work import Work

LARGE = MOST_IN_DATABASE + 1
FIRST_LEAF = "CAST(body AS TEXT) LIKE '[0,[\"large\"%'"

Damage = Callable[[str, tuple[object, ...]], None]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("repo")
    yield lake
    lake.close()


@pytest.fixture
def commit(lake: LocalLake, tmp_path: Path) -> str:
    """A commit with a small and a large object and enough others for a tree of several levels."""
    objects = {f"many/{n:04}": b"%d" % n for n in range(300)}
    work = Work(lake, "repo", tmp_path / "files")
    return work.commit("main", {**objects, "large": b"l" * LARGE, "small": b"small"})


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    """Change the database past the lake's own code."""

    def run(statement: str, values: tuple[object, ...] = ()) -> None:
        with sqlite3.connect(tmp_path / "lake" / "lake.db") as db:
            assert db.execute(statement, values).rowcount > 0
        db.close()

    return run


def large_object(tmp_path: Path) -> Path:
    [file] = [file for file in (tmp_path / "lake" / "objects").rglob("*") if file.is_file()]
    file.chmod(0o644)
    return file


@pytest.mark.usefixtures("commit")
def test_a_whole_lake_has_no_problems_whatever_lies_in_incoming(lake: LocalLake, tmp_path: Path) -> None:
    (tmp_path / "lake" / "incoming" / "half").write_bytes(b"left by a killed process")
    assert lake.fsck() == []


def test_a_ref_to_a_missing_commit_is_found(lake: LocalLake, commit: str, damage: Damage) -> None:
    lake.create_tag("repo", "a-tag", commit)
    damage("DELETE FROM commits WHERE id = ?", (commit,))
    assert lake.fsck() == [
        f"branch 'main' of repository 'repo' is at commit {commit}, which is missing",
        f"tag 'a-tag' of repository 'repo' is at commit {commit}, which is missing",
    ]


def test_a_commit_whose_parent_is_missing_is_found(lake: LocalLake, commit: str, damage: Damage) -> None:
    parent = lake.commit_at("repo", commit).parents[0]
    damage("DELETE FROM commits WHERE id = ?", (parent,))
    assert lake.fsck() == [f"commit {commit} has the parent {parent}, which is missing"]


def test_a_changed_commit_is_found(lake: LocalLake, commit: str, damage: Damage) -> None:
    damage("UPDATE commits SET message = 'forged' WHERE id = ?", (commit,))
    assert lake.fsck() == [f"commit {commit} does not hold what its id says"]


def test_a_commit_whose_tree_is_missing_is_found(lake: LocalLake, commit: str, damage: Damage) -> None:
    damage("DELETE FROM nodes WHERE id = (SELECT tree FROM commits WHERE id = ?)", (commit,))
    [problem] = lake.fsck()
    assert problem.startswith(f"commit {commit} has the tree ")


@pytest.mark.usefixtures("commit")
def test_a_missing_part_of_a_tree_is_found(lake: LocalLake, tmp_path: Path, damage: Damage) -> None:
    damage(f"DELETE FROM nodes WHERE {FIRST_LEAF}")
    [problem] = lake.fsck()
    assert "has the child" in problem
    fresh = LocalLake(tmp_path / "lake")
    with pytest.raises(LakeError, match="tree node"):
        list(fresh.list("repo", "main", ""))
    fresh.close()


@pytest.mark.usefixtures("commit")
def test_a_changed_part_of_a_tree_is_found(lake: LocalLake, damage: Damage) -> None:
    damage(f"UPDATE nodes SET body = CAST(replace(body, 'large', 'small') AS BLOB) WHERE {FIRST_LEAF}")
    [problem] = [problem for problem in lake.fsck() if "tree node" in problem]
    assert problem.endswith("does not hold what its id says")


@pytest.mark.usefixtures("commit")
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda file: file.unlink(), "is missing from the embedded lake"),
        (lambda file: file.write_bytes(b"short"), f"has 5 bytes and not {LARGE}"),
        (lambda file: file.write_bytes(b"x" * LARGE), "has other bytes than its checksum says"),
    ],
)
def test_a_damaged_large_object_is_found(
    lake: LocalLake, tmp_path: Path, harm: Callable[[Path], None], says: str
) -> None:
    harm(large_object(tmp_path))
    [problem] = lake.fsck()
    assert "(large)" in problem
    assert says in problem


@pytest.mark.usefixtures("commit")
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ("DELETE FROM blobs WHERE body = x'736d616c6c'", "is missing from the embedded lake"),
        ("UPDATE blobs SET body = x'00' WHERE body = x'736d616c6c'", "has 1 bytes and not 5"),
        ("UPDATE blobs SET body = x'0000000000' WHERE body = x'736d616c6c'", "has other bytes"),
    ],
)
def test_a_damaged_small_object_is_found(lake: LocalLake, damage: Damage, harm: str, says: str) -> None:
    damage(harm, ())
    [problem] = lake.fsck()
    assert "(small)" in problem
    assert says in problem


@pytest.mark.usefixtures("commit")
def test_an_uncommitted_object_that_is_missing_is_found(
    lake: LocalLake, tmp_path: Path, damage: Damage
) -> None:
    Work(lake, "repo", tmp_path / "files").put("main", {"waiting": b"waiting"})
    damage("DELETE FROM blobs WHERE body = x'77616974696e67'")
    [problem] = lake.fsck()
    assert "(waiting)" in problem


@pytest.mark.parametrize("path", ["large", "small"])
def test_a_missing_object_is_named_when_it_is_downloaded(
    lake: LocalLake, commit: str, tmp_path: Path, damage: Damage, path: str
) -> None:
    large_object(tmp_path).unlink()
    damage("DELETE FROM blobs WHERE body = x'736d616c6c'")
    [entry] = [entry for entry in lake.list("repo", commit, "") if entry.path == path]
    with pytest.raises(LakeError, match=f"{entry.checksum} is missing"):
        lake.download("repo", commit, [Download(entry, tmp_path / "out")])
    assert not (tmp_path / "out").exists()
