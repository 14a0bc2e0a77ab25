"""The projection of a prefix, and what counts as changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.errors import LakeError
from perago.protocol.changes import (
    Changes,
    EditedStates,
    FileStat,
    FileState,
    FileStates,
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
def test_only_files_that_stat_cannot_decide_are_read(
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


MD5, SHA = "d41d8cd98f00b204e9800998ecf8427e", "e3" * 32
EXTREME_STAT = FileStat(7, 1_700_000_000_000_000_001, -5, 2**64 - 1)


def states(**files: FileState) -> FileStates:
    """States by path."""
    found = FileStates()
    for path, state in files.items():
        found.put(path, state)
    return found


@pytest.mark.parametrize("size", [0, 7, 2**62])
@pytest.mark.parametrize("checksum", [None, "", MD5, SHA, MD5.upper(), "abc", "12 34", "a-multipart-3", "é"])
def test_a_state_comes_back_as_it_was(size: int, checksum: str | None) -> None:
    assert states(a=FileState(size, checksum)) == {"a": FileState(size, checksum)}


def test_a_stat_comes_back_where_one_was_kept() -> None:
    found = states(listed=FileState(7, MD5))
    found.put("there", FileState(7, MD5), EXTREME_STAT)
    assert found.stat("there") == EXTREME_STAT
    assert found.stat("listed") is None
    assert found.stat("nowhere") is None
    assert found["there"] == found["listed"]


def test_the_last_state_of_a_path_counts() -> None:
    found = states(a=FileState(1, MD5), b=FileState(2, None))
    found.put("a", FileState(3, SHA))
    assert list(found.items()) == [("a", FileState(3, SHA)), ("b", FileState(2, None))]
    assert (len(found), "a" in found, "c" in found) == (2, True, False)


def test_a_path_that_is_not_there_is_missing() -> None:
    with pytest.raises(KeyError):
        states()["a"]


class TestEdited:
    BASE = states(
        kept=FileState(1, MD5), touched=FileState(1, MD5), new_bytes=FileState(1, MD5), gone=FileState(1, MD5)
    )
    READ = states(touched=FileState(1, MD5), new_bytes=FileState(1, SHA), added=FileState(2, SHA))
    EDITED = EditedStates(BASE, READ, {"gone"})

    def test_edited_states_are_what_the_folder_holds(self) -> None:
        expected = {
            "kept": FileState(1, MD5),
            "touched": FileState(1, MD5),
            "new_bytes": FileState(1, SHA),
            "added": FileState(2, SHA),
        }
        assert expected == self.EDITED
        assert (len(self.EDITED), list(self.EDITED)) == (4, list(expected))
        assert [path in self.EDITED for path in ("kept", "added", "gone", "nowhere")] == [
            True,
            True,
            False,
            False,
        ]

    @pytest.mark.parametrize("path", ["gone", "nowhere"])
    def test_a_removed_file_is_missing(self, path: str) -> None:
        with pytest.raises(KeyError):
            self.EDITED[path]

    def test_changes_of_edited_states_are_those_of_a_whole_comparison(self) -> None:
        assert self.EDITED.changes() == changes_between(self.BASE, self.EDITED)
        assert self.EDITED.changes().put == ("new_bytes", "added")
        assert self.EDITED.changes().delete == ("gone",)

    def test_a_file_that_comes_back_is_not_gone(self) -> None:
        base = states(a=FileState(1, None))
        assert EditedStates(base, states(a=FileState(1, MD5)), set()).changes().put == ("a",)
