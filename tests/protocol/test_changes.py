"""The projection of a prefix, and what counts as changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.errors import LakeError
from perago.protocol.changes import (
    Changes,
    FileStat,
    FileState,
    changes_between,
    check_projection,
    must_hash,
    workdir_path,
)


@pytest.mark.parametrize(
    ("path", "size", "prefix", "expected"),
    [
        ("audio/render/raw/a.txt", 3, "audio/render/", "raw/a.txt"),
        ("audiobook/a.txt", 3, "audio/", None),
        ("audio", 3, "audio/", None),
        ("a.txt", 3, "", "a.txt"),
        ("audio/raw/", 0, "audio/", None),
        ("audio/raw/", 3, "audio/", "raw/"),
        ("audio/", 0, "audio/", None),
        ("audio/.perago-attempt.json", 3, "audio/", None),
        ("audio/deep/.perago-attempt.json", 3, "audio/", None),
        ("_lakefs_actions/fence.yaml", 3, "", None),
        ("audio/_lakefs_actions/fence.yaml", 3, "audio/", "_lakefs_actions/fence.yaml"),
    ],
)
def test_the_prefix_is_cut_at_path_segments(path: str, size: int, prefix: str, expected: str | None) -> None:
    assert workdir_path(path, size, prefix) == expected


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/../b", "'..'"),
        ("./a", "'.'"),
        ("/etc/passwd", "absolute"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("a\0b", "NUL"),
        ("a/" + "x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
    ],
)
def test_a_path_that_no_folder_can_hold_is_refused_by_name(path: str, problem: str) -> None:
    with pytest.raises(LakeError) as refused:
        check_projection(["fine.txt", path])
    assert repr(path) in str(refused.value)
    assert problem in str(refused.value)


def test_a_file_and_a_folder_of_one_name_are_refused_in_either_order() -> None:
    for paths in (["a", "a/b/c"], ["a/b/c", "a"], ["a/b", "a/b/c"]):
        with pytest.raises(LakeError, match="cannot both be files"):
            check_projection(paths)


def test_case_matters_only_where_the_file_system_folds_it() -> None:
    check_projection(["A.txt", "a.txt"])
    with pytest.raises(LakeError, match="ignores case"):
        check_projection(["A.txt", "a.txt"], folds_case=True)


def test_odd_but_honest_names_pass() -> None:
    check_projection(["a b/c#d%20?+.txt", "日本/emoji 🎧.bin", "x" * 255, "a/b", "a-b/c"])


STAT = FileStat(size=3, mtime_ns=100, ctime_ns=100, inode=7)


@pytest.mark.parametrize(
    ("now", "then", "index_ns", "expected"),
    [
        (STAT, STAT, 101, False),
        (STAT, None, 101, True),
        (replace(STAT, size=4), STAT, 101, True),
        (replace(STAT, mtime_ns=99), STAT, 101, True),
        (replace(STAT, ctime_ns=99), STAT, 101, True),
        (replace(STAT, inode=8), STAT, 101, True),
        (STAT, STAT, 100, True),
        (STAT, STAT, 99, True),
        (replace(STAT, mtime_ns=50), replace(STAT, mtime_ns=50), 100, True),
    ],
)
def test_only_what_stat_cannot_vouch_for_is_read(
    now: FileStat, then: FileStat | None, index_ns: int, expected: bool
) -> None:
    assert must_hash(now, then, index_ns) is expected


def test_changes_are_what_makes_one_state_into_the_other() -> None:
    base = {"same": FileState(1, "s"), "new bytes": FileState(1, "a"), "gone": FileState(1, "g")}
    result = {"same": FileState(1, "s"), "new bytes": FileState(1, "b"), "added": FileState(0, "n")}
    assert changes_between(base, result) == Changes(put=("new bytes", "added"), delete=("gone",))
    assert not changes_between(base, base)


def test_a_checksum_that_nobody_knows_counts_as_different() -> None:
    unknown = {"big": FileState(9, None)}
    assert changes_between(unknown, {"big": FileState(9, "x")}).put == ("big",)
